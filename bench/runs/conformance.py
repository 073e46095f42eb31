"""The conformance kit for a rule, in a process that may hang or die."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import sdp_ref
from sdp_ref.conformance import CheckResult, ConformanceReport
from sdp_ref.conformance.kit import named_checks

from ..errors import UserError
from ..executors import WorkerError
from ..executors.local import Limits, in_separate_process, send
from ..metrics.references import Reference
from ..plugins.plugin import Plugin
from ..rules import rule_of


def conformance(
    rule: str,
    chosen: Sequence[Plugin],
    limits: Limits | None = None,
    *,
    only: Collection[str] | None = None,
    seed: int = 0,
    on_result: Callable[[CheckResult], None] = lambda _: None,
) -> ConformanceReport:
    """Run the conformance kit on a rule in a separate process.

    `rule` is a built-in spec or the name of one of `chosen`. `only` selects checks by name, and `on_result`
    is called with each result as it arrives. A WorkerError that names the check is raised if the rule ends or
    hangs the process. An error raised by the rule is a failed check.
    """
    names, done = [check.name for check in named_checks(only)], list[CheckResult]()

    def record(result: CheckResult) -> None:
        done.append(result)
        on_result(result)

    try:
        return in_separate_process(
            _checked, rule, tuple(chosen), only, seed, limits=limits, on_message=record
        )
    except WorkerError as error:
        if len(done) >= len(names):
            raise
        raise WorkerError(f"{error}, in the check '{names[len(done)]}'") from error


def _checked(
    rule: str, chosen: tuple[Plugin, ...], only: Collection[str] | None, seed: int
) -> ConformanceReport:
    made = rule_of(rule, chosen)
    if isinstance(made, Reference):
        raise UserError(f"'{rule}' is a reference, no rule; there is nothing to check")
    return sdp_ref.check_rule(made, only=only, seed=seed, progress=send)
