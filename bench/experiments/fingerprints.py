"""Fingerprints of measurements: what a rule predicts by, and what a metric compares by."""

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

# Code that works on objects which it is given rests on their classes too.
_LAWS = (
    *(Cauchy, DiagonalGaussian, Empirical, Gaussian, LocationScale),
    *(Mixture, Quantiles, SampledLaw, SymmetricStable, TorchLaw),
)
_PREDICTION = (*_LAWS, families, predict.predict, predict.prediction_of, OracleKey)
_COMPARISON = (*_LAWS, Oracle, Prediction, OracleKey)


def of_measurement(rule: str, metric: str, plugins: Sequence[Plugin] = ()) -> str:
    """Hash of all code that could change a number.

    Parameters
    ----------
    rule, metric : str
        Specs, as records have them.
    plugins : sequence of Plugin
        Among which the rule may be.

    Returns
    -------
    str
        16 hexadecimal digits.

    Raises
    ------
    ValueError
        If there is no such rule.
    UserError
        If there is no such metric, the code of a plug-in cannot be run, or a part of it has no source.
    """
    return _of_pair(rule, metric, plugin_of(rule, plugins))


def are_current(frame: pd.DataFrame, rules: Collection[str], plugins: Sequence[Plugin]) -> pd.Series[bool]:
    """Whether measurements of some rules are those of today's code; of other rules it is not asked.

    Parameters
    ----------
    frame : DataFrame
        With columns `rule`, `metric_spec` and `fingerprint`, as a store gives it.
    rules : collection of str
    plugins : sequence of Plugin
        Among which the rules may be.

    Returns
    -------
    Series of bool
        By the rows of the frame.
    """
    rows = zip(frame["rule"], frame["metric_spec"], frame["fingerprint"], strict=True)
    kept = [rule not in rules or of_measurement(rule, metric, plugins) == mark for rule, metric, mark in rows]
    return pd.Series(kept, index=frame.index, dtype=bool)


def rule_code(spec: str, plugin: Plugin | None = None) -> tuple[object, ...]:
    """What the predictions of a rule rest on, as :func:`reached` takes it."""
    if plugin:
        return *plugin.roots, *_PREDICTION
    rule = rule_of(spec)
    if isinstance(rule, Reference):
        return type(rule).predict, *_COMPARISON
    return rule, *_PREDICTION


def metric_code(spec: str) -> tuple[object, ...]:
    """What the numbers of a metric rest on, given a prediction, as :func:`reached` takes it."""
    return metric_of(spec).measure, *_COMPARISON


@functools.cache  # a run asks for every cell
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
