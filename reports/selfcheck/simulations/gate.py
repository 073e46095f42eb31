"""Alarm rates of the gate for sampling rules with new draws, and for those with changed distributions."""

from __future__ import annotations

from collections.abc import Iterator

from sdp_bench.bench.environment import threads
from sdp_bench.bench.experiments.iris import ci
from sdp_bench.bench.gate.cells import Scope
from sdp_bench.bench.gate.probes import probes
from sdp_bench.reports.selfcheck.gating.power import Power
from sdp_bench.reports.selfcheck.gating.simulation import RULES, alarms, pools_of, scaled, shifted
from sdp_bench.reports.selfcheck.rate import Rate

_LEVEL = 0.05  # five times the level of all tests of a run together


def few_places() -> Scope:
    """A cell of each committed net and every third probe, a quarter of a full check."""
    groups = ci.groups(["sdp"], sigmas=(1.0,), inputs=1, samples=2**13, pilot_samples=2**13, cells=64)
    return Scope((), tuple(groups), probes()[::3])


def rates(trials: int, seed: int = 0) -> Iterator[Rate]:
    """Yield rates of simulated checks in which sampling rules have new draws.

    False alarms are promised to be at most 5 %. Changes are promised to be detected at least as often as the
    lower bounds behind the table of docs/ci.md say, here for fewer settings and therefore lower. Changed
    rules have a quarter of the trials.
    """
    with threads(1):
        pools = pools_of(few_places())
    number = len({key for _, key in pools})
    where = f"in {number} places, under other seeds"
    alarmed = alarms(pools, trials, seed)
    what = "a check stops at rules whose seeds alone have changed"
    yield Rate("gate", what, f"{len(RULES)} sampling rules {where}", (0.0, _LEVEL), alarmed, trials)
    for rule in RULES[:2]:
        mine = {place: pool for place, pool in pools.items() if place[0] == rule}
        draws = {key: pool.draws for (_, key), pool in mine.items()}
        power = Power(draws, {key: pool.outputs for (_, key), pool in mine.items()}, 1)
        for change, bound, made in (
            ("all covariances x 0.99", power.covariance(0.99), scaled(0.99)),
            ("all covariances x 0.98", power.covariance(0.98), scaled(0.98)),
            ("all covariances x 0.95", power.covariance(0.95), scaled(0.95)),
            ("all means + 1 % of a standard deviation", power.mean_shift(0.01), shifted(0.01)),
        ):
            some = max(1, trials // 4)
            seen = alarms(mine, some, seed + 1, made)
            yield Rate("gate", f"a check stops at {change}", f"{rule} {where}", (bound, 1.0), seen, some)
