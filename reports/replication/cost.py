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
        rows = {
            name: (evidence.timed(net, method, phase), evidence.timed(net, other, phase))
            for net, name in _NETS.items()
        }
        known = {name: (one, two) for name, (one, two) in rows.items() if one and two}
        decisive = known.keys() & {_NETS[net] for net in nets}
        if not decisive:
            return None
        # Both are multiples of the regular pass of their own run, since times may be from different runs.
        ratios = {name: one.ratio / two.ratio for name, (one, two) in known.items()}
        said = ", ".join(f"{number(ratio)} ({name})" for name, ratio in ratios.items())
        design = _design(next(iter(known.values()))[0])
        holds = all(accepted(ratios[name]) for name in decisive)
        return Answer.certain(holds=holds, found=f"{words}: {said}", fidelity=design, address=_ADDRESS)

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
    trials = tuple(Trial(convention=(p,), verdict=own.trials[0].verdict) for p, own in answers.items())
    ratios = "; ".join(answer.said for answer in answers.values())
    said = f"marginal moment matching over marginal SDP: {ratios}"
    return replace(next(iter(answers.values())), trials=trials, said=said)


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
    holds, found, row = True, [], None
    for nets, named in ((BY_OUTPUTS, "outputs"), (BY_INPUTS, "inputs")):
        rows = [evidence.timed(net.name, method) for method in ("sdp", "marginal_sdp") for net in nets]
        timed = [row for row in rows if row]
        if len(timed) < len(rows):
            return None
        row = timed[0]
        full, marginal = np.array([row.ratio for row in timed]).reshape(2, -1)
        counts = np.array([min(net.inputs, net.outputs) for net in nets])
        design = np.stack([np.ones(len(counts)), counts], 1)
        start, slope = np.linalg.lstsq(design / full[:, np.newaxis], np.ones(len(counts)), rcond=None)[0]
        off = full / (start + slope * counts)
        level = marginal.max() / marginal.min() <= _SIMILAR
        holds &= bool(level and slope > 0 and (off > 1 / _SIMILAR).all() and (off < _SIMILAR).all())
        found.append(
            f"with {', '.join(map(str, counts))} {named} SDP takes {', '.join(map(number, full))} passes, "
            f"{span(off)} times {number(start)} + {number(slope)} of their number, and marginal SDP "
            f"{span(marginal)}"
        )
    design_of = _design(row) if row else ""
    return Answer.certain(holds=holds, found="; ".join(found), fidelity=design_of, address=_ADDRESS)


def _dvia(evidence: Evidence) -> Answer | None:
    """DVIA over a regular pass of the CNN on MNIST: timed, or extrapolated from narrower nets."""
    regular = evidence.timed(MNIST_CNN.name, "regular")
    timed = evidence.timed(MNIST_CNN.name, "dvia")
    narrow = {net.width or 0: row for net in NARROW_CNNS if (row := evidence.timed(net.name, "dvia"))}
    if regular is None or (timed is None and len(narrow) < len(NARROW_CNNS)):
        return None
    seconds, how = (timed.seconds, "timed") if timed else _extrapolated(narrow, MNIST_CNN.width or 0)
    ratio = seconds / regular.seconds
    shown = ratio if timed else float(f"{ratio:.2g}")  # an extrapolation has no more significant digits
    found = f"DVIA over a regular pass: {shown:,.0f}, {seconds:.0f} s for an image; {how}"
    return Answer.certain(holds=ratio > _DVIA, found=found, fidelity=_design(regular), address=_ADDRESS)


def _extrapolated(narrow: Mapping[int, Row], wide: int) -> tuple[float, str]:
    """Seconds of DVIA on a wide CNN, extrapolated from narrow ones, and a description of the method."""
    # entries of the first layer's covariance, and passes that its rows take through the second layer
    widths, own = np.array([*narrow]), np.array([row.seconds for row in narrow.values()])
    terms = np.stack([widths**2, widths**3], 1)
    parts, _ = nnls(terms / own[:, np.newaxis], np.ones(len(own)))
    off = own / (terms @ parts)
    return float(parts @ [wide**2, wide**3]), (
        f"extrapolated from those with {', '.join(map(str, widths))} channels and not {wide}, which take "
        f"{', '.join(map(number, own))} s, {span(off)} times what quadratic and cubic terms have"
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
