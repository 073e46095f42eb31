"""What the paper says about its simulation tables, as data, and what our measurements say to it.

A claim is a list of parts, each a one-sided statement about a mean effect over trained nets. The verdicts
rest on suites in which every net has inputs of its own: there the net is the replicate, and what a net shows
is averaged over its inputs (and outputs) first. See `reports.statistics.verdicts` for the statistics.

Distances W1 have their floor taken out in quadrature and may then be 0, where neither a logarithm nor a
quotient exists. They are compared, net by net, by the symmetric relative difference (b - a) / ((a + b) / 2):
it is bounded, 0 where both are 0, free of the net's own scale, and agrees with the log ratio to third order
(2 tanh(log ratio / 2)), so that its intervals suffer neither from skewed distances nor from zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from sdp_bench.bench.metrics import Metric, metric, recorded_metric
from sdp_bench.bench.metrics.total_variation import (
    AxisTotalVariation,
    ClassTotalVariation,
    HeadlineTotalVariation,
)
from sdp_bench.reports.paper.printed import printed
from sdp_bench.reports.style.nets import NetKind

SUITES = {
    "iris-claims": "",
    "iris-claims-w1": "",
    "iris-claims-recipe": "other recipe",
    "iris-claims-features": "standardised features",
}
"""Suites that are judged, and how their nets were trained: by the recipe of every suite, or otherwise."""

PAPERS_OWN = AxisTotalVariation(bin_range="joint")
"""The total variation that comes nearest to what the paper prints, which does not state its bin range."""

CONVENTIONS: Mapping[str, Metric] = MappingProxyType(
    {
        metric.convention: metric
        for metric in (PAPERS_OWN, AxisTotalVariation(), HeadlineTotalVariation(), ClassTotalVariation())
    }
)
"""Readings of total variation by name, the paper's own first; a claim on it is judged under each."""

TV_MARGIN = 0.01
W1_MARGIN = 1.05
SD_MARGIN = 0.05
"""How much worse is still "as good": in 1 - TV, as a factor of W1, in abs(log ratio of sds)."""

LARGE_FACTOR = 2.0
SIMILAR_FACTOR = 1.25

ACTIVATION = "relu"
_MC = "monte_carlo:samples=100"
_TV_SIGMAS = (0.1, 1.0, 10.0, 100.0, 1000.0)
_W1_SIGMAS = (0.01, 0.1, 1.0)
_OVERFLOW = 700.0  # exp of more is no float
_SMALL, _LARGE = (0.1, 1.0), (10.0, 100.0, 1000.0)


# How values become effects --------------------------------------------------------------------------------


def _shared_mass(value: NDArray[np.float64], _floor: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 - value


def _distance(value: NDArray[np.float64], floor: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):
        return np.sqrt(np.clip(value**2 - floor**2, 0, None))


def _log(value: NDArray[np.float64], _floor: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log(value, out=np.full_like(value, -np.inf), where=value > 0)


def _abs_log(value: NDArray[np.float64], floor: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.abs(_log(value, floor))


@dataclass(frozen=True)
class Scale:
    """How a metric's values become scores, before they are averaged within a net.

    `metric` is empty for total variation, which is judged under each of `CONVENTIONS`. The effect is a sum of
    scores, on a `relative` scale divided by their mean size.
    """

    metric: str
    score: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]
    relative: bool = False

    @property
    def quantities(self) -> tuple[str, ...]:
        """What is measured for it, as `quantity` has it."""
        return (self.metric,) if self.metric else tuple(CONVENTIONS)


def quantity(spec: str) -> str:
    """What the metric of a record is judged as: its convention of total variation, else its bare name."""
    recorded = recorded_metric(spec)
    return recorded.convention or recorded.name


SHARE = Scale("", _shared_mass)
DISTANCE = Scale("w1", _distance, relative=True)
LOG_SD = Scale("std_ratio", _log)
ABS_LOG_SD = Scale("std_ratio", _abs_log)


def _identity(effect: float) -> float:
    return effect


def _exponential(effect: float) -> float:
    return math.inf if effect > _OVERFLOW else math.exp(effect)


def _reciprocal_exponential(effect: float) -> float:
    return _exponential(-effect)


def _quotient(effect: float) -> float:
    """Quotient a / b whose symmetric relative difference (b - a) / ((a + b) / 2) is `effect`."""
    if effect <= -2:
        return math.inf
    return max(0.0, (2 - effect) / (2 + effect))


@dataclass(frozen=True)
class Part:
    """One statement: on nets of `depth`, the mean over nets of a sum of scores is above `threshold`.

    `terms` are (coefficient, rule, sigma). `natural` turns an effect into what people are shown (a monotone
    function) and `quantity` says what that is; `words` make a sentence of it. In both, ``{0}`` stands for the
    name of the first term's rule, ``{1}`` for that of the second's.
    """

    scale: Scale
    depth: int
    terms: tuple[tuple[float, str, float], ...]
    threshold: float
    natural: Callable[[float], float]
    quantity: str
    words: str

    @property
    def cells(self) -> tuple[tuple[str, float], ...]:
        """Rules and sigmas that have to be measured."""
        return tuple((rule, sigma) for _, rule, sigma in self.terms)

    @property
    def sigmas(self) -> str:
        """Its noise levels, for people."""
        return ", ".join(dict.fromkeys(f"{sigma:g}" for _, sigma in self.cells))

    @property
    def needed(self) -> str:
        """What the effect has to be, as people are shown it: ``> −0.01``."""
        sign = ">" if self.natural(1.0) > self.natural(-1.0) else "<"
        return f"{sign} {self.natural(self.threshold):.3g}".replace("-", "−")

    def effects(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Effects from mean scores, shape (nets, terms): shape (nets,); not finite where a score is not."""
        coefficients = np.array([coefficient for coefficient, _, _ in self.terms])
        with np.errstate(invalid="ignore"):
            effects: NDArray[np.float64] = scores @ coefficients
            if self.scale.relative:
                size = scores.mean(1)
                effects = np.divide(effects, size, out=np.zeros_like(effects), where=size != 0)
        return effects

    @property
    def printed(self) -> float:
        """The same, in natural units, of the means that the paper prints; NaN where it prints none."""
        measured = PAPERS_OWN if self.scale is SHARE else metric(self.scale.metric)
        components = ("0", "1", "2") if measured.component == "output" else ("",)
        scores = []
        for rule, sigma in self.cells:
            nets = (ACTIVATION, self.depth, sigma, rule)
            cells = [printed(measured.published, *nets, each) for each in components]
            means = np.array([cell.mean for cell in cells if cell])
            if len(means) != len(components):
                return math.nan
            values = measured.shown(means)  # 1 - (1 - TV) is the TV again
            scores.append(self.scale.score(values, np.zeros_like(values)).mean())
        return self.natural(float(self.effects(np.array([scores]))[0]))


@dataclass(frozen=True)
class Claim:
    """Something the paper says: its own words, how we read them, and the parts they come to."""

    key: str
    title: str
    source: str
    quote: str
    reading: str
    parts: tuple[Part, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the conventions that it is judged under; one empty name where there is no choice."""
        return tuple(CONVENTIONS) if any(part.scale is SHARE for part in self.parts) else ("",)

    @property
    def where(self) -> str:
        """Nets that it is about, for people."""
        depths = sorted({part.depth for part in self.parts})
        return ", ".join(NetKind(ACTIVATION, depth).label for depth in depths)


# Parts ----------------------------------------------------------------------------------------------------


def _shared_mass_parts(
    better: str, worse: str, sigmas: Iterable[float], margin: float = 0.0
) -> tuple[Part, ...]:
    """1 - TV of one rule is above that of another, or no more than `margin` below it."""
    return tuple(
        Part(
            SHARE,
            4,
            ((1.0, better, sigma), (-1.0, worse, sigma)),
            0.0 - margin,
            _identity,
            "1 − TV: {0} − {1}",
            f"1 − TV of {{0}} is {{size}} {{side}} that of {{1}} at σ = {sigma:g}",
        )
        for sigma in sigmas
    )


def _distance_parts(depth: int, better: str, worse: str, factor: float = 1.0) -> tuple[Part, ...]:
    """W1 of one rule is below `factor` times that of another."""
    return tuple(
        Part(
            DISTANCE,
            depth,
            ((1.0, worse, sigma), (-1.0, better, sigma)),
            2 * (1 - factor) / (1 + factor),
            _quotient,
            "W1: {1} / {0}",
            f"W1 of {{1}} is {{value}} times that of {{0}} at σ = {sigma:g}",
        )
        for sigma in _W1_SIGMAS
    )


def _deviation_parts(rule: str, sign: int, sigmas: Iterable[float], factor: float = 1.0) -> tuple[Part, ...]:
    """The predicted sd is above `factor` times the true one (`sign` 1), or below 1/factor of it (-1)."""
    return tuple(
        Part(
            LOG_SD,
            4,
            ((float(sign), rule, sigma),),
            math.log(factor),
            _exponential if sign > 0 else _reciprocal_exponential,
            "sd: {0} / true",
            f"sds of {{0}} are {{value}} times the true ones at σ = {sigma:g}",
        )
        for sigma in sigmas
    )


def _small_deviation(rule: str, sigma: float) -> Part:
    return Part(
        ABS_LOG_SD,
        4,
        ((-1.0, rule, sigma),),
        -SD_MARGIN,
        _reciprocal_exponential,
        "sd: factor by which {0} is off",
        f"sds of {{0}} are off by a factor of {{value}} at σ = {sigma:g}",
    )


def _growing_deviation(rule: str, small: float, large: float) -> Part:
    return Part(
        ABS_LOG_SD,
        4,
        ((1.0, rule, large), (-1.0, rule, small)),
        0.0,
        _exponential,
        "factor at the larger σ / at the smaller, {0}",
        f"the factor by which sds of {{0}} are off is {{value}} times as large "
        f"at σ = {large:g} as at σ = {small:g}",
    )


def _inverse_deviations(sigma: float) -> tuple[Part, ...]:
    """Ratios of SDP and DVIA are each other's inverse, to within `SIMILAR_FACTOR` either way."""
    return tuple(
        Part(
            LOG_SD,
            4,
            ((sign, "sdp", sigma), (sign, "dvia", sigma)),
            -math.log(SIMILAR_FACTOR),
            _exponential if sign > 0 else _reciprocal_exponential,
            "sd ratios: SDP × DVIA",
            f"ratio of SDP times ratio of DVIA is {{value}} at σ = {sigma:g} (1: exact opposites)",
        )
        for sign in (1.0, -1.0)
    )


# Claims ---------------------------------------------------------------------------------------------------

_ON_TV = "Section “Experimental Evaluation of SDP”, on Table 1"
_ON_W1 = "Section “Experimental Evaluation of SDP”, on Table 2"
_ON_SD = "caption of Table 28"
_OWN_LARGE = f"σ ≥ {min(_LARGE):g} is “large” here"
_MEANS = "Ratios are averaged as logarithms over outputs and inputs."


def _w1_claims(depth: int, note: str) -> tuple[Claim, Claim]:
    return (
        Claim(
            f"w1-dvia-{depth}",
            f"SDP keeps up with DVIA in W1, {depth} layers",
            _ON_W1,
            "SDP is consistently competitive with the best results from DVIA",
            f"At every σ of Table 2, W1 of SDP is less than {W1_MARGIN:g} times that of DVIA. {note}",
            _distance_parts(depth, "sdp", "dvia", W1_MARGIN),
        ),
        Claim(
            f"w1-marginal-{depth}",
            f"SDP and DVIA beat marginal moment matching in W1, {depth} layers",
            "introduction, and the columns of Table 2",
            "superior to covariance-free marginal moment matching approaches",
            f"At every σ of Table 2, W1 is smaller; said of SDP, and read off the table for DVIA. {note}",
            _distance_parts(depth, "sdp", "marginal_moment_matching")
            + _distance_parts(depth, "dvia", "marginal_moment_matching"),
        ),
    )


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "tv-dvia",
        "SDP is at least as good as DVIA in 1 − TV",
        _ON_TV,
        "SDP performs slightly superior to the more expensive DVIA approach",
        f"The weaker reading: at every σ, 1 − TV of SDP is less than {TV_MARGIN:g} below that of DVIA.",
        _shared_mass_parts("sdp", "dvia", _TV_SIGMAS, TV_MARGIN),
    ),
    Claim(
        "tv-dvia-better",
        "SDP is better than DVIA in 1 − TV",
        _ON_TV,
        "SDP performs slightly superior to the more expensive DVIA approach",
        "The same words taken literally: above at every σ.",
        _shared_mass_parts("sdp", "dvia", _TV_SIGMAS),
    ),
    Claim(
        "tv-mc",
        "SDP is better than estimates from 100 samples in 1 − TV",
        _ON_TV,
        "SDP consistently outperforms MC estimation via 100 samples",
        "Above at every σ. The column “k=100” that the paper says this of is a misprint, it holds k=5.",
        _shared_mass_parts("sdp", _MC, _TV_SIGMAS),
    ),
    Claim(
        "tv-marginal-small",
        "Marginal moment matching is better than marginal SDP at σ = 0.1",
        _ON_TV,
        "for input σ=0.1 marginal moment matching has an advantage",
        "1 − TV of the first is above that of the second.",
        _shared_mass_parts("marginal_moment_matching", "marginal_sdp", (0.1,)),
    ),
    Claim(
        "tv-marginal-large",
        "Marginal SDP is better than marginal moment matching at σ > 0.1",
        _ON_TV,
        "while marginal SDP performs better in the other cases",
        "1 − TV of marginal SDP is above at every other σ of Table 1.",
        _shared_mass_parts("marginal_sdp", "marginal_moment_matching", _TV_SIGMAS[1:]),
    ),
    Claim(
        "tv-covariance",
        "SDP is better than marginal moment matching in 1 − TV",
        "introduction",
        "Our evaluation for multiple-layer architectures confirms that this shows a better performance "
        "compared to marginal moment matching for multi-layer nets",
        "1 − TV of SDP is above at every σ of Table 1, on its net.",
        _shared_mass_parts("sdp", "marginal_moment_matching", _TV_SIGMAS),
    ),
    *_w1_claims(4, "The net that Table 2 names."),
    *_w1_claims(6, "The net whose numbers Table 2 shows, by a misprint."),
    Claim(
        "sd-marginal",
        "Marginal rules underestimate standard deviations by a large factor",
        _ON_SD,
        "the methods which do not consider covariances (ours (w/o cov.) and Moment Matching) underestimate "
        "the output standard deviations by a large factor",
        f"At every σ, the predicted sd is less than 1/{LARGE_FACTOR:g} of the true one; “large” is not "
        f"defined, the {LARGE_FACTOR:g} is ours. {_MEANS}",
        _deviation_parts("marginal_sdp", -1, _TV_SIGMAS, LARGE_FACTOR)
        + _deviation_parts("marginal_moment_matching", -1, _TV_SIGMAS, LARGE_FACTOR),
    ),
    Claim(
        "sd-good",
        "SDP and DVIA get standard deviations right at σ = 0.1",
        _ON_SD,
        "both our method with covariances as well as DVIA achieve a good accuracy in this setting",
        f"“Good” is not defined. Ours: at the smallest σ, the mean |log ratio| is below {SD_MARGIN:g}.",
        (_small_deviation("sdp", 0.1), _small_deviation("dvia", 0.1)),
    ),
    Claim(
        "sd-small",
        "SDP and DVIA get standard deviations better at small than at large σ",
        _ON_SD,
        "For small input standard deviations, our method w/ cov. as well as DVIA perform better.",
        "The mean |log ratio| at each σ of "
        f"{', '.join(f'{sigma:g}' for sigma in _SMALL)} is below that at each of "
        f"{', '.join(f'{sigma:g}' for sigma in _LARGE)}.",
        tuple(_growing_deviation(*which) for which in product(("sdp", "dvia"), _SMALL, _LARGE)),
    ),
    Claim(
        "sd-sdp",
        "SDP overestimates standard deviations at large σ",
        _ON_SD,
        "For large input standard deviations, our method tends to overestimate the output standard deviation",
        f"The predicted sd is above the true one; {_OWN_LARGE}. {_MEANS}",
        _deviation_parts("sdp", 1, _LARGE),
    ),
    Claim(
        "sd-dvia",
        "DVIA underestimates standard deviations at large σ",
        _ON_SD,
        "while DVIA underestimates the standard deviation",
        f"The predicted sd is below the true one; {_OWN_LARGE}. {_MEANS}",
        _deviation_parts("dvia", -1, _LARGE),
    ),
    Claim(
        "sd-opposite",
        "Ratios of SDP and DVIA are similar in size and opposite",
        _ON_SD,
        "The ratios for our method and DVIA (while going into opposite directions) are similar, e.g., 2.6095 "
        "for our method and 1/0.3375=2.9629 for DVIA.",
        f"SDP’s ratio is above 1, DVIA’s below 1, and their product between 1/{SIMILAR_FACTOR:g} and "
        f"{SIMILAR_FACTOR:g}; “similar” is not defined, "
        f"{SIMILAR_FACTOR:g} is the usual bound of bioequivalence, and wider than the paper’s example. "
        f"{_OWN_LARGE}. {_MEANS}",
        _deviation_parts("sdp", 1, _LARGE)
        + _deviation_parts("dvia", -1, _LARGE)
        + tuple(part for sigma in _LARGE for part in _inverse_deviations(sigma)),
    ),
)


@dataclass(frozen=True)
class LeftOut:
    """Something the paper says of its simulations that no verdict is given on, and why."""

    quote: str
    reason: str


NOT_JUDGED: tuple[LeftOut, ...] = (
    LeftOut(
        "SDP has smaller W1 distances except for the area very close to μ=0",
        "One ReLU, one output: checked by quadrature in the section “One ReLU, exactly”, not by nets.",
    ),
    LeftOut(
        "at a fraction of the computational cost",
        "A time, not an accuracy: see the rules’ times under “Which rule when”.",
    ),
    LeftOut(
        "We also validated the evaluation methods by using a higher bin resolution, which also yielded very "
        "similar results.",
        "About the paper’s own bins, whose range is not stated; the conventions of total variation here "
        "differ more than a resolution does.",
    ),
    LeftOut(
        "We observe that SDP reduces the TV, illustrating the scalability of SDP to deeper and larger "
        "networks.",
        "On ResNet-18 and CIFAR-10, which these suites do not measure.",
    ),
    LeftOut(
        "Our approach is superior to prior moment matching approaches in terms of accuracy and computational "
        "cost",
        "A summary: its parts on accuracy are judged above, one by one.",
    ),
)
