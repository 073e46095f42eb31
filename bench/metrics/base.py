"""What a metric is: a distance of a prediction from an oracle, and all that there is to know of it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from sdp_bench.bench.errors import RefusedError, UserError
from sdp_bench.oracles.estimate.tails import lacking
from sdp_ref.errors import UndefinedError

if TYPE_CHECKING:
    from sdp_bench.bench.metrics.oracle import Oracle
    from sdp_bench.bench.metrics.prediction import Prediction
    from sdp_bench.bench.sampling import Sampling
    from sdp_bench.oracles.estimate.estimate import Estimate
    from sdp_ref.laws import Law

Better = Literal["lower", "higher", "one", "floor", ""]
Moment = Literal["", "mean", "variance"]
Array = NDArray[np.float64]
Measurements = Iterator[tuple[str | None, "Estimate"]]
"""Component (None if the metric has one number only) and estimate."""


def count(default: int, least: int = 1) -> Any:  # Any, as dataclasses.field itself is typed
    """Option of a metric that is a whole number, and its smallest value."""
    return field(default=default, metadata={"least": least})


def choice(default: str, *others: str) -> Any:
    """Option of a metric that is one of a few words."""
    return field(default=default, metadata={"choices": (default, *others)})


@dataclass(frozen=True)
class Metric(ABC):
    """A way to compare what a rule predicts with an oracle. The fields of a subclass are its options.

    What it needs of a law is asked of the law, and where the law has it not the metric is refused by name.
    The floor of a prediction that is made of draws is that of an exact rule that makes as many: measured, on
    draws of the oracle.

    Attributes
    ----------
    name : str
        What records know it by, with its options: see `spec`.
    version : int
        Raised with every change that changes values, floors or standard errors.
    title, label, about : str
        For people: as a heading, in a table of several metrics, and as a paragraph.
    rank : int
        Place in tables, the lowest first.
    unit : str
        Of its values: "1", "output" (the unit of the net's outputs) or "nat".
    better : {"lower", "higher", "one", "floor", ""}
        Which values, as they are shown, are better ("floor": those nearest to what an exact rule shows);
        empty: they are not ranked.
    perfect : float
        Value of a rule with the exact law under unlimited sampling; NaN if there is no such value.
    complement : bool
        Whether tables show 1 - value, so that what is measured as a distance reads as shared mass.
    decimals : int, optional
        Shown; by default three significant figures.
    component : str
        What its components are: "output", "pairs"; empty if it has one number only.
    largest_only : bool
        Whether only the largest of its components is shown.
    has_floor : bool
        Whether a floor means something for it.
    corrects_floor : bool
        Whether the value is also shown with its floor taken out in quadrature.
    primary : bool
        Whether a rule may be judged by it in the first place: the first in rank that was measured counts.
    whitens : bool
        Whether it sees all directions of the outputs alike, not the widest most.
    published : str
        The paper's metric to set beside it; empty if there is none.
    needs : {"", "mean", "variance"}
        What truth and prediction must have for it to be defined; see `refusal`.
    single : bool
        Whether it looks at the outputs one by one, so that a law that does not tell them together will do.
    companion, companion_label : str
        Name of a second metric that is shown in the same cells, and what it is called there.
    seconds_per_sample : float
        What it costs (s) for one sample of the oracle and one rule, about; see `seconds`.
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

    def __post_init__(self) -> None:
        for option in fields(self):
            value, least = getattr(self, option.name), option.metadata.get("least")
            if least is not None and value < least:
                wanted = "positive" if least == 1 else f"at least {least}"
                raise UserError(f"{option.name} must be {wanted}, got {value}")
            choices = option.metadata.get("choices")
            if choices and value not in choices:
                words = option.name.replace("_", " ")
                raise UserError(f"unknown {words} '{value}'; choose from {', '.join(choices)}")

    @classmethod
    def of(cls, written: Mapping[str, str], options: Mapping[str, Any]) -> Self:
        """Metric with some options as text, others as values; what neither has takes its default.

        Returns
        -------
        Metric

        Raises
        ------
        UserError
            If it takes no such option as `written` has, or a value is out of range.
        """
        own = {option.name: option for option in fields(cls)}
        values = {name: options[name] for name in own if name in options}
        for name, text in written.items():
            if name not in own:
                takes = f"it takes {', '.join(own)}" if own else "it takes none"
                raise UserError(f"metric '{cls.name}' has no option '{name}'; {takes}")
            kind: type = type(own[name].default)
            try:
                values[name] = kind(text)
            except ValueError as error:
                raise UserError(f"metric '{cls.name}': '{text}' is no value of {name}") from error
        return cls(**values)

    @property
    def spec(self) -> str:
        """What records know it by: ``tv_headline:cells=512,pilot_samples=131072``."""
        written = ",".join(f"{option.name}={getattr(self, option.name)}" for option in fields(self))
        return f"{self.name}:{written}" if written else self.name

    @property
    def points(self) -> int:
        """Points a side that it is taken on, where that is fewer than all samples; 0: all of them."""
        return 0

    @property
    def variant(self) -> str:
        """Name in a table of one metric under several options."""
        return self.title

    @property
    def convention(self) -> str:
        """What the paper's total variation is called under this reading of it; empty for other metrics."""
        return ""

    @abstractmethod
    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        """Estimates by component, of laws that are not refused."""

    def refusal(self, oracle: Oracle, prediction: Prediction) -> str:
        """Why it is not defined for these laws, which samples cannot show; empty if it is.

        Returns
        -------
        str
            The same words for all metrics that need the same, so that they can be told together.
        """
        predicted = prediction.law
        if reason := self.undefined(*(law for law in (oracle.law, predicted) if law is not None)):
            return reason
        if self.single or predicted is None:
            return ""
        if not predicted.joint:
            return f"all outputs together are needed, of which {predicted.described} says nothing"
        if self.needs == "variance" and not hasattr(predicted, "covariance"):
            return f"a covariance is needed, which {predicted.described} has not"
        return ""

    def undefined(self, *laws: Law) -> str:
        """Why it is not defined where the noise or a prediction has one of some laws; empty if it is.

        Returns
        -------
        str
            See `refusal`.
        """
        if not self.needs or not (law := lacking(self.needs, *laws)):
            return ""
        remedy = "use total variation or quantile distances"
        return f"a finite {self.needs} is needed, which {law} has not; {remedy}"

    def measure(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        """Estimates by component.

        Yields
        ------
        (str or None, Estimate)
            Component, None where there is one number, and what was found of it.

        Raises
        ------
        RefusedError
            If it is refused.
        ValueError
            If the samples do not do.
        """
        if reason := self.refusal(oracle, prediction):
            raise RefusedError(reason)
        try:
            yield from self._measured(oracle, prediction)
        except UndefinedError as error:  # of which its own refusal did not know
            raise RefusedError(str(error)) from error

    def _measured(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        exact = [dict(self.estimates(oracle, each)) for each in prediction.exact()] if self.has_floor else []
        for component, estimate in self.estimates(oracle, prediction):
            values = np.array([each[component].value for each in exact if component in each])
            yield component, self.with_floor(estimate, values) if len(values) else estimate

    def with_floor(self, estimate: Estimate, exact: Array) -> Estimate:
        """An estimate with the floor that some exact rules show: their mean, and their 95 % point.

        Returns
        -------
        Estimate
            One more exact rule is below the 95 % point in 95 % of measurements if values are normal: of 8 it
            is 2 standard deviations above the mean and not 1.6 (Student's prediction interval).
        """
        if not np.isfinite(exact).all():
            return replace(estimate, floor=math.nan, floor95=math.nan)
        count = len(exact)
        width = _student(count - 1, 0.95) * exact.std(ddof=1) * math.sqrt(1 + 1 / count)
        return replace(estimate, floor=float(exact.mean()), floor95=float(exact.mean() + width))

    def check(self, sampling: Sampling, samples: int) -> None:  # noqa: B027 (most have nothing to refuse)
        """Refuse what can be known not to work before any net is trained.

        Parameters
        ----------
        sampling : Sampling
        samples : int
            Of the oracle, and of the prediction.

        Raises
        ------
        UserError
            If there are too few samples.
        """

    def seconds(self, samples: int, rules: int) -> float:
        """What it takes (s) for so many rules against one oracle, on one core, about."""
        return samples * rules * self.seconds_per_sample

    # How values are read: arrays of them as they were measured.

    def shown(self, values: Array) -> Array:
        """Values as tables have them."""
        return 1 - values if self.complement else values

    def score(self, values: Array, floor: Array) -> Array:  # noqa: ARG002
        """What rules are ranked by; lower is better."""
        return values

    def score_error(self, values: Array, errors: Array) -> Array:  # noqa: ARG002
        """Standard errors of scores, from those of the values."""
        return errors

    def indistinguishable(self, values: Array, floor: Array, floor95: Array) -> NDArray[np.bool_]:  # noqa: ARG002
        """Whether an exact rule would show as much in one of twenty measurements."""
        return values <= floor95


@dataclass(frozen=True)
class TwoSidedMetric(Metric):
    """What may be too large as well as too small: its floor is right, and both sides of it are errors."""

    better: ClassVar[Better] = "floor"
    perfect: ClassVar[float] = math.nan
    decimals = 4
    component = "output"

    def score(self, values: Array, floor: Array) -> Array:
        """Distance from the floor."""
        return np.abs(values - floor)

    def indistinguishable(self, values: Array, floor: Array, floor95: Array) -> NDArray[np.bool_]:
        """Whether it is as near to the floor as an exact rule's, on either side."""
        return np.abs(values - floor) <= floor95 - floor

    def with_floor(self, estimate: Estimate, exact: Array) -> Estimate:
        """An estimate within as much of its floor as exact rules are in 95 % of measurements."""
        if not np.isfinite(exact).all():
            return replace(estimate, floor95=math.nan)
        width = _student(len(exact), 0.975) * np.sqrt(np.square(exact - estimate.floor).mean())
        return replace(estimate, floor95=float(estimate.floor + width))


@dataclass(frozen=True)
class RatioMetric(TwoSidedMetric):
    """A ratio, predicted over true: twice is as wrong as half, and its floor lies on both sides of 1."""

    better = "one"
    perfect = 1.0

    def score(self, values: Array, floor: Array) -> Array:  # noqa: ARG002
        """Absolute logarithm."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(values > 0, np.abs(np.log(values)), math.inf)

    def score_error(self, values: Array, errors: Array) -> Array:
        """See `Metric.score_error`."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return errors / np.abs(values)


def _student(freedom: int, level: float) -> float:
    """Quantile of Student's t."""
    from scipy.special import stdtrit  # here, since metrics are listed without it

    return float(stdtrit(freedom, level))
