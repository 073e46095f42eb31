"""Statements of the paper on the times of rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import numpy as np
from scipy.optimize import nnls

from ...bench.runtime.table import BY_INPUTS, BY_OUTPUTS, MNIST_CNN, NARROW_CNNS, Row
from ..statement import Answer, Effect, Evidence, Rule, Trial, finite
from ..style.labels import layers, number, span

_NETS = {"cnn3": "3-layer CNN", "resnet18": "ResNet-18"}
_OUTPUTS = 10
_SIMILAR = 1.25
"""Factor up to which times are "around" or "similar", and "slightly" larger."""
_DVIA = 12_500
"""The paper states that DVIA takes more than this number of regular passes of the CNN on MNIST."""
_PRECISIONS = {
    "float64": "marginal_moment_matching",
    "precision=1e-5": "marginal_moment_matching:precision=1e-5",
}
"""Marginal moment matching by the precision of its formulas."""
_ADDRESS = "#runtime"


def _design(row: Row) -> str:
    return (
        f"{row.device}, {row.threads} thread{'s' * (row.threads > 1)}, batches of {row.batch}; "
        "the paper: one V100, batches of 128"
    )


def _multiples(
    phase: str,
    method: str,
    other: str,
    words: str,
    accepted: Callable[[float], bool],
    nets: Collection[str] = _NETS,
) -> Callable[[Evidence], Answer | None]:
    """Rule on one method's time as a multiple of another's, reporting both nets of the paper."""

    def rule(evidence: Evidence) -> Answer | None:
        ratios: dict[str, float] = {}
        design = ""
        for net in _NETS:
            timed, timed_other = evidence.timed(net, method, phase), evidence.timed(net, other, phase)
            if timed and timed_other:
                # Both are multiples of the regular pass of their own run: the runs may be different ones.
                ratios[net] = timed.ratio / timed_other.ratio
                design = design or _design(timed)
        decisive = [ratio for net, ratio in ratios.items() if net in nets]
        if not decisive:
            return None
        multiples = ", ".join(f"{number(ratio)} ({_NETS[net]})" for net, ratio in ratios.items())
        return Answer.certain(
            holds=all(accepted(ratio) for ratio in decisive),
            finding=f"{words}: {multiples}",
            fidelity=design,
            address=_ADDRESS,
        )

    return rule


def _moment_matching(evidence: Evidence) -> Answer | None:
    """Marginal moment matching over marginal SDP, at each precision of its formulas."""
    answers = {}
    for precision, method in _PRECISIONS.items():
        rule = _multiples("forward", method, "marginal_sdp", precision, lambda ratio: 1 <= ratio <= _SIMILAR)
        if answer := rule(evidence):
            answers[precision] = answer
    if not answers:
        return None
    trials = tuple(
        Trial(convention=(precision,), verdict=answer.trials[0].verdict)
        for precision, answer in answers.items()
    )
    ratios = "; ".join(answer.sentence for answer in answers.values())
    sentence = f"marginal moment matching over marginal SDP: {ratios}"
    return replace(next(iter(answers.values())), trials=trials, sentence=sentence)


def _fraction(evidence: Evidence) -> Answer | None:
    """Times of SDP and DVIA on the nets of the simulation, by net."""
    frame = evidence.of("iris-tv", activation="relu")
    frame = frame[frame["rule"].isin(("sdp", "dvia"))]
    # A first call loads and plans; medians exclude it.
    times = frame.pivot_table("seconds", "net", "rule", aggfunc="median", observed=True)
    if not {"sdp", "dvia"} <= set(times):
        return None
    ratios = finite(np.log(times["dvia"] / times["sdp"]))
    effect = Effect("time of DVIA over that of SDP", ratios, shown=math.exp)
    design = f"{layers(frame['depth'])} of 100, on CPUs"
    return Answer.of({(): [effect]}, "net", design, "#choice")


def _linear(evidence: Evidence) -> Answer | None:
    """SDP linear and marginal SDP constant, by outputs and by inputs; lines have the best relative errors."""
    holds = True
    findings = []
    design = ""
    for nets, dimension in ((BY_OUTPUTS, "outputs"), (BY_INPUTS, "inputs")):
        full_rows = [evidence.timed(net.name, "sdp") for net in nets]
        marginal_rows = [evidence.timed(net.name, "marginal_sdp") for net in nets]
        full = np.array([row.ratio for row in full_rows if row])
        marginal = np.array([row.ratio for row in marginal_rows if row])
        if len(full) < len(nets) or len(marginal) < len(nets):
            return None
        design = next(_design(row) for row in full_rows if row)
        counts = np.array([min(net.inputs, net.outputs) for net in nets])
        # Least squares of relative errors: each equation is divided by its time.
        terms = np.stack([np.ones(len(counts)), counts], 1) / full[:, np.newaxis]
        intercept, slope = np.linalg.lstsq(terms, np.ones(len(counts)), rcond=None)[0]
        deviations = full / (intercept + slope * counts)
        is_linear = slope > 0 and (deviations > 1 / _SIMILAR).all() and (deviations < _SIMILAR).all()
        is_constant = marginal.max() / marginal.min() <= _SIMILAR
        holds = holds and bool(is_linear and is_constant)
        findings.append(
            f"with {', '.join(map(str, counts))} {dimension} SDP takes {', '.join(map(number, full))} "
            f"passes, {span(deviations)} times {number(intercept)} + {number(slope)} of their number, and "
            f"marginal SDP {span(marginal)}"
        )
    return Answer.certain(holds=holds, finding="; ".join(findings), fidelity=design, address=_ADDRESS)


def _dvia(evidence: Evidence) -> Answer | None:
    """DVIA over a regular pass of the CNN on MNIST: timed, or extrapolated from narrower nets."""
    regular = evidence.timed(MNIST_CNN.name, "regular")
    timed = evidence.timed(MNIST_CNN.name, "dvia")
    if regular is None:
        return None
    if timed:
        seconds, method = timed.seconds, "timed"
        ratio = shown_ratio = seconds / regular.seconds
    else:
        narrow = {net.width or 0: evidence.timed(net.name, "dvia") for net in NARROW_CNNS}
        seconds_by_width = {width: row.seconds for width, row in narrow.items() if row}
        if len(seconds_by_width) < len(NARROW_CNNS):
            return None
        seconds, method = _extrapolated(seconds_by_width, MNIST_CNN.width or 0)
        ratio = seconds / regular.seconds
        shown_ratio = float(f"{ratio:.2g}")  # an extrapolation has no more significant digits
    finding = f"DVIA over a regular pass: {shown_ratio:,.0f}, {seconds:.0f} s for an image; {method}"
    return Answer.certain(holds=ratio > _DVIA, finding=finding, fidelity=_design(regular), address=_ADDRESS)


def _extrapolated(seconds_by_width: Mapping[int, float], width: int) -> tuple[float, str]:
    """Seconds of DVIA on a wide CNN, extrapolated from narrow ones, and a description of the method.

    The quadratic term counts the entries of the first layer's covariance, the cubic term the passes that its
    rows take through the second layer.
    """
    widths = np.array(list(seconds_by_width))
    seconds = np.array(list(seconds_by_width.values()))
    terms = np.stack([widths**2, widths**3], 1)
    coefficients, _ = nnls(terms / seconds[:, np.newaxis], np.ones(len(seconds)))
    deviations = seconds / (terms @ coefficients)
    return float(coefficients @ [width**2, width**3]), (
        f"extrapolated from those with {', '.join(map(str, widths))} channels and not {width}, which take "
        f"{', '.join(map(number, seconds))} s, {span(deviations)} times what quadratic and cubic terms have"
    )


RULES: Mapping[str, Rule] = {
    "cost-marginal": _multiples(
        "forward",
        "marginal_sdp",
        "regular",
        "marginal SDP over a regular pass",
        lambda ratio: 2 / _SIMILAR <= ratio <= 2 * _SIMILAR,
    ),
    "cost-marginal-small": _multiples(
        "training_step",
        "marginal_sdp",
        "regular",
        "a training step of marginal SDP over a regular one",
        lambda ratio: ratio <= _SIMILAR,
        nets=("cnn3",),  # the small one
    ),
    "cost-moment-matching": _moment_matching,
    "cost-sdp": _multiples(
        "forward",
        "sdp",
        "regular",
        "SDP over a regular pass",
        lambda ratio: _OUTPUTS / _SIMILAR <= ratio <= _OUTPUTS * _SIMILAR,
    ),
    "cost-fraction": _fraction,
    "cost-linear": _linear,
    "cost-dvia": _dvia,
}
