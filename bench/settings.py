"""Every choice of a run as data: what the paper leaves open, and what a preset fixes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from bench.errors import UserError
from bench.networks import Architecture
from bench.training import Recipe

SAMPLERS = ("mc", "sobol")
BIN_RANGES = ("quantiles", "minmax")
FLOWERS = 150
NET_SOURCES = ("trained", "committed")


@dataclass(frozen=True)
class Settings:
    """What a run measures and how.

    Attributes
    ----------
    activation, depths, width
        The nets: hidden layers of each, 4 inputs and 3 outputs.
    nets : int
        Nets an architecture, seeds 0, 1, ...
    net_source : {"trained", "committed"}
    inputs : int
        Iris flowers propagated through each net, in a fixed stratified order.
    w1_inputs : int
        How many of them, at most, the W1 suite uses.
    samples : int
        Of each oracle, and of each prediction.
    pilot_samples : int
        Of the independent draw that fixes bins and cells (at most `samples` are drawn).
    sampler : {"mc", "sobol"}
    bins, bin_range
        Paper-like histogram: bins an axis, and what they span ("quantiles" of the pilot from
        .05 % to 99.95 % with outer cells beyond, or its literal "minmax").
    cells : int
        Equal-mass cells of the headline total variation.
    difference_bins : int
        Bins of each pairwise score difference.
    w1_points : int
        Points a side of W1.
    w1_pairs : int
        Oracle-oracle pairs behind its floor.
    sigmas, rules : tuple, optional
        Instead of each suite's own.
    device : str
    recipe : Recipe
    """

    activation: str = "relu"
    depths: tuple[int, ...] = (1, 2, 4)
    width: int = 100
    nets: int = 10
    net_source: str = "trained"
    inputs: int = 10
    w1_inputs: int = 10
    samples: int = 10**6
    pilot_samples: int = 2**17
    sampler: Literal["mc", "sobol"] = "mc"
    bins: int = 10
    bin_range: Literal["quantiles", "minmax"] = "quantiles"
    cells: int = 512
    difference_bins: int = 100
    w1_points: int = 2000
    w1_pairs: int = 8
    sigmas: tuple[float, ...] | None = None
    rules: tuple[str, ...] | None = None
    device: str = "cpu"
    recipe: Recipe = field(default_factory=Recipe)

    def __post_init__(self) -> None:
        for name in ("nets", "inputs", "w1_inputs", "bins", "difference_bins", "w1_pairs", "width"):
            _require(getattr(self, name) >= 1, f"{name} must be positive, got {getattr(self, name)}")
        _require(bool(self.depths) and min(self.depths) >= 1, f"depths must be positive, got {self.depths}")
        for name in ("samples", "pilot_samples", "w1_points"):
            _require(getattr(self, name) >= 100, f"{name} must be at least 100, got {getattr(self, name)}")
        _require(self.inputs <= FLOWERS, f"inputs must be between 1 and {FLOWERS}, got {self.inputs}")
        cells = self.cells
        _require(cells >= 2 and cells & (cells - 1) == 0, f"cells must be a power of two >= 2, got {cells}")
        _one_of("sampler", self.sampler, SAMPLERS)
        _one_of("bin range", self.bin_range, BIN_RANGES)
        _one_of("net source", self.net_source, NET_SOURCES)
        for sigma in self.sigmas or ():
            _require(sigma > 0 and math.isfinite(sigma), f"sigma must be positive and finite, got {sigma}")
        object.__setattr__(self, "depths", tuple(dict.fromkeys(self.depths)))
        if self.sigmas is not None:
            object.__setattr__(self, "sigmas", tuple(dict.fromkeys(self.sigmas)))
        self.architectures()

    def check_w1(self) -> None:
        """Raise a UserError if there are too few samples for W1 and its floor."""
        need = 2 * self.w1_pairs * self.w1_points
        _require(
            self.samples >= need,
            f"W1 with {self.w1_pairs} floor pairs of {self.w1_points} points needs at least {need} samples, "
            f"got {self.samples}; lower --w1-points",
        )

    def architectures(self) -> list[Architecture]:
        """One for each depth."""
        try:
            return [Architecture(depth, self.activation, self.width) for depth in self.depths]
        except ValueError as error:
            raise UserError(str(error)) from error

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
        w1_inputs=1,
        samples=2**16,
        pilot_samples=2**15,
        w1_points=400,
        cells=128,
    ),
    "quick": Settings(nets=2, inputs=2, w1_inputs=1, w1_points=1000),
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
    base = PRESETS[name]
    recipe_options = {f.name for f in fields(Recipe)}
    try:
        recipe = replace(base.recipe, **{k: v for k, v in overrides.items() if k in recipe_options})
    except ValueError as error:
        raise UserError(str(error)) from error
    own = {k: v for k, v in overrides.items() if k not in recipe_options}
    return replace(base, **own, recipe=recipe)
