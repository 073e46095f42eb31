"""The options of a run as data: nets, inputs, noise, sampling, and options of metrics.

Each part goes to its consumer: an oracle gets a `Sampling`, a metric its own options, an experiment the
design and its size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

from sdp_ref.activations import ACTIVATIONS
from sdp_ref.rules import Propagator

from . import metrics
from .errors import UserError
from .identity import Sampling
from .metrics.references import Reference
from .nets.recipes import Recipe
from .noise import Noise, from_plain, noise_of, to_plain
from .plugins.plugin import Plugin
from .rules import rule_of

NET_SOURCES = ("trained", "committed")


@dataclass(frozen=True)
class Size:
    """The size of an experiment. A value of None means that the experiment's own design decides.

    `nets`: nets per architecture (seeds 0, 1, ...), or seeds. `inputs`: inputs per net: flowers or images.
    `samples`: samples of an oracle, if `Sampling` does not have fewer; images, for an experiment without an
    oracle. `epochs`: training epochs. `on_request`: whether a run of all experiments skips it, because it
    needs data or time. `depths`: hidden layers of the nets to measure; all by default. `sigmas`: noise
    scales, for an experiment that trains a net for each. `steps`: steps of a gradient attack.
    """

    nets: int | None = None
    inputs: int | None = None
    samples: int | None = None
    epochs: int | None = None
    datasets: tuple[str, ...] | None = None
    on_request: bool = False
    depths: tuple[int, ...] | None = None
    sigmas: tuple[float, ...] | None = None
    steps: int | None = None


_LATER = ("sigmas", "steps")
"""Fields of `Size` that older runs do not have."""


@dataclass(frozen=True)
class Design:
    """Overrides of the designs of all experiments. A value of None keeps an experiment's own.

    `depths`: activation and hidden layers of the nets. `width`: units per hidden layer. `nets`, `inputs`,
    `samples`: as in `Size`. `sigmas`: scales of the noise, in the units of the net's input. `noise`: replaces
    each experiment's noise; ``sdp_bench.bench.noise.noise_of`` parses the text. `training`: fields of
    `Recipe` that replace those of each architecture's recipe (`sdp_bench.bench.nets.recipes`). An experiment
    about recipes accepts only `epochs`.
    """

    activation: str | None = None
    depths: tuple[int, ...] | None = None
    width: int | None = None
    nets: int | None = None
    inputs: int | None = None
    samples: int | None = None
    sigmas: tuple[float, ...] | None = None
    noise: Noise | None = None
    datasets: tuple[str, ...] | None = None
    net_source: str = "trained"
    training: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("nets", "inputs", "width"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise UserError(f"{name} must be positive, got {number}")
        if self.depths is not None and min(self.depths, default=0) < 1:
            raise UserError(f"depths must be positive, got {self.depths}")
        try:
            replace(Recipe(), **self.training)
        except ValueError as error:
            raise UserError(str(error)) from error
        if self.activation and self.activation not in ACTIVATIONS:
            raise UserError(f"unknown activation '{self.activation}'; choose from {', '.join(ACTIVATIONS)}")
        if self.net_source not in NET_SOURCES:
            raise UserError(f"unknown net source '{self.net_source}'; choose from {', '.join(NET_SOURCES)}")
        for sigma in self.sigmas or ():
            if not 0 < sigma < math.inf:
                raise UserError(f"sigma must be positive and finite, got {sigma}")
        if isinstance(self.noise, str):
            object.__setattr__(self, "noise", noise_of(self.noise))
        if self.sigmas is None and self.noise is not None and self.noise.values is not None:
            object.__setattr__(self, "sigmas", (1.0,))  # its numbers are in the units of the inputs
        for name in ("depths", "sigmas", "datasets"):
            if (values := getattr(self, name)) is not None:
                object.__setattr__(self, name, tuple(dict.fromkeys(values)))


@dataclass(frozen=True)
class Settings:
    """What a run measures, and how.

    `metrics`: options that replace defaults, for every metric that has such an option and does not fix it
    itself. `sizes`: sizes by experiment; others have their own size, the paper's. `rules`: replaces each
    experiment's rules. `plugins`: those of `rules` that are not built in, with their code. `slow_rules`:
    whether rules run even if one propagation takes a second or more.
    """

    design: Design = field(default_factory=Design)
    sampling: Sampling = field(default_factory=Sampling)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, Size] = field(default_factory=dict)
    rules: tuple[str, ...] | None = None
    plugins: tuple[Plugin, ...] = ()
    slow_rules: bool = True

    @property
    def metric_options(self) -> dict[str, Any]:
        """Options of metrics, for metrics that do not fix them."""
        return {"pilot_samples": self.sampling.pilot_samples, **self.metrics}

    def rule(self, spec: str) -> Propagator | Reference:
        """Return the rule or reference of a spec, built in or among `plugins`."""
        return rule_of(spec, self.plugins)

    def but(self, **options: Any) -> Self:
        """Return settings with some options replaced.

        `options` may be fields of these settings, of the design, of the sampling and of `Recipe`, and options
        of metrics. `samples` also replaces every experiment's own number. A value out of range raises a
        UserError, an unknown option a TypeError.
        """
        direct = _fields_of(self, options)
        design = _fields_of(self.design, options)
        sampling = _fields_of(self.sampling, options)
        training = _fields_of(Recipe(), options)
        of_metrics = dict(options)
        for name in (*direct, *design, *sampling, *training):
            of_metrics.pop(name, None)
        if training:
            design["training"] = {**design.get("training", self.design.training), **training}
        if of_metrics:  # looking up options imports every metric
            if unknown := of_metrics.keys() - metrics.options():
                raise TypeError(f"no such settings: {', '.join(sorted(unknown))}")
            metrics.check(of_metrics)
        changed: dict[str, Any] = {
            "design": replace(self.design, **design),
            "sampling": replace(self.sampling, **sampling),
            "metrics": {**self.metrics, **of_metrics},
        }
        return replace(self, **changed | direct)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for the record of a run."""
        design = asdict(replace(self.design, noise=None))
        del design["noise"]  # which older runs do not have either
        if self.design.noise:
            design["noise"] = to_plain(self.design.noise)
        sizes = {}
        for experiment, size in self.sizes.items():
            values = asdict(size)
            for name in _LATER:
                if values[name] is None:
                    del values[name]
            sizes[experiment] = values
        plugins = [plugin.as_json() for plugin in self.plugins]
        return asdict(self) | {"design": design, "sizes": sizes, "plugins": plugins}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Settings:
        """Inverse of `as_dict`, after JSON; also reads the flat form of version 0.4."""
        if "design" not in values:
            return _from_flat(values)
        plain = {name: value for name, value in values.items() if name in _names(cls())}
        noise = plain["design"].get("noise")
        return cls(
            **{
                **plain,
                "design": Design(**tuples(plain["design"]) | {"noise": noise and from_plain(noise)}),
                "sampling": Sampling(**plain["sampling"]),
                "sizes": {name: Size(**tuples(size)) for name, size in plain["sizes"].items()},
                "rules": tuples(plain)["rules"],
                "plugins": tuple(map(Plugin.from_json, plain["plugins"])),
            }
        )


def _from_flat(values: Mapping[str, Any]) -> Settings:
    """Read settings of versions before 0.5, with all options in one mapping."""
    rest = tuples(values)
    by_name: dict[str, dict[str, Any]] = {}
    for name, (nets, inputs) in rest.pop("sizes", {}).items():
        by_name[name] = {"nets": nets, "inputs": inputs}
    for old, new in (("draws", "samples"), ("task_epochs", "epochs"), ("task_datasets", "datasets")):
        for name, value in tuples(rest.pop(old, {})).items():
            by_name.setdefault(name, {})[new] = value
    rest.pop("without", None)
    rest["sizes"] = {name: Size(**size) for name, size in by_name.items()}
    rest["plugins"] = tuple(map(Plugin.from_json, rest.get("plugins", ())))
    everywhere = rest.pop("samples_everywhere", False)
    settings = Settings().but(**rest)
    if everywhere:
        return settings
    return replace(settings, design=replace(settings.design, samples=None))


def _fields_of(part: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those options that are fields of one part of the settings."""
    return {name: value for name, value in options.items() if name in _names(part)}


def _names(part: Any) -> frozenset[str]:
    return frozenset(item.name for item in fields(part))


def tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as before JSON, which has lists for tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
