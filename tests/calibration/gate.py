"""How often the gate stops at a sampling rule with other seeds, and misses one whose covariances changed."""

import tempfile
from itertools import count
from pathlib import Path

from sdp_bench.bench.gate.check import Options, check, make
from tests.bench.gate.gate_rules import few_cells, write_sampler
from tests.calibration.rate import Rate


def sampling_rules(rng):
    """Checks of a plug-in that draws 20 samples in two settings, each against a baseline of its own."""
    scope, offsets, trials = few_cells(samples=2**12), count(), 6
    stopped = []
    for change, times in (("pass", trials), ("covariance = 1.1 * covariance", 3)):
        with tempfile.TemporaryDirectory() as folder:
            rule = Path(folder) / "sampler.py"
            for _ in range(times):
                known = make([write_sampler(rule, offset=next(offsets))], scope)
                address = write_sampler(rule, change, offset=next(offsets))
                options = Options(rules=(address,), seed=int(rng.integers(2**31)), speed=False)
                stopped.append(check(known, options, scope).exit_code != 0)
    condition = "20 Monte Carlo samples under other seeds, two settings"
    yield Rate("false alarm of the gate", condition, 0.01, sum(stopped[:trials]), trials)
    missed = stopped[trials:].count(False)
    yield Rate("gate misses covariances off by 10 %", condition, 0.05, missed, len(stopped) - trials)


SIMULATIONS = (sampling_rules,)
