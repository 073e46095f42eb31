"""Stored measurements: net, input, noise, rule and oracle, made again from a results file."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.experiments import chosen, predict
from sdp_bench.bench.experiments.base import Group
from sdp_bench.bench.experiments.law_group import LawGroup
from sdp_bench.bench.experiments.own_net import own_experiment
from sdp_bench.bench.identity import SeedRoot, digest
from sdp_bench.bench.manifests import METHODS
from sdp_bench.bench.metrics.oracle import Oracle, Prediction
from sdp_bench.bench.metrics.references import ORACLE_AGAIN, Reference
from sdp_bench.bench.nets.net import Net, net_from_bytes
from sdp_bench.bench.nets.own.net import OwnNet
from sdp_bench.bench.plugins.plugin import Plugin, plugin_of
from sdp_bench.bench.results.queries import Queries
from sdp_bench.bench.results.record import Run
from sdp_bench.bench.runs.plan import plan_of
from sdp_bench.bench.settings import Settings
from sdp_ref.rules import Propagator


@dataclass(frozen=True, eq=False)
class StoredMeasurement:
    """A stored measurement that can be made again.

    `rows`: its components as stored, see `Queries.find`. `settings`: those of its `run`. The group, and with
    it the input, is loaded when it is first used: a RunFailedError is raised if the key of the oracle cannot
    be reproduced, for example because the data have changed.
    """

    rows: list[dict[str, Any]]
    run: Run
    settings: Settings
    net: Net

    @property
    def first(self) -> dict[str, Any]:
        """The first component as stored."""
        return self.rows[0]

    @functools.cached_property
    def place(self) -> tuple[LawGroup, int]:
        """The group that it was measured in, and the position of its input there.

        Rules get the same batch again, because another batch size may round differently.
        """
        key = self.first["unit"]
        for group in groups_of(self.run, self.settings, [self.net]):
            for place, subject in enumerate(group.subjects):
                if subject.key.hex == key:
                    return group, place
        raise RunFailedError(
            f"net, input or settings no longer give the key {key}; the data or code has changed"
        )

    @functools.cached_property
    def oracle(self) -> Oracle:
        """Its samples are drawn when they are first used."""
        group, place = self.place
        sampling = group.settings.sampling
        return Oracle(group.net.build(), group.law[place], group.subjects[place].key, sampling)

    @property
    def rule(self) -> Propagator | Reference:
        """The measured rule or reference; a ValueError if it does not exist."""
        return self.settings.rule(self.first["rule"])

    def prediction(self, oracle: Oracle) -> tuple[Prediction, float]:
        """Return the prediction, from the same batch of inputs as before, and its time (s) per input."""
        rule, (group, place) = self.rule, self.place
        if isinstance(rule, Reference):
            return rule.predict(oracle), 0.0
        roots = [subject.key for subject in group.subjects]
        predicted, seconds, passes = predict.predict(rule, oracle.net, group.law, roots)
        return predict.prediction_of(rule, predicted[place], oracle, passes), statistics.median(seconds)


def stored_measurement(store: Queries, key: str, *, trusted: bool = False) -> StoredMeasurement:
    """Find a stored measurement that can be made again.

    `key` is ``unit/rule/metric`` as in the exported table, or a prefix of one. `trusted` allows the stored
    code of a plug-in rule or of a user's net to run. Raises UserError if the key is unknown or ambiguous, the
    measurement has no oracle, or it needs code that is not trusted, and RunFailedError without weights.
    """
    rows = _one(store.find(key), key, ("unit", "rule", "metric"), "measurement")
    first = rows[0]
    stored_run = store.run(first["run"])
    plugin = plugin_of(first["rule"], plugins_of(stored_run))
    if plugin:
        check_trust(plugin, trusted=trusted)
    if first["net"] is None:
        raise UserError("this measurement has no oracle; run its experiment again to repeat it")
    if first["weights"] is None:
        raise RunFailedError("the results do not contain the weights of this net; there is nothing to replay")
    net = net_of(first["weights"], trusted=trusted)
    return StoredMeasurement(rows, stored_run, settings_of(stored_run, trusted=trusted), net)


def check_trust(plugin: Plugin, *, trusted: bool) -> None:
    """Raise a UserError if the stored code of a plug-in rule is not `trusted`."""
    if not trusted:
        raise UserError(
            f"rule '{plugin.name}' ({plugin.address}) is not built in; its code is stored with the results: "
            "--trust-code runs it, if you trust the source of this file"
        )


def net_of(weights: bytes, *, trusted: bool) -> Net:
    """Return a stored net, as :func:`check_trust` allows."""
    net = net_from_bytes(weights, "stored")
    if not isinstance(net, OwnNet):
        return net
    if not trusted:
        raise UserError(
            f"a net of yours ({net.architecture.name}) is not replayed: its code is not stored as trusted; "
            "--trust-code runs it, if you trust the source of this file, and `sdp-bench validate --net` "
            "measures it from its file"
        )
    return net.as_trusted()


def _one(rows: list[dict[str, Any]], key: str, columns: tuple[str, ...], noun: str) -> list[dict[str, Any]]:
    """Return the rows with this key, or those of the only key that begins with it; a UserError otherwise."""
    names = ["/".join(str(row[column]) for column in columns) for row in rows]
    found = [key] if key in names else sorted(set(names))
    if not found or not key:
        raise UserError(f"no {noun} has a key that begins with '{key}'; results.csv lists them")
    if len(found) > 1:
        shown = "\n  ".join(found[:10]) + ("\n  ..." if len(found) > 10 else "")
        raise UserError(f"'{key}' begins the keys of {len(found)} {noun}s; name one:\n  {shown}")
    return [row for row, name in zip(rows, names, strict=True) if name == found[0]]


def groups_of(stored_run: Run, settings: Settings, nets: Sequence[Net]) -> list[LawGroup]:
    """Return the groups of a stored run that have an oracle, for some of its nets.

    Without nets, return the groups of experiments that bring their own.
    """
    groups: list[Group] = []
    for net in nets:
        if isinstance(net, OwnNet):
            own, own_settings, _ = own_experiment(net, settings)
            groups += plan_of([own], own_settings, [net]).groups
    plain = [net for net in nets if not isinstance(net, OwnNet)]
    if plain or not nets:
        experiments = [each for each in chosen(list(stored_run.experiments)) if each.has_oracle]
        groups += plan_of(experiments, settings, plain).groups
    return [group for group in groups if isinstance(group, LawGroup)]


def settings_of(stored_run: Run, *, trusted: bool = False) -> Settings:
    """Return the settings of a stored run.

    Planning a run tries all rules. Rules with stored code are therefore left out unless they are `trusted`.
    """
    settings = Settings.from_dict(stored_run.settings)
    if trusted:
        return replace(settings, plugins=tuple(each.as_trusted() for each in settings.plugins))
    names = {plugin.name for plugin in settings.plugins}
    rules = settings.rules and tuple(rule for rule in settings.rules if rule not in names)
    return replace(settings, rules=rules, plugins=())


def plugins_of(stored_run: Run) -> tuple[Plugin, ...]:
    """Return the plug-in rules of a run; their code is not run."""
    return Settings.from_dict(stored_run.settings).plugins


def description(store: Queries, prefix: str) -> dict[str, Any]:
    """Return how an oracle of a results file was made, without drawing it again.

    `prefix` is the key of the oracle (the first part of a measurement's key), or a prefix of it. The result
    includes the metrics measured against the oracle, the results of a second, independent oracle if the run
    had one as a reference, the run's versions, and a hash of all entries. A UserError is raised if the key is
    unknown or ambiguous.
    """
    rows = _one([row for row in store.find(prefix) if row["net"]], prefix, ("unit",), "oracle")
    first = rows[0]
    key, run = str(first["unit"]), store.run(first["run"])
    again = [row for row in rows if row["rule"] == ORACLE_AGAIN.name]
    content = {
        "key": key,
        **{name: first[name] for name in ("net", "input", "sigma")},
        "method": METHODS[first["sampler"]],
        **{name: first[name] for name in ("sampler", "samples")},
        "precision": sorted({row["precision"] for row in rows if row["precision"]}),
        "seed": SeedRoot(key).seed("oracle"),
        "metrics": sorted({row["metric"] for row in rows}),
        "second draw": [
            {name: row[name] for name in ("metric", "component", "value", "floor95", "stderr")}
            for row in again
        ],
        "run": run.id,
        "versions": run.environment,
    }
    return {**content, "hash": digest(content)[:16]}
