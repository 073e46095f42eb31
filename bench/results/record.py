"""Records of measurements, what they refer to, and the possible ranges of their numbers."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from sdp_ref.errors import on_one_line

from ..errors import NOT_DEFINED
from ..text import public

Cell = tuple[str, str, str]
"""Key of a measurement: key of the unit, rule, metric."""


@dataclass(frozen=True)
class StoredNet:
    """A net.

    `digest` is the hash of architecture and weights, `network` names the layers, and `activation` the
    non-linearity, or the net if it is one of a kind. `depth` counts hidden layers, and `seed` is that of the
    training. `accuracy` is that of the training, if it was measured. `recipe` describes the training as plain
    values, and `recipe_label` in few words. `source` says where the net came from. `weights` is a file from
    which the net can be built.
    """

    digest: str
    network: str
    activation: str
    depth: int
    seed: int
    accuracy: float | None
    recipe: Mapping[str, Any]
    recipe_label: str
    source: str
    weights: bytes | None = field(default=None, repr=False)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Make it from a row of the table."""
        return cls(**{**row, "recipe": _mapping(row["recipe"])})


@dataclass(frozen=True)
class Unit:
    """What rules are measured on: an input of a net under noise, or a data set with a seed.

    `key` is a hash of everything that determines the numbers besides rule, metric and code; all seeds derive
    from it. With an oracle, `net` is the digest of the net, `input` the row of its data set, `noise` the
    family of the input's distribution (``gaussian``), `sigma` its scale in units of the net's input, and
    `sampler` (``mc`` or ``sobol``) draws `samples`. Without one, `dataset` and `objective` say what is
    trained, and `design` the rest, for readers. `seed` is that of the replicate.
    """

    key: str
    net: str | None = None
    input: int | None = None
    noise: str | None = None
    sigma: float | None = None
    sampler: str | None = None
    samples: int | None = None
    dataset: str | None = None
    objective: str | None = None
    seed: int | None = None
    design: str | None = None


@dataclass(frozen=True)
class Record:
    """One measurement.

    `unit` is the key of a :class:`Unit`; `rule` and `metric` are specs with all parameters. `component` names
    an output or a pair of classes, say, if a metric has several numbers. `floor`, `floor95` and `stderr` are
    those of :class:`sdp_bench.oracles.estimate.estimate.Estimate`, if known. `unit_of_measure` is "1" for
    pure numbers and "output" for units of the net's output. `seconds` is the rule's own time for one input.
    `fingerprint` holds the versions that the number rests on, ``rule 1, metric 1, oracle 1``; the driver of a
    run sets it. `precision` of the oracle is ``float32`` or ``float64``; None without an oracle, and in
    results before version 0.7.
    """

    unit: str
    rule: str
    metric: str
    component: str | None
    value: float
    floor: float | None
    floor95: float | None
    stderr: float | None
    unit_of_measure: str
    seconds: float | None
    fingerprint: str | None = None
    precision: str | None = None

    @property
    def cell(self) -> Cell:
        return self.unit, self.rule, self.metric


@dataclass(frozen=True)
class Failure:
    """What could not be measured on a unit; the next run tries it again.

    `rule` and `metric` are specs, None if all of them failed. `seconds` is the time until the failure.
    """

    unit: str
    rule: str | None
    metric: str | None
    error: str
    seconds: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "error", public(on_one_line(self.error)))

    @property
    def refused(self) -> bool:
        """Whether the metric is undefined for the predicted distribution, which is not an error."""
        return self.error.startswith(NOT_DEFINED)


@dataclass(frozen=True)
class LeftOut:
    """What a run did not try, and why.

    `rule` is a spec, None for a whole experiment. `where` names the nets, noise or experiment.
    """

    rule: str | None
    where: str
    reason: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", public(on_one_line(self.reason)))


@dataclass(frozen=True)
class Selection:
    """Specs of the metrics and rules that a run requested of one experiment."""

    metrics: tuple[str, ...]
    rules: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RunDescription:
    """What a run is about to do.

    `command` and `preset` are as the user gave them. `environment` holds processor, versions and commit.
    """

    command: str
    preset: str
    settings: Mapping[str, Any]
    experiments: Mapping[str, Selection]
    left_out: tuple[LeftOut, ...]
    environment: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Run(RunDescription):
    """A stored run, with its number in the file.

    `started` and `finished` are ISO 8601 in UTC; an interrupted run is not finished.
    """

    id: int
    started: str
    finished: str | None
    seconds: float | None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Make it from a row of the table."""
        selections = {
            name: Selection(_texts(part["metrics"]), _texts(part["rules"]))
            for name, part in _mapping(row["experiments"]).items()
        }
        nested = {name: _mapping(row[name]) for name in ("settings", "environment")}
        left_out = tuple(LeftOut(**line) for line in json.loads(row["left_out"]))
        return cls(**{**row, **nested, "experiments": selections, "left_out": left_out})


def _mapping(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"expected a mapping, got {text[:20]!r}")
    return found


def _texts(found: Any) -> tuple[str, ...]:
    if not (isinstance(found, list) and all(isinstance(text, str) for text in found)):
        raise ValueError("expected a list of strings")
    return tuple(found)


def same_number(a: float, b: float, stderr: float | None = None) -> bool:
    """Whether two values differ by no more than rounding, or by a hundredth of their standard error.

    A rule gets the inputs of its group as one batch, and batches of other sizes round differently. This shows
    where a number is a small difference of large ones, or a sample lies at the edge of a cell.
    """
    noise = 0.0 if stderr is None or math.isnan(stderr) else stderr / 100
    return a == b or math.isclose(a, b, rel_tol=1e-9, abs_tol=max(1e-12, noise))


_ROUNDING = 1e-9
_LARGEST = sys.float_info.max


class Range(NamedTuple):
    """Smallest and largest possible number; by default any finite one."""

    low: float = -_LARGEST
    high: float = _LARGEST


_SHARE = Range(-_ROUNDING, 1 + _ROUNDING)
_SIZE = Range(-_ROUNDING)
_RATIO = Range(-_ROUNDING, math.inf)

_RANGES = {
    **dict.fromkeys(("tv_headline", "tv_principal", "tv_paper", "tv_joint", "tv_output"), _SHARE),
    **dict.fromkeys(("tv_class", "tv_difference", "tv_margin", "tv_pairs", "tv_sliced"), _SHARE),
    **dict.fromkeys(("accuracy", "risk", "rcauc", "picp", "validation_picp"), _SHARE),
    **dict.fromkeys(("w1", "w1_certified", "w1_sliced", "bures", "bures_logits"), _SIZE),
    **dict.fromkeys(("mpiw", "validation_mpiw", "qualified"), _SIZE),
    **dict.fromkeys(("input_variance", "learning_rate", "weight_decay"), _SIZE),
    **dict.fromkeys(("std_ratio", "iqr_ratio", "gaussian_kl", "quantile_mean", "quantile_max"), _RATIO),
    **dict.fromkeys(("interval_width", "tails"), _RATIO),
    "crps": _SIZE,
    "coverage": Range(-_ROUNDING, 2.0),  # the level, and what an exact rule with few samples may miss it by
    "log_score": Range(high=math.inf),
    "min_eigenvalue": Range(high=1 + _ROUNDING),
}
_ANY = Range()


def limits(metric: str) -> tuple[Range, Range, Range, Range]:
    """Return the ranges of value, floor, 95 % point and standard error of a metric, given by its spec.

    A metric that is not the package's own may have any finite value.
    """
    value = _RANGES.get(metric.partition(":")[0], _ANY)
    floor = Range(value.low, min(value.high, _LARGEST))
    return value, floor, floor, Range(0.0)


def impossible(record: Record) -> str:
    """Describe what is wrong with the numbers of a measurement; empty if nothing is."""
    names = ("value", "floor", "floor95", "stderr")
    for name, (low, high) in zip(names, limits(record.metric), strict=True):
        number = getattr(record, name)
        if number is not None and not low <= number <= high:
            return f"{name} {number} of {record.metric}, which cannot be"
    return ""
