"""The base classes of metrics: what a metric computes, and how tables show and rank it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from sdp_ref.errors import UndefinedError

from ...oracles.estimate.tails import lacking
from ..errors import RefusedError, UserError

if TYPE_CHECKING:
    from sdp_ref.laws import Law

    from ...oracles.estimate.estimate import Estimate
    from ..identity import Sampling
    from .oracle import Oracle, Prediction


Better = Literal["lower", "higher", "one", "floor", ""]
Moment = Literal["", "mean", "variance"]
Array = NDArray[np.float64]
Measurements = Iterator[tuple[str | None, "Estimate"]]
"""Pairs of a component (None if the metric is a single number) and its estimate."""


def count(default: int, least: int = 1) -> Any:  # Any, as in the annotation of dataclasses.field
    """Declare an integer option of a metric, with its default and smallest value."""
    return field(default=default, metadata={"least": least})


def choice(default: str, *others: str) -> Any:
    """Declare an option of a metric that is one of a few words."""
    return field(default=default, metadata={"choices": (default, *others)})


@dataclass(frozen=True)
class Metric(ABC):
    """A comparison of a rule's prediction with an oracle. The fields of a subclass are its options.

    If a law lacks a property that the metric needs (a variance, say), the metric is refused with a reason.
    If a prediction consists of draws, its floor is that of an exact rule with the same number of draws,
    measured on draws of the oracle.

    `name`: the name in records, which `spec` extends by the options. `version`: raised with every change
    that changes values, floors or standard errors. `title`, `label`, `about`: heading, column header and a
    paragraph of explanation. `rank`: position in tables, lowest first.

    `unit`: unit of the values: "1", "output" (that of the net's outputs) or "nat". `better`: which values,
    as shown, are better ("floor": those nearest to the value of an exact rule); rules are not ranked if it
    is empty. `perfect`: value of a rule with the exact law under unlimited sampling, NaN if there is none.
    `complement`: whether tables show 1 - value, so that a distance reads as shared mass. `decimals`:
    decimals shown, by default three significant figures.

    `component`: what the components are ("output", "pairs"); empty for a single number. `largest_only`:
    whether only the largest component is shown. `has_floor`: whether a floor is meaningful.
    `corrects_floor`: whether the value is also shown with its floor subtracted in quadrature. `primary`:
    whether rules may be ranked by this metric; the first one measured, by `rank`, counts. `whitens`: whether
    all directions of the outputs have the same weight, rather than the widest dominating. `published`: the
    paper's metric to compare with, if any.

    `needs`: moment that truth and prediction must have ("mean", "variance" or ""); see `refusal`. `single`:
    whether the metric uses single outputs only, so that a law without a joint distribution suffices.
    `companion`, `companion_label`: a second metric shown in the same cells. `seconds_per_sample`:
    approximate cost (s) of one sample of the oracle for one rule; see `seconds`. `convention`: label of this
    reading of the paper's total variation, if it is one. `cells_vary`: whether the cells depend on the
    compared samples; stored standard errors are given the cells.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    title: ClassVar[str]
    label: ClassVar[str]
    about: ClassVar[str] = ""
    rank: ClassVar[int] = 1_000_000
    unit: ClassVar[str] = "1"
    better: ClassVar[Better] = "lower"
    perfect: ClassVar[float] = 0.0
    complement: ClassVar[bool] = False
    decimals: ClassVar[int | None] = None
    component: ClassVar[str] = ""
    largest_only: ClassVar[bool] = False
    has_floor: ClassVar[bool] = True
    corrects_floor: ClassVar[bool] = False
    primary: ClassVar[bool] = False
    whitens: ClassVar[bool] = False
    published: ClassVar[str] = ""
    needs: ClassVar[Moment] = ""
    single: ClassVar[bool] = False
    companion: ClassVar[str] = ""
    companion_label: ClassVar[str] = ""
    seconds_per_sample: ClassVar[float] = 0.0
    convention: ClassVar[str] = ""
    cells_vary: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for option in fields(self):
            value, least = getattr(self, option.name), option.metadata.get("least")
            if least is not None and value < least:
                requirement = "positive" if least == 1 else f"at least {least}"
                raise UserError(f"{option.name} must be {requirement}, got {value}")
            choices = option.metadata.get("choices")
            if choices and value not in choices:
                words = option.name.replace("_", " ")
                raise UserError(f"unknown {words} '{value}'; choose from {', '.join(choices)}")

    @classmethod
    def of(cls, written: Mapping[str, str], options: Mapping[str, Any]) -> Self:
        """Return the metric with some options given as text and others as values.

        Options in neither mapping have their defaults. Names in `options` that this metric does not have are
        ignored; names in `written` that it does not have raise a UserError.
        """
        defaults = {option.name: option.default for option in fields(cls)}
        values = {name: options[name] for name in defaults if name in options}
        for name, text in written.items():
            if name not in defaults:
                takes = f"it takes {', '.join(defaults)}" if defaults else "it takes none"
                raise UserError(f"metric '{cls.name}' has no option '{name}'; {takes}")
            kind: type = type(defaults[name])
            try:
                values[name] = kind(text)
            except ValueError as error:
                raise UserError(f"metric '{cls.name}': '{text}' is no value of {name}") from error
        return cls(**values)

    @property
    def spec(self) -> str:
        """Name with all options, as stored in records: ``tv_headline:cells=512,pilot_samples=131072``."""
        written = ",".join(f"{option.name}={getattr(self, option.name)}" for option in fields(self))
        return f"{self.name}:{written}" if written else self.name

    @property
    def points(self) -> int:
        """Number of points a side: the option with a name in ``_points``, or 0 if it uses all samples."""
        for option in fields(self):
            if option.name.endswith("_points"):
                return getattr(self, option.name)
        return 0

    @property
    def variant(self) -> str:
        """Label that distinguishes options of one metric within a table."""
        return self.title

    @abstractmethod
    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        """Yield estimates by component, for laws that are not refused."""

    def refusal(self, oracle: Oracle, prediction: Prediction) -> str:
        """Return why the metric is not defined for these laws, or an empty string.

        The decision uses the laws only: samples cannot show that a moment does not exist. Metrics with the
        same requirement give the same text, so that reports can group them.
        """
        predicted = prediction.law
        laws = [oracle.law] if predicted is None else [oracle.law, predicted]
        if reason := self.undefined(*laws):
            return reason
        if self.single or predicted is None:
            return ""
        if not predicted.joint:
            return f"all outputs together are needed, of which {predicted.described} says nothing"
        if self.needs == "variance" and not hasattr(predicted, "covariance"):
            return f"a covariance is needed, which {predicted.described} has not"
        return ""

    def undefined(self, *laws: Law) -> str:
        """Return why the metric is not defined for noise or predictions with these laws, or ''."""
        if not self.needs or not (law := lacking(self.needs, *laws)):
            return ""
        remedy = "use total variation or quantile distances"
        return f"a finite {self.needs} is needed, which {law} has not; {remedy}"

    def measure(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        """Yield estimates by component.

        Raises a RefusedError if the metric is not defined for these laws, and a ValueError if the samples do
        not suffice.
        """
        if reason := self.refusal(oracle, prediction):
            raise RefusedError(reason)
        rules = prediction.exact() if self.has_floor else ()
        try:
            of_exact_rules = [dict(self.estimates(oracle, rule)) for rule in rules]
            for component, estimate in self.estimates(oracle, prediction):
                exact = [by_name[component].value for by_name in of_exact_rules if component in by_name]
                yield component, self.with_floor(estimate, np.array(exact)) if exact else estimate
        except UndefinedError as error:  # a reason that `refusal` did not detect
            raise RefusedError(str(error)) from error

    def with_floor(self, estimate: Estimate, exact: Array) -> Estimate:
        """Return the estimate with the floor of some exact rules: their mean and their 95 % point.

        If values are normal, one more exact rule is below the 95 % point in 95 % of measurements. For 8 exact
        rules the point is 2 standard deviations above the mean, not 1.6 (Student's prediction interval).
        """
        if not np.isfinite(exact).all():
            return replace(estimate, floor=math.nan, floor95=math.nan)
        count = len(exact)
        width = _student(count - 1, 0.95) * exact.std(ddof=1) * math.sqrt(1 + 1 / count)
        return replace(estimate, floor=float(exact.mean()), floor95=float(exact.mean() + width))

    def check(self, sampling: Sampling, samples: int) -> None:  # noqa: B027 (most have nothing to refuse)
        """Raise a UserError if the metric cannot work with `samples` samples, before any net is trained."""

    def seconds(self, samples: int, rules: int) -> float:
        """Estimate the time (s) for `rules` rules against one oracle, on one core."""
        return samples * rules * self.seconds_per_sample

    # How tables read values. Arguments are arrays of values as measured.

    def shown(self, values: Array) -> Array:
        """Return values as tables show them."""
        return 1 - values if self.complement else values

    def score(self, values: Array, floor: Array) -> Array:  # noqa: ARG002
        """Return the score that rules are ranked by; lower is better."""
        return values

    def known_error(self, errors: Array) -> Array:
        """Return the stored standard errors, or NaN if they do not include that the cells vary."""
        return np.full_like(errors, math.nan) if self.cells_vary else errors

    def score_error(self, values: Array, errors: Array) -> Array:  # noqa: ARG002
        """Return standard errors of scores, given those of the values."""
        return self.known_error(errors)

    def indistinguishable(self, values: Array, floor: Array, floor95: Array) -> NDArray[np.bool_]:  # noqa: ARG002
        """Return whether at least 5 % of the measurements of an exact rule would be as large."""
        return values <= floor95


class TwoSidedMetric(Metric):
    """A metric with errors on both sides: its floor is the correct value, not a lower bound."""

    better: ClassVar[Better] = "floor"
    perfect: ClassVar[float] = math.nan
    decimals = 4
    component = "output"

    def score(self, values: Array, floor: Array) -> Array:
        """Return the distance from the floor."""
        return np.abs(values - floor)

    def indistinguishable(self, values: Array, floor: Array, floor95: Array) -> NDArray[np.bool_]:
        """Return whether a value is as near to the floor, on either side, as that of an exact rule."""
        return np.abs(values - floor) <= floor95 - floor

    def with_floor(self, estimate: Estimate, exact: Array) -> Estimate:
        """Return the estimate with the 95 % point of the distances of exact rules from the floor."""
        if not np.isfinite(exact).all():
            return replace(estimate, floor95=math.nan)
        width = _student(len(exact), 0.975) * np.sqrt(np.square(exact - estimate.floor).mean())
        return replace(estimate, floor95=float(estimate.floor + width))


class RatioMetric(TwoSidedMetric):
    """A ratio, predicted over true: 2 is as wrong as 0.5, and its floor extends to both sides of 1."""

    better = "one"
    perfect = 1.0

    def score(self, values: Array, floor: Array) -> Array:  # noqa: ARG002
        """Return the absolute logarithm."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(values > 0, np.abs(np.log(values)), math.inf)

    def score_error(self, values: Array, errors: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return errors / np.abs(values)


def by_output(estimates: Iterable[Estimate]) -> Measurements:
    """Return the estimates of outputs 0, 1, ... by component."""
    return ((str(output), estimate) for output, estimate in enumerate(estimates))


def _student(freedom: int, level: float) -> float:
    from scipy.special import stdtrit  # imported here because listing metrics does not need scipy

    return float(stdtrit(freedom, level))
