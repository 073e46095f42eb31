"""Versions that a measurement rests on, as text: a record is current if its text is today's."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import fields, is_dataclass

import pandas as pd

from sdp_bench.bench.metrics import Metric
from sdp_bench.bench.metrics import metric as metric_of
from sdp_bench.bench.metrics.oracle import ORACLE_VERSION
from sdp_bench.bench.metrics.references import Reference
from sdp_bench.bench.plugins.plugin import Plugin, plugin_of
from sdp_bench.bench.rules import rule_of
from sdp_ref.rules import Propagator, Rule


def of_measurement(rule: str, metric: str, plugins: Sequence[Plugin] = ()) -> str:
    """Return the versions of a rule, a metric and the oracle: ``rule 1, metric 1, oracle 1``.

    The version of a plug-in rule is the hash of its source.

    `rule`, `metric`: specs, as records have them. `plugins`: plug-in rules of the run.

    Raises a ValueError if the rule does not exist. Raises a UserError if the metric does not exist, or a
    plug-in has no source.
    """
    plugin = plugin_of(rule, plugins)
    version = plugin.version if plugin else of_rule(_rule(rule))
    return f"rule {version}, metric {_metric(metric).version}, oracle {ORACLE_VERSION}"


def of_rule(rule: Propagator | Reference) -> str:
    """Return the version of a rule; ``1+2`` is that of a rule of version 1 that wraps one of version 2."""
    own = str(getattr(rule, "version", Rule.version))
    wrapped = [f.name for f in fields(rule) if f.metadata.get("rule")] if is_dataclass(rule) else []
    return "+".join([own, *(of_rule(getattr(rule, name)) for name in wrapped)])


def of_method(version: int, training: int | None = None, rule: Propagator | None = None) -> str:
    """Return the versions of a method without an oracle: ``method 1, training 1, rule 1``.

    `version`: version of the experiment. `training`: version of the training, where trained models are cached
    apart from their scores. `rule`: rule that a model is trained by.
    """
    parts = [f"method {version}"]
    parts += [] if training is None else [f"training {training}"]
    parts += [] if rule is None else [f"rule {of_rule(rule)}"]
    return ", ".join(parts)


@functools.cache  # a run needs the versions of every cell
def _rule(spec: str) -> Propagator | Reference:
    return rule_of(spec)


@functools.cache
def _metric(spec: str) -> Metric:
    return metric_of(spec)


def are_current(frame: pd.DataFrame, rules: Collection[str], plugins: Sequence[Plugin]) -> pd.Series[bool]:
    """Return whether each measurement rests on today's versions; those of other rules count as current.

    `frame`: with columns `rule`, `metric_spec` and `fingerprint`, as a store gives it. `rules`: rules to look
    at. `plugins`: plug-ins among these rules.

    The result is by the rows of the frame.
    """
    rows = zip(frame["rule"], frame["metric_spec"], frame["fingerprint"], strict=True)
    current = [
        rule not in rules or of_measurement(rule, metric, plugins) == old for rule, metric, old in rows
    ]
    return pd.Series(current, index=frame.index, dtype=bool)
