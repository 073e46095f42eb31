import pandas as pd

from sdp_bench.bench.metrics import recorded_metric
from sdp_bench.reports.statistics.ranking import Replicates, rank
from sdp_bench.reports.style.names import RuleTraits


def test_without_a_known_standard_error_a_single_pair_is_tied():
    row = pd.DataFrame({"net": "a", "input": 0.0, "rule": ["sdp", "dvia"], "value": [0.1, 0.11]})
    row = row.assign(floor=0.0, stderr=0.001)
    for spec, tied in (
        ("tv_paper:bin_range=quantiles", False),
        ("tv_paper:bin_range=minmax", False),
        ("tv_paper:bin_range=joint", True),
        ("tv_single", True),
    ):
        best = rank(Replicates.of(recorded_metric(spec), row, RuleTraits()), ("sdp", "dvia")).best
        assert best == (("sdp", "dvia") if tied else ("sdp",)), spec
