"""The experiments of ``sdp-bench validate``: a new rule next to built-in ones, or rules on a user's net."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..errors import UserError
from ..metrics.distances import LEAST_POINTS, Operations, Wasserstein
from ..nets.net import Net
from ..nets.own.net import OwnNet
from ..settings import Settings, Size
from .laws import COMPARED_RULES, LawExperiment

EXPERIMENTS = ("iris-tv", "iris-std", "iris-w1")
DEPTHS = (1, 2, 4)
NETS = 3
"""Nets per depth: the smallest number with a meaningful spread."""

_WIDE = 4000  # components of a value from which the covariances of DVIA need more than their 4 GiB


def compared_rules(net: OwnNet) -> tuple[str, ...]:
    """Return the rules to compare on a user's net, with low_rank if others refuse its size."""
    return (*COMPARED_RULES, "low_rank") if net.widest > _WIDE else COMPARED_RULES


NAME = "own-net"
HISTOGRAM_OUTPUTS = 8
"""Most outputs for which 512 cells split nearly every axis, and exact W1 is informative at 10^6 samples."""
_GRID_OUTPUTS = 3  # a regular grid has 12^m cells
_PAIR_OUTPUTS = 12  # the floor of the largest of m (m - 1) / 2 distances needs as many redrawn distances
_MOMENT_OUTPUTS = 200  # the bootstrap of a covariance holds 400 of them

_SAMPLES = (10**6, 10**5, 10**4, 5000, 1000)
_MANY_OUTPUTS = 10**4  # samples without a histogram: the floors of pairs redraw all of them
_ORACLES = 150.0  # s of forward passes on one core for all oracles together
_VALUES = 10**8  # values in the samples of one oracle


@dataclass(frozen=True, kw_only=True)
class OwnNetExperiment(LawExperiment):
    """Rules on a user's net."""

    def includes(self, net: Net, settings: Settings) -> bool:  # noqa: ARG002
        return isinstance(net, OwnNet)


def measures_for(outputs: int, *, heavy: bool = False, has_class: bool = True) -> tuple[tuple[str, ...], str]:
    """Return the metrics for a net with this many outputs, and a reason.

    `heavy` noise has no variance, and `has_class` is whether the largest output is a decision.
    """
    if heavy:
        return _without_moments(outputs, has_class)
    if outputs == 1:
        return (
            ("tv_headline", "tv_paper", "w1", *_MOMENTS),
            "One output: total variation in cells of equal mass and in a regular grid, exact W1, and "
            "moments. There is no decision (arg max) to compare.",
        )
    measures = _few_outputs if outputs <= HISTOGRAM_OUTPUTS else _many_outputs
    return measures(outputs, has_class)


_MOMENTS = ("std_ratio", "tails", "bures", "gaussian_kl", "min_eigenvalue")


def _without_moments(outputs: int, has_class: bool) -> tuple[tuple[str, ...], str]:
    metrics: list[str] = []
    if outputs <= HISTOGRAM_OUTPUTS:
        metrics += ["tv_joint", "tv_output"]
    if outputs > 1 and has_class:
        metrics.append("tv_class")
    if outputs > HISTOGRAM_OUTPUTS:
        metrics.append("tv_margin")
        if outputs <= _PAIR_OUTPUTS:
            metrics.append("tv_pairs")
    metrics += ["quantile_mean", "quantile_max", "iqr_ratio", "tails"]
    return (
        tuple(metrics),
        "The noise has no variance: no moments, no W1, but shared mass and quantiles of each output.",
    )


def _few_outputs(outputs: int, has_class: bool) -> tuple[tuple[str, ...], str]:
    """Metrics if a histogram over all outputs has enough samples."""
    joint, cells = ["tv_headline", "tv_paper"], "and in a regular grid"
    if outputs > _GRID_OUTPUTS:
        joint = ["tv_principal"]
        cells = f"together and two by two, no regular grid (which would have 12^{outputs} cells)"
    decision = ""
    if has_class:
        joint.append("tv_class")
        decision = " of the decision (arg max) and"
    return (
        (*joint, "tv_difference", "w1", *_MOMENTS),
        f"{outputs} outputs: total variation in cells of equal mass along the true law’s principal axes "
        f"{cells},{decision} of pairs of outputs, exact W1, and moments.",
    )


def _many_outputs(outputs: int, has_class: bool) -> tuple[tuple[str, ...], str]:
    has_moments, has_pairs = outputs <= _MOMENT_OUTPUTS, outputs <= _PAIR_OUTPUTS
    metrics = ["tv_margin"]
    principal = pairs = decision = ""
    if has_class:
        metrics.insert(0, "tv_class")
        decision = "of the decision (arg max), "
    if has_moments:
        metrics.insert(0, "tv_principal")
        principal = "along two principal axes of the true law, "
    if has_pairs:
        metrics.append("tv_pairs")
        pairs = ", of pairs of outputs"
    metrics += ["tv_sliced", "w1_sliced", "energy"]
    if has_moments:
        metrics += _MOMENTS
        moments = ", and moments."
    else:
        moments = f". No moments: a bootstrap of {outputs} × {outputs} is too large."
    return (
        tuple(metrics),
        f"{outputs} outputs, more than the {HISTOGRAM_OUTPUTS} that a histogram over all of them has samples "
        f"for: total variation {principal}{decision}of the margin{pairs} and along the "
        f"worst direction, sliced W1, energy distance{moments} The worst direction and the energy distance "
        "leave out a shift of all outputs alike.",
    )


def samples_for(net: OwnNet, oracles: int, outputs: int) -> tuple[int, str]:
    """Return the samples of each of `oracles` oracles, and the reason if it is not a million."""
    limit, reason = _SAMPLES[0], ""
    if outputs > HISTOGRAM_OUTPUTS:
        limit, reason = _MANY_OUTPUTS, f"{outputs} outputs"
    sizes = [size for size in _SAMPLES if size <= limit and size * outputs <= _VALUES] or [_SAMPLES[-1]]
    seconds = (
        2 * oracles * net.row_seconds
    )  # of one sample of every oracle, and of a second one as a reference
    samples = next((size for size in sizes if size * seconds <= _ORACLES), sizes[-1])
    if samples < limit:
        reason = f"a sample takes {net.row_seconds * 1e6:.3g} µs and there are {oracles} oracles"
    return samples, f"{samples} samples an oracle ({reason}); --samples takes more" if reason else ""


def own_experiment(net: OwnNet, settings: Settings) -> tuple[OwnNetExperiment, Settings, list[str]]:
    """Return the experiment on a user's net, settings that fit it, and notes on the choices made."""
    sigmas = settings.design.sigmas
    if not sigmas:
        raise UserError("a net needs noise levels: --sigma 0.1,1, in the units of its inputs")
    outputs = net.architecture.outputs
    noise = settings.design.noise
    metrics, about = measures_for(
        outputs,
        heavy=noise is not None and not hasattr(noise.example, "variance"),
        has_class=net.has_class,
    )
    notes = [about, *net.notes]
    # The number of samples may be given; otherwise it is chosen for the size and speed of the net.
    is_given = settings.design.samples is not None
    sampling = settings.sampling
    if not is_given:
        oracles = len(sigmas) * len(net.inputs.unique(dim=0))
        samples, reason = samples_for(net, oracles, outputs)
        if reason:
            notes.append(reason)
        sampling = replace(sampling, samples=samples, pilot_samples=min(sampling.pilot_samples, samples))
    # The floor of W1 needs `w1_pairs` pairs of independent sets of points.
    w1 = Wasserstein.of({}, settings.metric_options)
    points = min(w1.w1_points, max(LEAST_POINTS, sampling.samples // (2 * w1.w1_pairs)))
    needed = 2 * w1.w1_pairs * points
    if "w1" in metrics:
        if needed > sampling.samples:
            metrics = tuple(name for name in metrics if name != "w1")
            notes.append(f"no W1: its floor needs {needed} samples, there are {sampling.samples}")
        elif points < w1.w1_points and is_given:
            notes.append(f"W1 on {points} points a side: {sampling.samples} samples give no floor for more")
    experiment = OwnNetExperiment(
        name=NAME,
        description=f"rules on {net.architecture.label}",
        metrics=(*metrics, Operations.name),
        sigmas=tuple(dict.fromkeys(sigmas)),
        rules=COMPARED_RULES,
        paper=Size(1, len(net.inputs)),
    )
    experiment.check_noise(net.architecture.event, settings, len(net.inputs))
    design = replace(settings.design, nets=None, inputs=None, depths=None)
    options = {**settings.metrics, "w1_points": points}
    return experiment, replace(settings, design=design, sampling=sampling, metrics=options), notes
