"""The metrics of the suites, each by the name and parameters under which it is stored."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from bench import keys
from bench.settings import Settings
from bench.truth import Prediction, Truth
from oracles.estimate import Estimate
from oracles.moments import bures, gaussian_kl, std_ratio
from oracles.partition import ScoreDifferences, total_variation_of_counts
from oracles.transport import wasserstein

Measurement = tuple[str, Estimate]
"""Component ("" if the metric has one number only) and estimate."""


@dataclass(frozen=True)
class Metric:
    """A way to compare a prediction with the truth.

    Attributes
    ----------
    measure : callable of (Truth, Prediction)
        Yields measurements.
    settings : tuple of str
        The settings that its number depends on, beside those of the oracle.
    modules : tuple of str
        Where its numerics are.
    unit : str
    """

    measure: Callable[[Truth, Prediction], Iterator[Measurement]]
    settings: tuple[str, ...]
    modules: tuple[str, ...]
    unit: str = "1"


def _total_variation(truth: Truth, prediction: Prediction, *, partition: str) -> Iterator[Measurement]:
    counts = truth.partition(partition).counts(prediction.samples)
    yield "", total_variation_of_counts(truth.counts(partition)[0], counts, truth.floors(partition)[0])


def _tv_difference(truth: Truth, prediction: Prediction) -> Iterator[Measurement]:
    partition = truth.partition("difference")
    assert isinstance(partition, ScoreDifferences)
    counts = partition.counts(prediction.samples)
    for (i, j), oracle, rule, floor in zip(
        partition.pairs, truth.counts("difference"), counts, truth.floors("difference"), strict=True
    ):
        yield f"{i}-{j}", total_variation_of_counts(oracle, rule, floor)


def _w1(truth: Truth, prediction: Prediction) -> Iterator[Measurement]:
    points = truth.settings.w1_points
    yield "", wasserstein(truth.samples, prediction.samples, points, floor=truth.w1_floor)


def _std_ratio(truth: Truth, prediction: Prediction) -> Iterator[Measurement]:
    for output, estimate in enumerate(std_ratio(truth.moments, prediction.law)):
        yield str(output), estimate


def _bures(truth: Truth, prediction: Prediction) -> Iterator[Measurement]:
    yield "", bures(truth.moments, prediction.law)


def _gaussian_kl(truth: Truth, prediction: Prediction) -> Iterator[Measurement]:
    yield "", gaussian_kl(truth.moments, prediction.law)


def _min_eigenvalue(_truth: Truth, prediction: Prediction) -> Iterator[Measurement]:
    values = torch.linalg.eigvalsh(prediction.law.covariance[0].double())
    largest = float(values[-1])
    smallest = float(values[0]) / largest if largest > 0 else 0.0
    yield "", Estimate(smallest, 0.0, 0.0, 0.0)


_PARTITION = ("oracles.partition", "oracles.sampling")
_MOMENTS = ("oracles.moments", "oracles.sampling")

METRICS: dict[str, Metric] = {
    "tv_headline": Metric(
        functools.partial(_total_variation, partition="headline"), ("cells", "pilot_samples"), _PARTITION
    ),
    "tv_paper": Metric(
        functools.partial(_total_variation, partition="paper"),
        ("bins", "bin_range", "pilot_samples"),
        _PARTITION,
    ),
    "tv_class": Metric(functools.partial(_total_variation, partition="class"), (), _PARTITION),
    "tv_difference": Metric(_tv_difference, ("difference_bins", "pilot_samples"), _PARTITION),
    "w1": Metric(_w1, ("w1_points", "w1_pairs"), ("oracles.transport", "oracles.sampling"), "output"),
    "std_ratio": Metric(_std_ratio, (), _MOMENTS),
    "bures": Metric(_bures, (), _MOMENTS, "output"),
    "gaussian_kl": Metric(_gaussian_kl, (), _MOMENTS, "nat"),
    "min_eigenvalue": Metric(_min_eigenvalue, (), ()),
}


def spec(name: str, settings: Settings) -> str:
    """Metric as text, with the settings that its number depends on: ``tv_headline:cells=512,...``."""
    options = ",".join(f"{key}={getattr(settings, key)}" for key in METRICS[name].settings)
    return f"{name}:{options}" if options else name


def of_spec(text: str) -> Metric:
    """Metric that a spec names."""
    return METRICS[text.partition(":")[0]]


def fingerprint(rule_module: str, metric_spec: str) -> str:
    """Hash of the code that could change a number: the rule's, the metric's and their numerics'."""
    metric = of_spec(metric_spec)
    measure = metric.measure
    function = measure.func if isinstance(measure, functools.partial) else measure
    return _fingerprint(rule_module, metric.modules, function)


@functools.cache
def _fingerprint(rule_module: str, modules: tuple[str, ...], function: Callable[..., object]) -> str:
    return keys.digest(
        keys.source_fingerprint(rule_module, *modules),
        keys.code_fingerprint("bench.truth", "bench.predict", "bench.keys", "sdp_ref.rules"),
        keys.code_of(inspect.getsource(function)),
    )[:16]
