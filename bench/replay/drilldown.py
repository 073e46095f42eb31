"""Drill-down into one stored measurement: the error of its rule by layer, and its laws."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments import costs, predict, versions
from sdp_bench.bench.identity import OracleKey
from sdp_bench.bench.metrics.oracle import Oracle, Prediction
from sdp_bench.bench.metrics.references import Reference
from sdp_bench.bench.replay.error_by_layer import ErrorByLayer, error_by_layer
from sdp_bench.bench.replay.layers import Layer, LayerMoments, layers_of, merged, sample_layers
from sdp_bench.bench.replay.stored import StoredMeasurement, find, stored_measurement
from sdp_bench.bench.results.queries import Queries
from sdp_bench.oracles.estimate.tails import heavy_tailed
from sdp_bench.oracles.sampling.forward import in_threads
from sdp_ref.errors import UnsupportedError
from sdp_ref.laws import DiagonalGaussian, Law
from sdp_ref.rules import MarginalMomentMatching, MomentMatching, Propagator


@dataclass(frozen=True)
class Drilldown:
    """The content of a drill-down page.

    `key`: ``unit/rule/metric``. `record`: the first component as stored. `components`: all components.
    `noise`: family of the noise. `net`: `label`, `activation`, `depth`, `seed`, `digest`, `recipe` and
    `accuracy`. `errors`: None if there are no errors by layer; `missing` gives the reason. `skipped`: layers
    after which the rule could not be applied, so that they were merged with the next ones. `own_reference`:
    whether the rule's own integrals are the exact reference of each layer.
    """

    key: str
    record: dict[str, Any]
    components: list[dict[str, Any]]
    noise: str
    net: dict[str, Any]
    oracle: Oracle
    prediction: Prediction
    errors: ErrorByLayer | None
    missing: str
    skipped: tuple[str, ...]
    own_reference: bool = False


def _require_current(made: StoredMeasurement) -> None:
    """Raise a UserError if a measurement rests on other versions than the current ones."""
    rule, metric = made.first["rule"], made.first["metric"]
    if made.first["fingerprint"] != versions.of_measurement(rule, metric, made.settings.plugins):
        raise UserError(
            f"{rule}, {metric.partition(':')[0]} or the oracle has another version since it was measured; "
            "run the experiment again"
        )


@dataclass(frozen=True, eq=False)
class Truth:
    """The true laws of a net, an input and their noise, which all rules share.

    `layers`: None if there are no moments by layer; `missing` gives the reason.
    """

    oracle: Oracle
    layers: LayerMoments | None
    missing: str

    @classmethod
    def of(cls, oracle: Oracle) -> Truth:
        """Draw an oracle and its layers."""
        oracle.samples  # noqa: B018
        try:
            return cls(oracle, _layer_moments(oracle), "")
        except ValueError as error:
            return cls(oracle, None, str(error))


def effort(store: Queries, key: str, *, trusted: bool = False) -> costs.Effort:
    """Estimate the effort of a drill-down; arguments as in `drill`.

    A UserError is raised if the key is unknown or ambiguous, or the measurement has no drill-down: a
    reference, a user's net, a measurement without an oracle, or a rule with code that is not trusted. A
    RunFailedError is raised if the weights are not stored.
    """
    found = find(store, key, trusted=trusted)
    first = found.rows[0]
    _no_reference(first["rule"], found.settings.rule(first["rule"]))
    return costs.of_drilldown(found.net, first["samples"], first["rule"])


def _no_reference(name: str, rule: Propagator | Reference) -> Propagator:
    if isinstance(rule, Reference):
        raise UserError(f"'{name}' is a reference and no rule: there is nothing to drill into")
    return rule


def drill(
    store: Queries,
    key: str,
    *,
    trusted: bool = False,
    known: dict[str, Truth] | None = None,
) -> Drilldown:
    """Make a stored measurement's laws again, and find the layers in which its error arises.

    `key` is ``unit/rule/metric``, or a prefix of one. `trusted` allows stored code of a plug-in rule to run.
    `known` holds the truth by unit; that of the last unit is kept there for its next rule.

    A UserError is raised if the key is unknown or ambiguous or belongs to a reference, or if rule, metric or
    oracle have another version now, so that other laws would be made than those measured. A RunFailedError is
    raised if weights or data are missing; see `sdp_bench.bench.replay.stored.stored_measurement`.
    """
    made = stored_measurement(store, key, trusted=trusted)
    first = made.first
    rule = _no_reference(first["rule"], made.rule)
    _require_current(made)
    known = {} if known is None else known
    if (truth := known.get(first["unit"])) is None:
        truth = Truth.of(made.oracle)
        known.clear()
        known[first["unit"]] = truth
    made = replace(made, oracle=truth.oracle)
    prediction, _ = made.prediction()
    found: ErrorByLayer | None = None
    missing, skipped = truth.missing, tuple[str, ...]()
    if truth.layers is not None:
        try:
            found, skipped = rule_errors(rule, made.oracle, truth.layers)
        except (ValueError, UnsupportedError) as error:
            missing = str(error)
    return Drilldown(
        key=f"{first['unit']}/{first['rule']}/{first['metric']}",
        record=first,
        components=made.rows,
        noise=made.group.noise.family,
        net=_net(made),
        oracle=made.oracle,
        prediction=prediction,
        errors=found,
        missing=missing,
        skipped=skipped,
        own_reference=found is not None and isinstance(rule, MomentMatching | MarginalMomentMatching),
    )


def rule_errors(
    rule: Propagator,
    oracle: Oracle,
    layer_moments: LayerMoments | None = None,
) -> tuple[ErrorByLayer, tuple[str, ...]]:
    """Return the errors of a rule by layer, and the layers after which the rule failed.

    The rule is applied to the net truncated after each layer, with its seed for the whole net. A layer after
    which it fails is merged with the next ones. `oracle` determines net, input and seeds; moments of layers
    are those of its samples, or `layer_moments` if they are known.

    A ValueError is raised if the noise or the predicted law has no moments, or the net cannot be divided into
    layers or is too wide. An UnsupportedError is raised if the rule fails for the whole net.
    """
    layer_moments = layer_moments or _layer_moments(oracle)
    double = layers_of(copy.deepcopy(oracle.net).cpu().double(), oracle.law.location)
    # in a thread of its own, of which each step has one: matrices of a layer are too small for more
    (asked,) = in_threads(iter([functools.partial(_laws_by_layer, rule, double, oracle)]))
    parts = [merged(double[a:b]) for a, b in itertools.pairwise(asked.cuts)]
    moments, shapes = layer_moments.moments, layer_moments.shapes
    kept = LayerMoments(tuple(moments[c] for c in asked.cuts), tuple(shapes[c] for c in asked.cuts))
    found = error_by_layer(
        parts,
        kept,
        asked.laws,
        independent=asked.independent,
        seed=oracle.key.seed("layers"),
    )
    return found, tuple(asked.skipped)


@dataclass
class _Asked:
    """Laws that a rule predicts for a net truncated after its layers: at the input and at `cuts`."""

    laws: list[tuple[Tensor, Tensor]]
    cuts: list[int]
    skipped: list[str]
    independent: bool


def _laws_by_layer(rule: Propagator, layers: Sequence[Layer], oracle: Oracle) -> _Asked:
    wide = oracle.law.to(device="cpu", dtype=torch.float64)
    asked = _Asked([_moments(wide)], [0], [], independent=True)
    for place in range(1, len(layers) + 1):
        try:
            predicted = _after(rule, layers[:place], wide, oracle.key)
            pair = _moments(predicted)
        except (ValueError, UnsupportedError, NotImplementedError) as error:
            if place == len(layers):
                raise
            asked.skipped.append(f"{layers[place - 1].label} at '{layers[place - 1].paths[-1]}': {error}")
            continue
        asked.independent &= isinstance(predicted, DiagonalGaussian)
        asked.laws.append(pair)
        asked.cuts.append(place)
    return asked


def _layer_moments(oracle: Oracle) -> LayerMoments:
    if heavy_tailed(oracle.law):
        raise ValueError("this noise has no moments, so that no errors by layer can be told")
    key, (net, law) = oracle.key, oracle.drawn
    return sample_layers(
        layers_of(copy.deepcopy(net).cpu(), law.location),
        law.to(device="cpu"),
        key.samples,
        seed=key.seed("oracle"),
        sampler=oracle.sampler,
    )


def _after(rule: Propagator, layers: Sequence[Layer], law: Law, key: OracleKey) -> Law:
    """Return the law that a rule predicts for the net that ends after these layers."""
    cut: nn.Module = nn.Sequential(*layers).eval()
    propagate: Callable[[Law], Law] = predict.prepared(rule, cut, predict.seeds_of(rule, [key]))
    with torch.no_grad():
        return propagate(law)


def _moments(law: Law) -> tuple[Tensor, Tensor]:
    mean, covariance = law.mean[0].flatten().double(), law.covariance[0].double()
    if not (bool(torch.isfinite(mean).all()) and bool(torch.isfinite(covariance).all())):
        raise ValueError("the rule gives moments that are not finite")
    return mean, (covariance + covariance.mT) / 2


def _net(made: StoredMeasurement) -> dict[str, Any]:
    net = made.net
    return {
        "label": net.architecture.label,
        "activation": net.architecture.activation,
        "depth": net.architecture.depth,
        "seed": net.seed,
        "digest": net.digest,
        "recipe": net.recipe.label,
        "accuracy": net.accuracy,
    }
