"""The conformance kit on a rule, in a process that may hang or die."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import sdp_ref
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.executors import WorkerError
from sdp_bench.bench.executors.local import Limits, apart, tell
from sdp_bench.bench.metrics.references import Reference
from sdp_bench.bench.plugins.plugin import Plugin
from sdp_bench.bench.rules import rule_of
from sdp_ref.conformance import CheckResult, ConformanceReport
from sdp_ref.conformance.kit import named_checks


def conformance(
    rule: str,
    chosen: Sequence[Plugin],
    limits: Limits | None = None,
    *,
    only: Collection[str] | None = None,
    seed: int = 0,
    told: Callable[[CheckResult], None] = lambda _: None,
) -> ConformanceReport:
    """Report of the conformance kit on a rule, from a process of its own.

    Parameters
    ----------
    rule : str
        Built-in spec, or the name of one of `chosen`.
    chosen : sequence of Plugin
    limits : Limits, optional
        Of the whole kit.
    only : collection of str, optional
        Names of checks; all by default.
    seed : int
        Of the cases.
    told : callable
        Called with each result as it comes.

    Raises
    ------
    WorkerError
        If the rule ends or hangs that process; its message names the check.
    Exception
        Whatever else the kit ends with: what a rule raises is a failed check.
    """
    names, done = [check.name for check in named_checks(only)], list[CheckResult]()

    def told_too(result: CheckResult) -> None:
        done.append(result)
        told(result)

    try:
        return apart(_checked, rule, tuple(chosen), only, seed, limits=limits, told=told_too)
    except WorkerError as error:
        if len(done) >= len(names):
            raise
        raise type(error)(f"{error}, in the check '{names[len(done)]}'") from error


def _checked(
    rule: str, chosen: tuple[Plugin, ...], only: Collection[str] | None, seed: int
) -> ConformanceReport:
    made = rule_of(rule, chosen)
    if isinstance(made, Reference):
        raise UserError(f"'{rule}' is a reference, no rule; there is nothing to check")
    return sdp_ref.check_rule(made, only=only, seed=seed, progress=tell)
