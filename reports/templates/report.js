// sdp-bench
{% include "live.js" %}
{% include "csv.js" %}
