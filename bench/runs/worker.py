"""What a worker holds from its start: the fork server imports this once for all of them.

Each would else import it for every group, and take longer over that than over many a small group.
"""

import ot  # noqa: F401

from sdp_bench.bench.experiments import law_group  # noqa: F401
from sdp_bench.bench.metrics import metrics
from sdp_bench.bench.runs import group  # noqa: F401

metrics()  # imports them
