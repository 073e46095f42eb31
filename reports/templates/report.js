// sdp-bench
{% include "live.js" %}
