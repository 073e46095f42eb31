"""What a results file keeps: what was asked, of what, and what came out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from sdp_bench.bench.errors import NOT_DEFINED
from sdp_bench.bench.text import public
from sdp_ref.errors import on_one_line

Cell = tuple[str, str, str]
"""What one measurement is known by: key of the unit, rule, metric."""


@dataclass(frozen=True)
class StoredNet:
    """A net as a results file keeps it.

    Attributes
    ----------
    digest : str
        Hash of architecture and weights.
    network : str
        Its layers, for people.
    activation : str
        Name of the non-linearity, or of the net where it is one of a kind.
    depth : int
        Hidden layers.
    seed : int
        Of its training.
    accuracy : float, optional
        Reached, where it was measured.
    recipe : mapping
        How it was trained, as plain values.
    recipe_label : str
        The same in few words.
    source : str
        Where it came from.
    weights : bytes, optional
        A file with all that is needed to build it again.
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
        """From a row of the table."""
        return cls(**{**row, "recipe": _mapping(row["recipe"])})


@dataclass(frozen=True)
class Unit:
    """What rules are measured on: an input of a net under noise, or a data set with a seed.

    Attributes
    ----------
    key : str
        Hash of all that the numbers depend on beside rule, metric and code; root of all seeds.
    net : str, optional
        Digest of the net.
    input : int, optional
        Row of its data set.
    noise : str, optional
        Family of the law of the input: ``gaussian``, ``cauchy``.
    sigma : float, optional
        Scale of the noise, in the units of the net's input.
    sampler : str, optional
        How the oracle is sampled: ``mc`` or ``sobol``.
    samples : int, optional
        Of the oracle.
    dataset, objective : str, optional
        What an experiment without an oracle trains on, and for.
    seed : int, optional
        Of its replicate.
    design : str, optional
        The rest of its design, for people.
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

    Attributes
    ----------
    unit : str
        Key of the :class:`Unit`.
    rule, metric : str
        Specs, with all parameters.
    component : str, optional
        An output or a pair of classes, say, of a metric with several numbers.
    value : float
    floor, floor95, stderr : float, optional
        As in :class:`sdp_bench.oracles.estimate.estimate.Estimate`, where they are known.
    unit_of_measure : str
        "1" for pure numbers, "output" for the units of the net's output.
    seconds : float, optional
        The rule's own time for one input.
    fingerprint : str, optional
        Versions that the number rests on, ``rule 1, metric 1, oracle 1``; the driver of a run fills it in.
    precision : str, optional
        In which its oracle was drawn, ``float32`` or ``float64``; None where there is no oracle, and in
        results of schema 3 and older, whose oracles were drawn in the net's own precision.
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


@dataclass(frozen=True)
class Failure:
    """What could not be measured on a unit; tried again on the next run.

    Attributes
    ----------
    unit : str
        Key.
    rule, metric : str, optional
        Specs; None where all of them failed.
    error : str
    seconds : float
        How long it took to fail.
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
        """Whether the metric is not defined for the predicted law, which is nobody's fault."""
        return self.error.startswith(NOT_DEFINED)


@dataclass(frozen=True)
class LeftOut:
    """What a run did not try, and why.

    Attributes
    ----------
    rule : str, optional
        Spec; None where a whole experiment was left out.
    where : str
        On which nets, under which noise, or in which experiment.
    reason : str
    """

    rule: str | None
    where: str
    reason: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", public(on_one_line(self.reason)))


@dataclass(frozen=True)
class Selection:
    """What a run asked of one experiment: specs of metrics and rules."""

    metrics: tuple[str, ...]
    rules: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RunDescription:
    """What a run is about to do.

    Attributes
    ----------
    command, preset : str
        As the user wrote them.
    settings : mapping
        Plain values.
    experiments : mapping of str to Selection
    left_out : tuple of LeftOut
    environment : mapping
        Processor, versions and commit.
    """

    command: str
    preset: str
    settings: Mapping[str, Any]
    experiments: Mapping[str, Selection]
    left_out: tuple[LeftOut, ...]
    environment: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Run(RunDescription):
    """A run as a results file keeps it.

    Attributes
    ----------
    id : int
        In its file.
    started, finished : str
        ISO 8601, UTC; a run that was interrupted is not finished.
    seconds : float, optional
    """

    id: int
    started: str
    finished: str | None
    seconds: float | None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """From a row of the table."""
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
        raise ValueError(f"{text[:20]!r} is no mapping")
    return found


def _texts(found: Any) -> tuple[str, ...]:
    if not (isinstance(found, list) and all(isinstance(one, str) for one in found)):
        raise ValueError("what is to be a list of texts is none")
    return tuple(found)


def same(a: float | None, b: float | None, stderr: float | None = None) -> bool:
    """As :func:`same_number`, of numbers that may not be known."""
    return a is b if a is None or b is None else same_number(a, b, stderr)


def redrawn(a: float | None, b: float | None, stderr: float | None) -> bool:
    """Whether two floors are as near as those of two simulations: one sample in another cell brings that."""
    return a is not None and b is not None and stderr is not None and abs(a - b) <= stderr


def same_number(a: float, b: float, stderr: float | None = None) -> bool:
    """Whether two values differ by no more than rounding, or by a hundredth of their standard error.

    A rule sees the inputs of its group as one batch, and batches of other sizes round otherwise. Where
    a number is a small difference of large ones, or a sample lies at a cell's edge, that shows.

    Parameters
    ----------
    a, b : float
    stderr : float, optional
        Of either.

    Returns
    -------
    bool
    """
    noise = 0.0 if stderr is None or math.isnan(stderr) else stderr / 100
    return a == b or math.isclose(a, b, rel_tol=1e-9, abs_tol=max(1e-12, noise))
