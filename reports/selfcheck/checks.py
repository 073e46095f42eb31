"""The checks of the selfcheck, and their execution."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.executors.local import LocalProcesses
from sdp_bench.bench.runs.driver import Meter
from sdp_bench.reports.selfcheck import simulations
from sdp_bench.reports.selfcheck.rate import Rate


@dataclass(frozen=True)
class Check:
    """Simulations with known truth: a module of `simulations` with a function ``rates(trials, seed)``.

    `name` is that of the module, `trials` the number in a full check, and `seconds` its approximate time on
    one core.
    """

    name: str
    trials: int
    seconds: float

    def rates(self, share: float, seed: int) -> list[Rate]:
        module = importlib.import_module(f"{simulations.__name__}.{self.name}")
        return list(module.rates(max(1, round(share * self.trials)), seed))


CHECKS = (
    Check("cells", 300, 60),
    Check("headline", 60, 46),
    Check("transport", 400, 40),
    Check("intervals", 600, 35),
    Check("verdicts", 4000, 40),
    Check("gate", 200, 30),
    Check("kit", 1, 45),
)


def chosen(names: Collection[str]) -> tuple[Check, ...]:
    """Return checks by name, by default all; raises UserError for an unknown name."""
    known = [check.name for check in CHECKS]
    for name in names:
        if name not in known:
            raise UserError(f"no check '{name}'; there are: {', '.join(known)}")
    return tuple(check for check in CHECKS if not names or check.name in names)


def run(
    checks: Sequence[Check], meter: Meter, *, share: float = 1.0, seed: int = 0, jobs: int = 1
) -> dict[str, list[Rate]]:
    """Run checks, each in a process with one thread, and return their rates by name.

    `share` is the share of the trials of a full check, and `jobs` the number of parallel processes.
    """
    whole = sum(check.seconds for check in checks)
    found: dict[str, list[Rate]] = {}
    executor = LocalProcesses(jobs, threads=1)
    try:
        # The longest first, so that none is left running alone at the end.
        waiting = {
            executor.submit(check.rates, share, seed): check
            for check in sorted(checks, key=lambda check: -check.seconds)
        }
        for future in as_completed(waiting):
            found[waiting[future].name] = future.result()
            done = sum(check.seconds for check in checks if check.name in found)
            meter.done(len(found), len(checks), waiting[future].name, done / whole)
    finally:
        executor.shutdown(cancel_futures=True)
    return {check.name: found[check.name] for check in checks}
