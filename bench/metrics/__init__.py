"""Metrics, which compare a prediction with an oracle, and the parser of their specs.

>>> from sdp_bench.bench.metrics import metric
>>> metric("tv_headline:cells=64").spec
'tv_headline:cells=64,pilot_samples=131072'
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sdp_ref.errors import not_found
from sdp_ref.registry import RegistryError, installed, loaded, members, spelled

from ..errors import UserError
from .base import Measurements, Metric

if TYPE_CHECKING:
    from .oracle import Oracle, Prediction

__all__ = ["Metric", "metric", "metrics", "options", "primary", "recorded_metric"]

ENTRY_POINTS = "sdp_bench.metrics"
"""Entry-point group in which an installed package registers its metrics."""


@functools.cache
def metrics() -> Mapping[str, type[Metric]]:
    """Return the metrics that come with the package, by name, in the order of tables."""
    return members(__name__, "sdp_bench.bench.metrics.base.Metric")


def metric(text: str, options: Mapping[str, Any] = MappingProxyType({})) -> Metric:
    """Return the metric that `text` names.

    `text` is a name, optionally with options: ``tv_headline``, ``tv_headline:cells=64``, or the full `spec`
    of a metric. `options` may hold options of any metric; each metric picks its own. Options in `text` take
    precedence, and options given in neither have their defaults. An unknown metric or option, or a value out
    of range, raises a UserError.
    """
    name, _, written = text.partition(":")
    pairs = (item.partition("=") for item in written.split(",") if item)
    return _kind(name).of({key: value for key, _, value in pairs}, options)


@functools.cache
def options() -> frozenset[str]:
    """Return the names of all options of the package's metrics."""
    return frozenset(option.name for kind in metrics().values() for option in fields(kind))


@functools.cache
def primary() -> tuple[str, ...]:
    """Return the metrics that rules are judged by; the first one that was measured counts."""
    return tuple(name for name, kind in metrics().items() if kind.primary)


@functools.cache
def recorded_metric(spec: str) -> Metric:
    """Return the metric of a record; a metric whose code is not installed is shown, but not ranked."""
    try:
        return metric(spec)
    except UserError as error:
        reason = error

    class Unknown(Metric):
        name = title = label = spec.partition(":")[0]
        better = ""

        def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:  # noqa: ARG002
            raise reason

    return Unknown()


def check(options: Mapping[str, Any]) -> None:
    """Raise a UserError if a value of an option is out of range for any metric."""
    for kind in metrics().values():
        kind.of({}, options)


def _kind(name: str) -> type[Metric]:
    name = spelled(name, metrics())
    if name in metrics():
        return metrics()[name]
    others = installed(ENTRY_POINTS, metrics())
    if name not in others:
        raise UserError(not_found("metric", name, (*metrics(), *others)))
    try:
        kind = loaded(others[name], type)
    except RegistryError as error:
        raise UserError(str(error)) from error
    # Records store the name, which must resolve to this metric again.
    if not issubclass(kind, Metric) or getattr(kind, "name", "") != name:
        raise UserError(f"{others[name].value} is not a subclass of Metric with the name '{name}'")
    return kind
