"""Verdicts of drill-downs in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sdp_bench.bench.metrics import Metric
from sdp_bench.reports.style.labels import number

if TYPE_CHECKING:
    from sdp_bench.bench.replay.error_by_layer import ErrorByLayer, OutputErrors

_BY = {
    "formula": "by the rule’s own approximation of a layer",
    "dropped": "by covariances that the rule drops",
    "closure": "by closure, the law there being no longer Gaussian",
}
_BY_SAMPLES = "by the draw of the rule’s samples"
_NEARLY_ALL, _MOST = 0.9, 0.6
_NAMED = 0.75  # layers are named until they explain this share
_WHOLE = 0.995
_MUCH_ROUNDING = 0.1  # of the error, above which it is mentioned


CONSTANT = (
    "The outputs are constant but for rounding: there is no spread to propagate, and what the figures show "
    "of the output is rounding."
)
"""Verdict if the output is constant."""


def errors_as_seen(metric: Metric, errors: ErrorByLayer) -> tuple[OutputErrors, str]:
    """Errors of the output in the measure closest to a metric, and a description of that measure.

    Errors are whitened for metrics that weight all directions of the outputs equally, as those of cells of
    equal mass do. Otherwise they are relative to the outputs' total spread, which the widest directions
    dominate. The description is meant to follow in brackets or after a comma.
    """
    if metric.whitens:
        return errors.whitened, "every principal direction of the outputs counting alike"
    return errors.spread, "in units of the outputs’ total spread"


def verdict(output: OutputErrors, names: Sequence[str], *, sampling: bool = False) -> str:
    """Return one to three sentences on the sources of the error and the layers at which it enters.

    Shares are in per cent of the sum of all errors. No layer is named if the error is within the oracle's
    floor or its rounding. `sampling` says that the rule samples, so that its own error is that of few
    samples.
    """
    total = output.total
    if total.value <= output.rounding:
        return (
            f"The error in mean and covariance of the output (distance {number(total.value)}) is within what "
            f"rounding does to the oracle, in the precision in which it was drawn (about "
            f"{number(output.rounding)}): it tells of no layer. What error there is beyond is in the law’s "
            "shape."
        )
    if total.indistinguishable:
        return (
            f"Mean and covariance of the output cannot be told from the exact ones (distance "
            f"{number(total.value)}, 95 % point of the floor {number(total.floor95)}): what error there is "
            "is in the law’s shape."
        )
    by = _BY | ({"formula": _BY_SAMPLES} if sampling else {})
    entered = output.sum_of_parts
    shares = {kind: [v / entered for v in getattr(output, kind)] for kind in _BY}
    kinds = sorted(_BY, key=lambda kind: -sum(shares[kind]))
    first, share = kinds[0], sum(shares[kinds[0]])
    all_by_layer = [sum(shares[kind][k] for kind in _BY) for k in range(len(names))]
    if share >= _MOST:
        word = "Nearly all" if share >= _NEARLY_ALL else "Most"
        by_layer, statement = shares[first], f"{word} of the error enters {by[first]} ({share:.0%})"
    else:
        parts = " and ".join(f"{sum(shares[k]):.0%} {by[k]}" for k in kinds if sum(shares[k]) >= 0.1)
        by_layer, statement = all_by_layer, f"The error enters in more than one way: {parts}"
    text = f"{statement}, {_layers(by_layer, names)}."
    share = output.rounding / total.value
    if share >= _MUCH_ROUNDING:
        text += (
            " But rounding in the oracle, in the precision in which it was drawn, may be about "
            f"{share:.0%} of this error."
        )
    return text.replace("%", " %")


def _layers(shares: Sequence[float], names: Sequence[str]) -> str:
    whole = sum(shares)
    order = sorted(range(len(names)), key=lambda k: -shares[k])
    chosen, covered = [], 0.0
    for k in order:
        chosen.append(k)
        covered += shares[k] / whole
        if covered >= _NAMED:
            break
    if len(chosen) > max(3, len(names) // 3):
        return "spread over many layers"
    if covered >= _WHOLE and len(chosen) == 1:
        return f"at {names[chosen[0]]}"
    named = [f"{names[k]} ({shares[k] / whole:.0%} of that)" for k in sorted(chosen)]
    text = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
    return f"{'at' if covered >= _NEARLY_ALL else 'above all at'} {text}"
