// sdp-bench
{% include "charts.js" %}
{% include "live.js" %}
