"""Detection of faults by kit and gate as stated in docs/ci.md, and false alarms of the kit."""

from __future__ import annotations

from collections.abc import Iterator

import sdp_ref as sr
from sdp_bench.bench.environment import threads
from sdp_bench.reports.selfcheck.gating.faults import FAULTS, Gate, seen_by_kit
from sdp_bench.reports.selfcheck.rate import Rate

_SLOW = frozenset({"moment_matching", "low_rank", "exact"})
"""Rules that take the kit more than ten seconds each; the tests cover them."""


def rates(trials: int, seed: int = 0) -> Iterator[Rate]:
    """Yield rates of detected faults of docs/ci.md, and of failed checks of registered rules.

    A fault counts if kit, then gate, first detect it where the table says, or miss it if the table says so.
    Failed checks are those of rules that keep all promises; `trials` is the number of runs per rule.
    """
    blind = tuple(fault for fault in FAULTS if not fault.kit)
    seen = sum(seen_by_kit(fault) == fault.kit for fault in FAULTS if fault.kit)
    # all faults that the kit misses in a single rule, since each would take a whole run of the kit
    seen += 0 if seen_by_kit(*blind) else len(blind)
    made = "faults made in SDP"
    yield Rate("kit", "the kit sees a fault, or not, as docs/ci.md says", made, (1, 1), seen, len(FAULTS))
    gate = Gate()
    seen = sum(gate.sees(fault) == fault.gate for fault in FAULTS)
    yield Rate("kit", "the gate sees a fault, or not, as docs/ci.md says", made, (1, 1), seen, len(FAULTS))
    rules = [name for name in sr.rules() if name not in _SLOW]
    with threads(1):
        reports = [sr.check_rule(name, seed=seed + trial) for name in rules for trial in range(trials)]
    failed, ran = (sum(len(each.unexpected) for each in reports), sum(each.ran for each in reports))
    what = "a check fails that the rule does not declare as known"
    yield Rate("kit", what, ", ".join(rules), (0, 0), failed, ran)
