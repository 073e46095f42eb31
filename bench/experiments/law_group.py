"""A group of work with oracles: one net under noise of one scale, with all its inputs."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from sdp_ref.errors import CovarianceSizeError
from sdp_ref.laws import Law

from ..errors import NOT_DEFINED, OutsideError, outside
from ..identity import OracleKey, Sampling, digest
from ..metrics import metric as metric_of
from ..metrics.oracle import Oracle, Prediction
from ..metrics.references import Reference, references
from ..nets.net import Net
from ..noise import GAUSSIAN, Noise
from ..plugins.plugin import plugin_of
from ..results.record import Cell, Failure, Record, Unit
from ..settings import Settings
from . import costs, versions
from .base import Group
from .predict import predict, prediction_of

_IMAGES = 10
"""Images per group, the unit of resumption: ResNet-18 takes seconds per image."""


Asked = tuple[str, str, str]
"""An experiment, one of its metrics and one of its rules."""


@dataclass(frozen=True)
class Subject:
    """One input of a net under one noise, with its oracle's key and what experiments measure on it."""

    key: OracleKey
    row: int
    asked: tuple[Asked, ...]

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Distinct pairs of metric and rule; experiments may share pairs."""
        return tuple(dict.fromkeys((metric, rule) for _, metric, rule in self.asked))

    def only(self, rules: Collection[str]) -> Subject:
        """Return a copy with some of the rules only."""
        return replace(self, asked=tuple(asked for asked in self.asked if asked[2] in rules))

    @property
    def rules(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(rule for _, _, rule in self.asked))


def oracle_key(net: Net, x: Tensor, noise: str, sampler: str, samples: int) -> OracleKey:
    """Return the key of the law of a net's output at `x` under labelled noise, and of its sampling."""
    return OracleKey(net.digest, digest(x)[:16], noise, sampler, samples)


@dataclass(frozen=True, eq=False)
class LawGroup(Group):
    """A net and a noise level with all inputs."""

    net: Net
    sigma: float  # scale of the input noise; its standard deviation if it is Gaussian
    subjects: tuple[Subject, ...]
    locations: Tensor = field(repr=False)  # shape (number of subjects, *event), float32
    settings: Settings = field(repr=False)
    noise: Noise = GAUSSIAN

    @classmethod
    def of(
        cls,
        net: Net,
        noise: Noise,
        scale: float,
        rows: Sequence[int],
        locations: Tensor,
        asked: Iterable[Asked],
        samples: int,
        settings: Settings,
    ) -> LawGroup:
        """Return the group of one experiment, with oracles of `samples` samples at some rows' inputs.

        Of equal inputs under the same noise, only the one in the first row of the data is measured.
        """
        asked = tuple(asked)
        label, sampler = noise.label(scale), settings.sampling.sampler
        by_input = noise.by_input(tuple(locations.shape[1:]))
        subjects: dict[OracleKey, Subject] = {}
        places = []
        for place, (row, x) in enumerate(zip(rows, locations, strict=True)):
            key = oracle_key(net, x, label, sampler, samples)
            if by_input and noise.values is not None:  # equal inputs can have other scales
                key = replace(key, input=digest([key.input, noise.values[row].tolist()])[:16])
            if key not in subjects:
                places.append(place)
            elif row > subjects[key].row:
                continue
            subjects[key] = Subject(key, row, asked)
        return cls(net, scale, tuple(subjects.values()), locations[places], settings, noise)

    @property
    def law(self) -> Law:
        """Law of the inputs, float32, with one row per subject."""
        return self.noise.law(self.locations, self.sigma, [subject.row for subject in self.subjects])

    @property
    def units(self) -> tuple[Unit, ...]:
        net, noise = self.net.digest, self.noise.family
        return tuple(
            Unit(s.key.hex, net, s.row, noise, self.sigma, s.key.sampler, s.key.samples)
            for s in self.subjects
        )

    @property
    def members(self) -> tuple[tuple[str, str], ...]:
        return tuple(dict.fromkeys((asked[0], s.key.hex) for s in self.subjects for asked in s.asked))

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(
            dict.fromkeys((s.key.hex, rule, metric) for s in self.subjects for metric, rule in s.pairs)
        )

    @property
    def title(self) -> str:
        noise = self.noise.parameter if self.noise == GAUSSIAN else f"{self.noise.name} noise"
        return f"{self.net.architecture.label} seed {self.net.seed} {noise} {self.sigma:g}"

    @property
    def note(self) -> str:
        return self.noise.note

    @property
    def seconds(self) -> float:
        total = 1.0
        for subject in self.subjects:
            samples, rules = subject.key.samples, subject.rules
            oracles = 1 + sum(each.oracles for name, each in references().items() if name in rules)
            metrics = Counter(spec for spec, _ in subject.pairs)
            measuring = sum(metric_of(spec).seconds(samples, count) for spec, count in metrics.items())
            total += costs.seconds(self.net, samples, oracles, rules, measuring)
        return total

    def versions_of(self, rule: str, metric: str) -> str:
        """See `Group`."""
        return versions.of_measurement(rule, metric, self.settings.plugins)

    @classmethod
    def shared(cls, groups: Sequence[LawGroup]) -> Sequence[LawGroup]:
        """Join groups with the same net and noise, in order of nets and increasing noise.

        Experiments with the same law share its oracle. Each plug-in has its own group, so that side effects
        of its code on the process cannot affect other rules. Image inputs are split over several groups.
        """
        by_law: dict[tuple[str, Noise, float, Sampling], list[LawGroup]] = {}
        for group in groups:
            law = (group.net.digest, group.noise, group.sigma, group.settings.sampling)
            by_law.setdefault(law, []).append(group)
        nets = {net: place for place, (net, *_) in reversed(list(enumerate(by_law)))}
        laws = sorted(by_law, key=lambda law: (nets[law[0]], law[2]))
        return [own for law in laws for part in _joined(by_law[law]) for own in part.by_code()]

    def by_code(self) -> Iterator[LawGroup]:
        """Yield the group of the built-in rules, and one for each plug-in."""
        asked = dict.fromkeys(rule for subject in self.subjects for rule in subject.rules)
        own = [rule for rule in asked if plugin_of(rule, self.settings.plugins)]
        for rules in (asked.keys() - own, *([rule] for rule in own)):
            places = [place for place, subject in enumerate(self.subjects) if subject.only(rules).asked]
            if places:
                subjects = tuple(self.subjects[place].only(rules) for place in places)
                yield replace(self, subjects=subjects, locations=self.locations[places])

    # Measuring ------------------------------------------------------------------------------------

    def measure(self, cells: Collection[Cell]) -> Iterator[Record | Failure]:
        """Run rules on all inputs at once, then compare each prediction with its oracle."""
        pairs: dict[str, list[tuple[str, str]]] = {subject.key.hex: [] for subject in self.subjects}
        for unit, rule, metric in self.cells:
            if (unit, rule, metric) in cells:
                pairs[unit].append((metric, rule))
        failures: list[Failure] = []
        with _recorded(failures, pairs):
            net = self.net.build().to(self.settings.sampling.device)
            law = self.law
            on_device = law.to(device=self.settings.sampling.device)
        predictors = dict[str, _Predictor]()
        rules = dict.fromkeys(rule for asked in pairs.values() for _, rule in asked)
        for name in () if failures else rules:
            with _recorded(failures, pairs, name):
                predictors[name] = self.predictor(name, net, on_device)
        yield from failures
        for place, subject in enumerate(self.subjects):
            asked = [(metric, rule) for metric, rule in pairs[subject.key.hex] if rule in predictors]
            if asked:
                oracle = Oracle(net, law[place], subject.key, self.settings.sampling)
                yield from _compared(oracle, place, predictors, asked)

    def predictor(self, name: str, net: nn.Module, law: Law) -> _Predictor:
        """Return the predictor of a rule or reference; `law` is that of all inputs, on the net's device."""
        rule = self.settings.rule(name)
        if isinstance(rule, Reference):

            def by_reference(oracle: Oracle, _: int) -> tuple[Prediction, float]:
                begun = time.perf_counter()
                return rule.predict(oracle), time.perf_counter() - begun

            return by_reference
        predicted, seconds, passes = predict(rule, net, law, [subject.key for subject in self.subjects])

        def by_rule(oracle: Oracle, place: int) -> tuple[Prediction, float]:
            # Each input's records have the time of one repeat, so that records show the spread of the times.
            prediction = prediction_of(rule, predicted[place], oracle, passes)
            return prediction, seconds[place % len(seconds)]

        return by_rule


_Predictor = Callable[[Oracle, int], tuple[Prediction, float]]
"""Returns the prediction for an oracle, by the position of its input, and the time (s) of the rule."""


@contextmanager
def _recorded(
    failures: list[Failure], units: Iterable[str], rule: str | None = None, metric: str | None = None
) -> Iterator[None]:
    """Turn an error of a net, a rule or a metric into failures of some units."""
    begun = time.perf_counter()
    try:
        with outside():
            yield
    except OutsideError as error:
        too_large = isinstance(error.__cause__, CovarianceSizeError)
        text = f"{NOT_DEFINED}{error.__cause__}" if too_large else str(error)
        took = time.perf_counter() - begun
        failures += [Failure(unit, rule, metric, text, took) for unit in units]


def _compared(
    oracle: Oracle, place: int, predictors: Mapping[str, _Predictor], asked: Sequence[tuple[str, str]]
) -> Iterator[Record | Failure]:
    """Yield records of all requested metrics and rules for one oracle."""
    units, failures = [oracle.key.hex], list[Failure]()
    with _recorded(failures, units):  # the net may be user code
        _ = oracle.resident
    for name in () if failures else dict.fromkeys(rule for _, rule in asked):
        records: list[Record] = []  # not yielded inside: an error of the caller is no failure of the rule
        with _recorded(failures, units, name):
            prediction, seconds = predictors[name](oracle, place)
            for metric in (metric for metric, rule in asked if rule == name):
                with _recorded(failures, units, name, metric):
                    records += list(measured(oracle, prediction, name, metric, seconds))
        yield from records
    yield from failures


def measured(
    oracle: Oracle, prediction: Prediction, rule: str, metric: str, seconds: float
) -> Iterator[Record]:
    """Yield the records of one metric of one prediction, one per component; a ValueError if it is NaN."""
    key, precision, definition = oracle.key.hex, oracle.precision, metric_of(metric)
    unit = definition.unit
    for component, estimate in definition.measure(oracle, prediction):
        if math.isnan(estimate.value):
            raise ValueError(f"{metric} is not a number")
        value = float(estimate.value)
        floor, floor95, stderr = (
            None if math.isnan(number) else float(number)
            for number in (estimate.floor, estimate.floor95, estimate.stderr)
        )
        yield Record(
            key, rule, metric, component, value, floor, floor95, stderr, unit, seconds, precision=precision
        )


def _joined(groups: Sequence[LawGroup]) -> Iterator[LawGroup]:
    """Join groups of the same law, or split them into groups of few images."""
    subjects: dict[tuple[int, int], Subject] = {}
    locations: dict[tuple[int, int], Tensor] = {}
    for group in groups:
        for subject, location in zip(group.subjects, group.locations, strict=True):
            known = subjects.get(place := (subject.row, subject.key.samples))
            subjects[place] = replace(known, asked=known.asked + subject.asked) if known else subject
            locations.setdefault(place, location)
    together = tuple(subjects.values())
    batch = torch.stack(list(locations.values()))
    step = _IMAGES if batch.ndim > 2 else len(together)
    for start in range(0, len(together), step):
        part = slice(start, start + step)
        yield replace(groups[0], subjects=together[part], locations=batch[part])
