// sdp-bench
{% include "sortable.min.js" %}
{% include "live.js" %}
{% include "csv.js" %}
