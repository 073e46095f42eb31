"""Versions that a measurement rests on, as text: a record is current if its text equals the current one."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import fields, is_dataclass

import pandas as pd

from sdp_ref.rules import Propagator, Rule

from ..metrics import Metric
from ..metrics import metric as metric_of
from ..metrics.oracle import ORACLE_VERSION
from ..metrics.references import Reference
from ..plugins.plugin import Plugin, plugin_of
from ..rules import rule_of


def of_measurement(rule: str, metric: str, plugins: Sequence[Plugin] = ()) -> str:
    """Return the versions of a rule, a metric and the oracle: ``rule 1, metric 1, oracle 1``.

    `rule` and `metric` are specs as stored in records. The version of a plug-in rule, one of `plugins`, is
    the hash of its source. A ValueError is raised if the rule does not exist, and a UserError if the metric
    does not exist or a plug-in has no source.
    """
    plugin = plugin_of(rule, plugins)
    version = plugin.version if plugin else of_rule(_rule_of(rule))
    return f"rule {version}, metric {_metric_of(metric).version}, oracle {ORACLE_VERSION}"


def of_rule(rule: Propagator | Reference) -> str:
    """Return the version of a rule; ``1+2`` is that of a rule of version 1 that wraps one of version 2."""
    versions = [str(getattr(rule, "version", Rule.version))]
    if is_dataclass(rule):
        wrapped = [item.name for item in fields(rule) if item.metadata.get("rule")]
        versions += [of_rule(getattr(rule, name)) for name in wrapped]
    return "+".join(versions)


def of_method(version: int, training: int | None = None, rule: Propagator | None = None) -> str:
    """Return the versions of a method without an oracle: ``method 1, training 1, rule 1``.

    `version` is that of the experiment, `training` that of the training if trained models are cached, and
    `rule` the rule used in training.
    """
    parts = [f"method {version}"]
    parts += [] if training is None else [f"training {training}"]
    parts += [] if rule is None else [f"rule {of_rule(rule)}"]
    return ", ".join(parts)


# Functions, since `list` would import this module for values of calls, in search of experiments.
@functools.cache  # a run needs the versions of every cell
def _rule_of(spec: str) -> Propagator | Reference:
    return rule_of(spec)


@functools.cache
def _metric_of(spec: str) -> Metric:
    return metric_of(spec)


def are_current(frame: pd.DataFrame, rules: Collection[str], plugins: Sequence[Plugin]) -> pd.Series[bool]:
    """Return whether each measurement rests on the current versions, by the rows of a frame.

    The frame has columns `rule`, `metric_spec` and `fingerprint`. Only `rules` are checked;
    measurements of other rules count as current. `plugins` are the plug-ins among `rules`.
    """
    rows = frame[["rule", "metric_spec", "fingerprint"]].itertuples(index=False, name=None)
    current = [rule not in rules or of_measurement(rule, spec, plugins) == old for rule, spec, old in rows]
    return pd.Series(current, index=frame.index, dtype=bool)
