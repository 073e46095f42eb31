"""A group of work with oracles: one net under noise of one scale, with all its inputs."""

from __future__ import annotations

import functools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor, nn

from sdp_ref.errors import UnsupportedError, message_of
from sdp_ref.laws import Law

from ..errors import NOT_DEFINED, MeasuredCodeError, measured_code
from ..executors.local import send
from ..identity import OracleKey, digest
from ..metrics import metric as metric_of
from ..metrics.oracle import Oracle, Prediction
from ..metrics.references import Reference, references
from ..nets.net import Net
from ..noise import GAUSSIAN, Noise
from ..results.columns import FAILED, UNDEFINED, UNSUPPORTED, outcome
from ..settings import Settings
from . import costs
from .base import Group, RuleBegun
from .predict import predict, prediction_of

_IMAGES = 10
"""Images that are measured and stored together: ResNet-18 takes seconds per image."""


class Cell(NamedTuple):
    """A unit, one of its rules, and a metric."""

    unit: str
    rule: str
    metric: str


@dataclass(frozen=True, eq=False)
class Input:
    """One input of a net under noise.

    `key` is that of its oracle, `row` its position in the data set, and `location` its values, shape `event`,
    float32.
    """

    key: OracleKey
    row: int
    location: Tensor


@dataclass(frozen=True, eq=False)
class LawGroup(Group):
    """A net and a noise level with all inputs; `sigma` is the scale of the noise."""

    net: Net
    noise: Noise
    sigma: float
    inputs: tuple[Input, ...]
    settings: Settings

    @classmethod
    def of(
        cls,
        net: Net,
        noise: Noise,
        scale: float,
        rows: Sequence[int],
        locations: Tensor,
        samples: int,
        settings: Settings,
    ) -> LawGroup:
        """Return the group of some rows' inputs, shape (rows, *event), with oracles of `samples` samples.

        Of equal inputs under the same noise, only the one in the first row of the data is measured.
        """
        label, sampler = noise.label(scale), settings.sampling.sampler
        by_input = noise.by_input(tuple(locations.shape[1:]))
        inputs: dict[OracleKey, Input] = {}
        for row, location in zip(rows, locations, strict=True):
            key = OracleKey(net.digest, digest(location)[:16], label, sampler, samples)
            if by_input and noise.values is not None:  # equal inputs can have other scales
                key = replace(key, input=digest([key.input, noise.values[row].tolist()])[:16])
            if key not in inputs or row < inputs[key].row:
                inputs[key] = Input(key, row, location)
        return cls(net, noise, scale, tuple(inputs.values()), settings)

    @functools.cached_property
    def name(self) -> str:
        """Name of net, noise and sampling; groups of the same name are measured together."""
        sampling = asdict(self.settings.sampling)
        return digest(self.net.digest, self.noise.label(self.sigma), sampling)[:16]

    @property
    def keys(self) -> list[OracleKey]:
        return [item.key for item in self.inputs]

    @property
    def locations(self) -> Tensor:
        """The inputs, shape (inputs, *event)."""
        return torch.stack([item.location for item in self.inputs])

    @property
    def law(self) -> Law:
        """Law of the inputs, float32, with a row for each input."""
        return self.noise.law(self.locations, self.sigma, [item.row for item in self.inputs])

    @property
    def units(self) -> list[dict[str, Any]]:
        """Rows that describe its units, with the columns of `sdp_bench.bench.results.columns.SUBJECT`."""
        net, architecture = self.net, self.net.architecture
        described = {
            "group": self.name,
            "network": architecture.label,
            "activation": architecture.activation,
            "depth": architecture.depth,
            "net": net.digest,
            "net_source": net.source,
            "seed": net.seed,
            "noise": self.noise.family,
            "sigma": self.sigma,
            "recipe": net.recipe.label,
            "accuracy": net.accuracy,
        }
        return [
            {
                "unit": item.key.hex,
                "input": item.row,
                "sampler": item.key.sampler,
                "samples": item.key.samples,
                **described,
            }
            for item in self.inputs
        ]

    @property
    def title(self) -> str:
        noise = self.noise.parameter if self.noise == GAUSSIAN else f"{self.noise.name} noise"
        return f"{self.net.architecture.label} seed {self.net.seed} {noise} {self.sigma:g}"

    @property
    def note(self) -> str:
        return self.noise.note

    def joined(self, other: LawGroup) -> LawGroup:
        known = set(self.keys)
        added = tuple(item for item in other.inputs if item.key not in known)
        return replace(self, inputs=self.inputs + added)

    def only(self, units: Sequence[str]) -> LawGroup:
        chosen = set(units)
        return replace(self, inputs=tuple(item for item in self.inputs if item.key.hex in chosen))

    def part_of(self, unit: str) -> int:
        if self.inputs[0].location.ndim < 2:
            return 0
        return [key.hex for key in self.keys].index(unit) // _IMAGES

    def seconds(self, rows: pd.DataFrame) -> float:
        total = 1.0
        samples_of = {item.key.hex: item.key.samples for item in self.inputs}
        for unit, of_unit in rows.groupby("unit", sort=False, observed=True):
            samples = samples_of[str(unit)]
            rules = list(of_unit["rule"].unique())
            oracles = 1 + sum(known.oracles for name, known in references().items() if name in rules)
            counts = Counter(of_unit["metric_spec"])
            measuring = sum(metric_of(spec).seconds(samples, count) for spec, count in counts.items())
            total += costs.seconds(self.net, samples, oracles, rules, measuring)
        return total

    # Measuring ------------------------------------------------------------------------------------

    def measure(self, rows: pd.DataFrame) -> list[dict[str, Any]]:
        """Run rules on all inputs at once, then compare each prediction with its oracle."""
        cells = [Cell(*cell) for cell in zip(rows["unit"], rows["rule"], rows["metric_spec"], strict=True)]
        cells = list(dict.fromkeys(cells))
        outcomes: list[dict[str, Any]] = []
        with _recorded(outcomes, cells):
            net = self.net.build().to(self.settings.sampling.device)
            law = self.law
            on_device = law.to(device=self.settings.sampling.device)
        if outcomes:  # the net cannot be built
            return outcomes
        predictors = dict[str, _Predictor]()
        for rule in dict.fromkeys(cell.rule for cell in cells):
            send(RuleBegun(rule))
            with _recorded(outcomes, [cell for cell in cells if cell.rule == rule]):
                predictors[rule] = self.predictor(rule, net, on_device)
        send(None)
        for index, item in enumerate(self.inputs):
            of_input = [cell for cell in cells if cell.unit == item.key.hex and cell.rule in predictors]
            if of_input:
                oracle = Oracle(net, law[index], item.key, self.settings.sampling)
                outcomes += _compared(oracle, index, predictors, of_input)
        return outcomes

    def predictor(self, name: str, net: nn.Module, law: Law) -> _Predictor:
        """Return the predictor of a rule or reference; `law` is that of all inputs, on the net's device."""
        rule = self.settings.rule(name)
        if isinstance(rule, Reference):
            if reason := rule.refusal(self.noise.example):
                raise UnsupportedError(name, f"{self.noise.name} noise", hint=reason)

            def by_reference(oracle: Oracle, _: int) -> tuple[Prediction, float]:
                start = time.perf_counter()
                return rule.predict(oracle), time.perf_counter() - start

            return by_reference
        predicted, seconds, passes = predict(rule, net, law, self.keys)

        def by_rule(oracle: Oracle, index: int) -> tuple[Prediction, float]:
            # Each input's rows have the time of one repeat, so that they show the spread of the times.
            prediction = prediction_of(rule, predicted[index], oracle, passes)
            return prediction, seconds[index % len(seconds)]

        return by_rule


_Predictor = Callable[[Oracle, int], tuple[Prediction, float]]
"""Returns the prediction for an oracle, by the position of its input, and the time (s) of the rule."""


@contextmanager
def _recorded(outcomes: list[dict[str, Any]], cells: Iterable[Cell]) -> Iterator[None]:
    """Turn an error of a net, a rule or a metric into outcomes of some cells."""
    start = time.perf_counter()
    try:
        with measured_code():
            yield
    except MeasuredCodeError as error:
        status, reason = FAILED, str(error)
        if isinstance(error.__cause__, UnsupportedError):
            status, reason = UNSUPPORTED, message_of(error.__cause__)
        elif reason.startswith(NOT_DEFINED):
            status, reason = UNDEFINED, reason.removeprefix(NOT_DEFINED)
        seconds = time.perf_counter() - start
        outcomes += [outcome(*cell, status=status, reason=reason, seconds=seconds) for cell in cells]


def _compared(
    oracle: Oracle, index: int, predictors: Mapping[str, _Predictor], cells: Sequence[Cell]
) -> list[dict[str, Any]]:
    """Return the outcomes of all requested metrics and rules for one oracle."""
    outcomes: list[dict[str, Any]] = []
    with _recorded(outcomes, cells):  # the net may be user code
        _ = oracle.resident
    if outcomes:  # the oracle cannot be sampled
        return outcomes
    for rule in dict.fromkeys(cell.rule for cell in cells):
        of_rule = [cell for cell in cells if cell.rule == rule]
        failures: list[dict[str, Any]] = []
        send(RuleBegun(rule))
        with _recorded(failures, of_rule):
            prediction, seconds = predictors[rule](oracle, index)
        if failures:
            outcomes += failures
            continue
        for cell in of_rule:
            with _recorded(outcomes, [cell]):
                outcomes += measured(oracle, prediction, rule, cell.metric, seconds)
    send(None)  # what follows is common to all rules
    return outcomes


def measured(
    oracle: Oracle, prediction: Prediction, rule: str, metric: str, seconds: float
) -> list[dict[str, Any]]:
    """Return the outcomes of one metric of one prediction, one per component; a ValueError if it is NaN."""
    definition = metric_of(metric)
    outcomes = []
    for component, estimate in definition.measure(oracle, prediction):
        if math.isnan(estimate.value):
            raise ValueError(f"{metric} is not a number")
        outcomes.append(
            outcome(
                oracle.key.hex,
                rule,
                metric,
                component=component,
                value=float(estimate.value),
                floor=float(estimate.floor),
                floor95=float(estimate.floor95),
                stderr=float(estimate.stderr),
                unit_of_measure=definition.unit,
                seconds=seconds,
                precision=oracle.precision,
            )
        )
    return outcomes
