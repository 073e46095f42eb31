"""The conformance kit on a rule, in a process that may hang or die."""

from __future__ import annotations

from collections.abc import Sequence

import sdp_ref
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.metrics.references import Reference
from sdp_bench.bench.plugins.plugin import Plugin
from sdp_bench.bench.rules import rule_of
from sdp_bench.bench.runs.executors.local import LocalProcesses
from sdp_ref.conformance import ConformanceReport


def conformance(rule: str, chosen: Sequence[Plugin], limit: float | None = None) -> ConformanceReport:
    """Report of the conformance kit on a rule, from a process of its own.

    Parameters
    ----------
    rule : str
        Built-in spec, or the name of one of `chosen`.
    chosen : sequence of Plugin
    limit : float, optional
        Seconds after which it is stopped.

    Returns
    -------
    ConformanceReport

    Raises
    ------
    Exception
        Whatever the kit itself ends with, `TimeLimitError` among others: what a
        rule raises is a failed check.
    """
    executor = LocalProcesses(1, 1, limit)
    try:
        return executor.submit(_checked, rule, tuple(chosen)).result()
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


def _checked(rule: str, chosen: tuple[Plugin, ...]) -> ConformanceReport:
    made = rule_of(rule, chosen)
    if isinstance(made, Reference):
        raise UserError(f"'{rule}' is a reference, no rule; there is nothing to check")
    return sdp_ref.check_rule(made)
