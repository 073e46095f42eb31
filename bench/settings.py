"""Every choice of a run as data: what the paper leaves open, and what a preset fixes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.metrics.references import Reference
from sdp_bench.bench.nets.fully_connected import Recipe
from sdp_bench.bench.plugins.plugin import Plugin
from sdp_bench.bench.plugins.rules import resolve, rule_of
from sdp_bench.bench.sampling import Sampler, Sampling
from sdp_ref.activations import ACTIVATIONS
from sdp_ref.rules import Propagator

METRIC_OPTIONS = (
    "pilot_samples",
    "bins",
    "bin_range",
    "cells",
    "difference_bins",
    "output_bins",
    "margin_bins",
    "w1_points",
    "w1_pairs",
    "certified_points",
)
NET_SOURCES = ("trained", "committed")


@dataclass(frozen=True)
class Settings:
    """What a run measures and how.

    Attributes
    ----------
    activation : str, optional
    depths : tuple of int, optional
        Activation and hidden layers of the nets, instead of each suite's own.
    width : int
        Units of a hidden layer; the nets have 4 inputs and 3 outputs.
    nets, inputs : int, optional
        Nets an architecture (seeds 0, 1, ...) and inputs a net, flowers or images, instead of `sizes`.
    sizes : mapping of str to (int, int)
        The same by suite; a suite that is not in it takes its own, the paper's.
    draws : mapping of str to int
        Samples by suite (images, of a task with images); a suite that is not in it takes its own number,
        or `samples`, if that is less.
    samples_everywhere : bool
        Whether every suite takes `samples`, whatever its own number is.
    task_epochs, task_datasets : mapping of str
        Epochs of training and data sets of a task; one that is not in it takes its own, the paper's.
    datasets : tuple of str, optional
        Instead of a task's own.
    without : tuple of str
        Tasks that are left out where all are asked for: they need data, or time.
    net_source : {"trained", "committed"}
    training : mapping of str to value
        Fields of `Recipe` that replace those of each architecture's own recipe
        (:mod:`sdp_bench.bench.nets.recipes`). A suite about recipes keeps its own, but for `epochs`.
    slow_rules : bool
        Whether rules run where one propagation takes a second or more.
    samples : int
        Of each oracle, and of each prediction.
    pilot_samples : int
        Of the independent draw that fixes bins and cells (at most `samples` are drawn).
    sampler : {"mc", "sobol"}
    bins, bin_range
        Paper-like histogram: bins an axis, and what they span ("quantiles" of the pilot from
        .05 % to 99.95 % with outer cells beyond, its literal "minmax", or the "joint" extremes of
        all samples of oracle and rule).
    cells : int
        Equal-mass cells of the headline total variation.
    difference_bins : int
        Bins of each pairwise score difference.
    output_bins : int
        Equal-mass bins of each output by itself.
    margin_bins : int
        Equal-mass bins of margins, pairs and slices of many logits, of which there are fewer samples.
    w1_points : int
        Points a side of W1.
    w1_pairs : int
        Oracle-oracle pairs behind its floor.
    certified_points : int
        Points a side of the certified W1.
    sigmas, rules : tuple, optional
        Instead of each suite's own; a sigma is the scale of whatever noise a suite has.
    plugins : tuple of Plugin
        Those of `rules` that are not built in, with their code.
    device : str
    """

    activation: str | None = None
    depths: tuple[int, ...] | None = None
    width: int = 100
    nets: int | None = None
    inputs: int | None = None
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    draws: Mapping[str, int] = field(default_factory=dict)
    samples_everywhere: bool = False
    task_epochs: Mapping[str, int] = field(default_factory=dict)
    task_datasets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    datasets: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    net_source: str = "trained"
    training: Mapping[str, Any] = field(default_factory=dict)
    slow_rules: bool = True
    samples: int = 10**6
    pilot_samples: int = 2**17
    sampler: Sampler = "mc"
    bins: int = 10
    bin_range: str = "quantiles"
    cells: int = 512
    difference_bins: int = 100
    output_bins: int = 100
    margin_bins: int = 30
    w1_points: int = 2000
    w1_pairs: int = 8
    certified_points: int = 30_000
    sigmas: tuple[float, ...] | None = None
    rules: tuple[str, ...] | None = None
    plugins: tuple[Plugin, ...] = ()
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("nets", "inputs", "width"):
            value = getattr(self, name)
            _require(value is None or value >= 1, f"{name} must be positive, got {value}")
        _ = self.sampling  # which checks its values
        try:
            replace(Recipe(), **self.training)
        except ValueError as error:
            raise UserError(str(error)) from error
        _require(
            self.depths is None or (bool(self.depths) and min(self.depths) >= 1),
            f"depths must be positive, got {self.depths}",
        )
        if self.activation is not None:
            _one_of("activation", self.activation, tuple(ACTIVATIONS))
        _one_of("net source", self.net_source, NET_SOURCES)
        for sigma in self.sigmas or ():
            _require(sigma > 0 and math.isfinite(sigma), f"sigma must be positive and finite, got {sigma}")
        if self.depths is not None:
            object.__setattr__(self, "depths", tuple(dict.fromkeys(self.depths)))
        if self.sigmas is not None:
            object.__setattr__(self, "sigmas", tuple(dict.fromkeys(self.sigmas)))
        object.__setattr__(self, "sizes", {k: (int(n), int(i)) for k, (n, i) in self.sizes.items()})
        object.__setattr__(self, "task_datasets", {k: tuple(v) for k, v in self.task_datasets.items()})

    @property
    def sampling(self) -> Sampling:
        """How oracles are drawn."""
        return Sampling(self.samples, self.pilot_samples, self.sampler, self.device)

    @property
    def metric_options(self) -> dict[str, Any]:
        """Options of metrics, where these do not fix them themselves."""
        return {name: getattr(self, name) for name in METRIC_OPTIONS}

    def rule(self, spec: str) -> Propagator | Reference:
        """Rule of a spec, built in or among `plugins`, or what stands in the place of one."""
        return rule_of(spec, self.plugins)

    def as_dict(self) -> dict[str, Any]:
        """As plain values, for the record of a run."""
        return asdict(self)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise UserError(message)


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    _require(value in choices, f"unknown {name} '{value}'; choose from {', '.join(choices)}")


PRESETS: dict[str, Settings] = {
    "smoke": Settings(
        nets=1,
        net_source="committed",
        inputs=1,
        slow_rules=False,
        samples=2**16,
        pilot_samples=2**15,
        w1_points=400,
        certified_points=1000,
        cells=128,
        task_epochs={"uci": 20},
        task_datasets={"uci": ("yacht",)},
        without=("uci", "selective"),
    ),
    "quick": Settings(
        sizes={
            "iris-tv": (2, 1),
            "iris-std": (2, 1),
            "iris-tv-deep": (1, 1),
            "iris-tv-activations": (1, 1),
            "iris-w1": (2, 1),
            "iris-w1-certified": (1, 1),
            "iris-claims": (4, 1),
            "iris-claims-w1": (3, 1),
            "iris-claims-recipe": (4, 1),
            "iris-sensitivity": (1, 1),
            "iris-oracle": (1, 1),
            "iris-oracle-10x": (1, 1),
            "iris-cauchy": (2, 1),
            "resnet-tv": (1, 4),
            "uci": (3, 1),
            "selective": (1, 1),
        },
        task_epochs={"uci": 500, "selective": 2},
        task_datasets={"uci": ("yacht", "boston")},
        draws={"resnet-tv": 500, "selective": 10_000},
        slow_rules=False,
        w1_points=1000,
        certified_points=3000,
    ),
    "paper": Settings(),
}
"""Presets change counts, never code paths."""


def preset(name: str, overrides: Mapping[str, Any]) -> Settings:
    """Settings of a preset with some of them replaced (recipe options by their own names).

    Raises
    ------
    UserError
        If there is no such preset, or a value is out of its range.
    """
    if name not in PRESETS:
        raise UserError(f"unknown preset '{name}'; choose from {', '.join(PRESETS)}")
    from sdp_bench.bench import metrics  # which loads all that measures

    options = {f.name for f in fields(Recipe)}
    training = {k: v for k, v in overrides.items() if k in options}
    own = {k: v for k, v in overrides.items() if k not in options}
    own["samples_everywhere"] = "samples" in own
    if own.get("rules"):
        own["rules"], own["plugins"] = resolve(own["rules"])
    settings = replace(PRESETS[name], **own, training={**PRESETS[name].training, **training})
    metrics.check(settings.metric_options)
    return settings
