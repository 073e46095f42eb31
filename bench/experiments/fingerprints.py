"""Fingerprints of measurements: the code of a rule's predictions and of a metric's comparison."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence

import pandas as pd

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments import predict
from sdp_bench.bench.identity.fingerprint import PACKAGES, fingerprint, reached
from sdp_bench.bench.identity.keys import OracleKey
from sdp_bench.bench.metrics import metric as metric_of
from sdp_bench.bench.metrics.oracle import Oracle
from sdp_bench.bench.metrics.prediction import Prediction
from sdp_bench.bench.metrics.references import Reference
from sdp_bench.bench.noise import families
from sdp_bench.bench.plugins.asking import ask
from sdp_bench.bench.plugins.plugin import Plugin, plugin_of
from sdp_bench.bench.rules import rule_of
from sdp_ref.laws import (
    Cauchy,
    DiagonalGaussian,
    Empirical,
    Gaussian,
    LocationScale,
    Mixture,
    Quantiles,
    SymmetricStable,
)
from sdp_ref.laws.foreign import SampledLaw, TorchLaw

# Code that receives objects also depends on their classes.
_LAWS = (
    *(Cauchy, DiagonalGaussian, Empirical, Gaussian, LocationScale),
    *(Mixture, Quantiles, SampledLaw, SymmetricStable, TorchLaw),
)
_PREDICTION = (*_LAWS, families, predict.predict, predict.prediction_of, OracleKey)
_COMPARISON = (*_LAWS, Oracle, Prediction, OracleKey)


def of_measurement(rule: str, metric: str, plugins: Sequence[Plugin] = ()) -> str:
    """Return a hash, 16 hexadecimal digits, of all code that determines a measurement."""
    return _of_pair(rule, metric, plugin_of(rule, plugins))


def are_current(frame: pd.DataFrame, rules: Collection[str], plugins: Sequence[Plugin]) -> pd.Series[bool]:
    """Return whether each row of a frame was measured by the current code; True for rules not in `rules`.

    `frame` has the columns `rule`, `metric_spec` and `fingerprint`, as in a store.
    """
    rows = zip(frame["rule"], frame["metric_spec"], frame["fingerprint"], strict=True)
    kept = [rule not in rules or of_measurement(rule, metric, plugins) == mark for rule, metric, mark in rows]
    return pd.Series(kept, index=frame.index, dtype=bool)


def rule_code(spec: str, plugin: Plugin | None = None) -> tuple[object, ...]:
    """Return the objects that determine a rule's predictions, for `reached`."""
    if plugin:
        return *plugin.roots, *_PREDICTION
    rule = rule_of(spec)
    if isinstance(rule, Reference):
        return type(rule).predict, *_COMPARISON
    return rule, *_PREDICTION


def metric_code(spec: str) -> tuple[object, ...]:
    """Return the objects that determine a metric's numbers, given a prediction, for `reached`."""
    return metric_of(spec).measure, *_COMPARISON


@functools.cache  # called for every cell of a run
def _of_pair(rule: str, metric: str, plugin: Plugin | None) -> str:
    return fingerprint(rule=_of_rule(rule, plugin), metric=_of_metric(metric))


@functools.cache
def _of_rule(spec: str, plugin: Plugin | None) -> str:
    if plugin is None:
        return reached(*rule_code(spec))
    return ask(plugin.address, _of_plugin, plugin)


def _of_plugin(plugin: Plugin) -> str:
    try:
        return reached(*rule_code(plugin.name, plugin), packages=PACKAGES | plugin.code.packages)
    except ValueError as error:
        raise UserError(f"{plugin.address}: {error}") from error


@functools.cache
def _of_metric(spec: str) -> str:
    return reached(*metric_code(spec))
