"""Statements of the paper on its simulations: Iris by noise, depth and kind of rule, and ResNet-18."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...bench.experiments.classifiers import RESNET
from ...bench.metrics import recorded_metric
from ...bench.nets.architectures import NETWORKS
from ..paper import RESNETS
from ..sections.oracle import ONCE, TENFOLD
from ..statement import Answer, Convention, Effect, Evidence, Rule, finite, paired
from ..style import labels
from ..tables.frame import by_kind
from .claims import CONVENTIONS, TV_MARGIN

_SIGMAS = (0.1, 1.0, 10.0, 100.0, 1000.0)
_LAYERWISE = {
    "moment_matching": "moment matching",
    "dvia": "DVIA",
    "dvia:means=regular_covariance": "DVIA*",
    "sdp": "SDP",
    "marginal_moment_matching": "marginal moment matching",
    "marginal_sdp": "marginal SDP",
}
"""Rules whose errors may add up over layers."""
_FIRST, _LAST = (1, 4), (4, 6)
"""Depths between which errors grow."""
_POOR = 0.05
"""Share of inputs from which predictions are "poor"."""


def _slopes(frame: pd.DataFrame) -> NDArray[np.float64]:
    """Growth of a value per doubling of the depth (columns), by seed (rows) with at least two depths."""
    x = np.log2(frame.columns.to_numpy(float))
    rows = [(row, np.isfinite(row)) for row in frame.to_numpy(float)]
    slopes = [np.polyfit(x[known], row[known], 1)[0] for row, known in rows if known.sum() > 1]
    return np.array(slopes, dtype=float)


def _by_noise(
    cases: Mapping[str, Callable[[float], Effect | None]], depths: Iterable[float], paper: str, address: str
) -> Answer | None:
    """Trials with an effect at each noise level; a case that lacks some levels is not measured."""
    trials: dict[Convention, list[Effect]] = {}
    lacking: dict[Convention, str] = {}
    for name, effect_at in cases.items():
        effects = {sigma: effect_at(sigma) for sigma in _SIGMAS}
        absent = [f"{sigma:g}" for sigma, effect in effects.items() if effect is None]
        if 0 < len(absent) < len(effects):
            lacking[name,] = f"lacks σ = {', '.join(absent)}"
        else:
            trials[name,] = [effect for effect in effects.values() if effect]
    return Answer.of(trials, "seed", f"nets of {labels.layers(depths)}{paper}", address, lacking)


def _lead_by_depth(evidence: Evidence) -> Answer | None:
    """Growth with depth of SDP's lead over DVIA in 1 - TV, by convention and noise."""
    parts = [own for name in ("iris-tv", "iris-tv-deep") if len(own := evidence.of(name))]
    if not parts:
        return None
    frame = pd.concat(parts)
    frame = frame[frame["rule"].isin(("sdp", evidence.dvia))]
    conventions = by_kind(frame["metric_spec"], lambda spec: recorded_metric(spec).convention)

    def lead(name: str, sigma: float) -> Effect | None:
        own = frame[(conventions == name).to_numpy() & (frame["sigma"] == sigma).to_numpy()]
        means = paired(own, ("seed", "depth"))
        if means.shape[1] < 2:
            return None
        # TV is smaller for better rules.
        slopes = _slopes((means[evidence.dvia] - means["sdp"]).unstack("depth"))
        return Effect(f"growth of SDP’s lead in 1 − TV a doubling of depth, σ = {sigma:g}", slopes)

    cases = {name: partial(lead, name) for name in CONVENTIONS}
    return _by_noise(cases, frame["depth"], "; the paper: 1 to 24", "#iris-tv")


def _decay(evidence: Evidence) -> Answer | None:
    """Decrease with depth of the standard deviations of marginal rules, relative to the true ones."""
    frame = evidence.of("iris-std", metric="std_ratio", rule="marginal_sdp")
    effects = []
    for sigma in _SIGMAS:
        own = frame[frame["sigma"] == sigma]
        means = np.log(own["value"]).groupby([own["seed"], own["depth"]]).mean()
        words = f"factor of marginal SDP’s sd over the true one a doubling of depth, σ = {sigma:g}"
        effects.append(Effect(words, -_slopes(means.unstack("depth")), shown=lambda x: math.exp(-x)))
    return Answer.of({(): effects}, "seed", f"nets of {labels.layers(frame['depth'])}", "#iris-std")


def _accumulate(evidence: Evidence) -> Answer | None:
    """Whether deep layers add as much to the logarithm of a rule's error factor as the first ones."""
    frame = evidence.of("iris-std", metric="std_ratio")
    if frame.empty:
        return None

    def growth(rule: str, label: str, sigma: float) -> Effect | None:
        own = frame[(frame["rule"] == rule) & (frame["sigma"] == sigma)]
        means = np.log(own["value"]).abs().groupby([own["seed"], own["depth"]]).mean().unstack("depth")
        if not set(_FIRST + _LAST) <= set(means.columns):
            return None
        first, last = _slope(means, *_FIRST), _slope(means, *_LAST)
        return Effect(
            f"growth of |log ratio| a layer from {_LAST[0]} to {_LAST[1]} less half of that from "
            f"{_FIRST[0]} to {_FIRST[1]}, {label}, σ = {sigma:g}",
            finite(last - first / 2),
        )

    cases = {label: partial(growth, rule, label) for rule, label in _LAYERWISE.items()}
    return _by_noise(cases, frame["depth"], "", "#iris-std")


def _slope(means: pd.DataFrame, low: int, high: int) -> pd.Series:
    """Mean change a layer between two depths, which are columns."""
    return (means[high] - means[low]) / (high - low)


def _tenfold(evidence: Evidence) -> Answer | None:
    """Change of a rule's total variation with ten times the oracle's samples."""
    keys = ["net", "input", "sigma", "rule", "metric_spec"]

    def values(name: str) -> pd.Series:
        own, metrics = evidence.of(name), ("tv_paper", "tv_headline", "tv_class")
        own = own[own["metric"].isin(metrics) & (own["rule"] != "oracle_again")]
        return own.set_index(keys)["value"]

    once, tenfold = values(ONCE), values(TENFOLD)
    moved = (tenfold - once).dropna().abs()
    if moved.empty:
        return None
    return Answer.certain(
        holds=bool(moved.max() <= TV_MARGIN),
        finding=f"with 10⁷ samples in place of 10⁶ TV moves by {labels.number(float(moved.max()), 4)} at "
        f"most, {labels.number(float(np.sqrt((moved**2).mean())), 4)} in the root mean square "
        f"({len(moved)} cells); “very similar” is {TV_MARGIN:g} or less here",
        fidelity=f"{labels.plural(len(once.index.unique('net')), 'net')}, quantile bins",
        address="#oracle",
    )


def _resolution(evidence: Evidence) -> Answer | None:
    """Whether twenty bins per axis give the same as ten, within the margin."""
    frame = evidence.of("iris-sensitivity")
    if frame.empty:
        return None
    specs = {spec: recorded_metric(str(spec)) for spec in frame["metric_spec"].unique()}
    chosen = {
        getattr(metric, "bins", 0): spec
        for spec, metric in specs.items()
        if metric.name == "tv_paper" and getattr(metric, "bin_range", "") == "quantiles"
    }
    keys = ["rule", "sigma", "net"]
    means = {
        bins: frame[frame["metric_spec"] == chosen.get(bins, "")].groupby(keys, observed=True)["value"].mean()
        for bins in (10, 20)
    }
    moved = (means[20] - means[10]).dropna().abs().groupby("net").mean()
    words = "change of 1 − TV with 20 bins an axis for 10, mean size over rules and σ"
    effect = Effect(words, -moved.to_numpy(float), -TV_MARGIN, lambda effect: -effect)
    fidelity = "nets of five recipes, quantile bins; the paper does not state the range of its own"
    return Answer.of({(): [effect]}, "net", fidelity, "#sensitivity")


def _pretrained(evidence: Evidence) -> Answer | None:
    """Share of inputs that moment matching assigns to another class than the plain pass."""
    frame = evidence.of("iris-location", metric="moved_class")
    trials: dict[Convention, list[Effect]] = {}
    for name in ("marginal_moment_matching", "moment_matching"):
        own = frame[frame["rule"] == name]
        for sigma in _SIGMAS:
            moved = own[own["sigma"] == sigma].groupby("net", observed=True)["value"].mean()
            if len(moved):
                label = f"{_LAYERWISE[name]} at σ = {sigma:g}"
                share = moved.to_numpy(float)
                trials[label,] = [Effect("share of inputs put into another class", share, _POOR)]
    if not trials:
        return None
    design = f"nets of {labels.layers(frame['depth'])}, trained without noise"
    for name, label in (("sdp", "SDP moves"), ("monte_carlo:samples=100", "estimates from 100 samples move")):
        values = frame["value"][frame["rule"] == name]
        if len(values):
            design += f"; over all σ {label} {100 * values.mean():.3g} % of inputs"
    return Answer.of(trials, "net", design, "#iris-location")


IMAGES = 500
"""Images in the paper. Fewer are a demonstration: the TV varies over images by more than its mean."""
_RIVALS = ("marginal_sdp", "marginal_moment_matching")


def _reduces(evidence: Evidence) -> Answer | None:
    """The net with the most noise levels is judged; of several, one with max-pool, like the paper's."""
    frame = evidence.of(RESNET.name, metric="tv_class")
    levels = frame.groupby("activation", observed=True)["sigma"].nunique()
    if levels.empty:
        return None
    network = max(levels.index, key=lambda each: (levels[each], -RESNETS.index(each)))
    net = frame[frame["activation"] == network]
    effects = []
    for sigma, own in net.groupby("sigma"):
        means = paired(own, ("net", "input"))
        for other in _RIVALS:
            if {"sdp", other} <= set(means):
                name = f"TV of {evidence.results.traits.label(other)} less that of SDP, σ = {sigma:g}"
                effects.append(Effect(name, finite(means[other] - means["sdp"])))
    images, samples = int(net["input"].nunique()), int(net["samples"].max())
    ours = f"one {NETWORKS[network].title}, {labels.plural(images, 'image')}, {samples:,} oracle samples"
    said = f"{'a demonstration: ' if images < IMAGES else ''}{ours}; the paper: {IMAGES} images, 5,000"
    return Answer.of({(): effects}, "image", said, "#resnet-tv")


RULES: Mapping[str, Rule] = {
    "depth": _lead_by_depth,
    "decay": _decay,
    "accumulate": _accumulate,
    "pretrained": _pretrained,
    "tenfold": _tenfold,
    "bins": _resolution,
    "resnet": _reduces,
}
