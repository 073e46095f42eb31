"""Drill-down into one stored measurement: the error of its rule by layer, and its laws."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from sdp_ref.errors import UnsupportedError
from sdp_ref.laws import DiagonalGaussian, Law
from sdp_ref.rules import MarginalMomentMatching, MomentMatching, Propagator

from ...oracles.estimate.tails import heavy_tailed
from ..environment import threads
from ..errors import RunFailedError, UserError
from ..experiments import predict, versions
from ..metrics.oracle import Oracle, Prediction
from ..metrics.references import Reference
from ..nets.net import Net
from ..plugins.plugin import Plugin
from ..results.folder import Stored
from .error_by_layer import ErrorByLayer, error_by_layer
from .layers import Laws, LayerMoments, layers_of, merged, sample_layers
from .replay import StoredMeasurement, stored_measurement


@dataclass(frozen=True)
class Drilldown:
    """The content of a drill-down page.

    `key`: ``unit/rule/metric``. `record`: the first component as stored. `components`: all components.
    `options`: those of ``replay`` that give a user's rule and net. `noise`: family of the noise.
    `true_moments`, `errors`: None if there are no errors by layer; `missing` gives the reason. `skipped`:
    layers after which the rule could not be applied, so that they were merged with the next ones.
    `own_reference`: whether the rule's own integrals are the exact reference of each layer.
    """

    key: str
    record: dict[str, Any]
    components: list[dict[str, Any]]
    options: tuple[str, ...]
    noise: str
    net: Net
    oracle: Oracle
    prediction: Prediction
    true_moments: LayerMoments | None
    errors: ErrorByLayer | None
    missing: str
    skipped: tuple[str, ...]
    own_reference: bool = False


def check(store: Stored, key: str, plugins: Sequence[Plugin] = (), nets: Sequence[str] = ()) -> None:
    """Raise the UserError of `drill` for a measurement without a drill-down, before any is made."""
    with suppress(RunFailedError, ValueError):  # reported when the drill-down is made
        _rule_of(stored_measurement(store, key, plugins, nets))


def _rule_of(found: StoredMeasurement) -> Propagator:
    rule = found.rule
    if isinstance(rule, Reference):
        raise UserError(f"'{found.first['rule']}' is a reference and no rule: there is nothing to drill into")
    return rule


def drill(
    store: Stored,
    key: str,
    plugins: Sequence[Plugin] = (),
    nets: Sequence[str] = (),
    *,
    previous: Drilldown | None = None,
) -> Drilldown:
    """Make a stored measurement's laws again, and find the layers in which its error arises.

    The true laws of `previous` are used again if it is of the same unit. Other arguments and errors are those
    of `sdp_bench.bench.replay.replay.stored_measurement`. A UserError is also raised for a reference, and if
    rule, metric or oracle have another version now, so that other laws would be made than those measured.
    """
    made = stored_measurement(store, key, plugins, nets)
    first, rule = made.first, _rule_of(made)
    if first["fingerprint"] != versions.of_measurement(
        first["rule"], first["metric_spec"], made.settings.plugins
    ):
        raise UserError(
            f"{first['rule']}, {first['metric'].partition(':')[0]} or the oracle has another version since "
            "it was measured; run the experiment again"
        )
    missing, moments, oracle = "", None, made.oracle
    if previous and previous.record["unit"] == first["unit"]:
        oracle, moments = previous.oracle, previous.true_moments
    try:
        moments = moments or true_moments(oracle)
    except ValueError as error:
        missing = str(error)
    prediction, _ = made.prediction(oracle)
    found: ErrorByLayer | None = None
    skipped: tuple[str, ...] = ()
    if moments is not None:
        try:
            found, skipped = rule_errors(rule, oracle, moments)
        except (ValueError, UnsupportedError) as error:
            missing = str(error)
    return Drilldown(
        key=f"{first['unit']}/{first['rule']}/{first['metric']}",
        record=first,
        components=made.rows,
        options=made.options,
        noise=made.place[0].noise.family,
        net=made.net,
        oracle=oracle,
        prediction=prediction,
        true_moments=moments,
        errors=found,
        missing=missing,
        skipped=skipped,
        own_reference=found is not None and isinstance(rule, MomentMatching | MarginalMomentMatching),
    )


def true_moments(oracle: Oracle) -> LayerMoments:
    """Return the moments of all layers, from the inputs of an oracle's samples.

    Raises ValueError if the noise has no moments, or the net has no layers or is too wide.
    """
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


def rule_errors(
    rule: Propagator, oracle: Oracle, layer_moments: LayerMoments
) -> tuple[ErrorByLayer, tuple[str, ...]]:
    """Return the errors of a rule by layer, and the layers after which the rule failed.

    The rule is applied to the net truncated after each layer, with its seed for the whole net. A layer after
    which it fails is merged with the next ones. `layer_moments` are the `true_moments` of the oracle. Raises
    ValueError if the predicted law has no moments, and UnsupportedError if the rule fails for the whole net.
    """
    layers = layers_of(copy.deepcopy(oracle.net).cpu().double(), oracle.law.location)
    wide = oracle.law.to(device="cpu", dtype=torch.float64)
    laws, cuts, independent = [_moments(wide)], [0], True
    skipped: list[str] = []
    for place, layer in enumerate(layers, 1):
        net = nn.Sequential(*layers[:place]).eval()
        try:
            propagate = predict.prepared(rule, net, predict.seeds_of(rule, [oracle.key]))
            with torch.no_grad(), threads(1):  # matrices of a layer are too small for more
                law = propagate(wide)
                moments = _moments(law)
        except (ValueError, UnsupportedError, NotImplementedError) as error:
            if place == len(layers):
                raise
            skipped.append(f"{layer.label} at '{layer.paths[-1]}': {error}")
            continue
        independent &= isinstance(law, DiagonalGaussian)
        laws.append(moments)
        cuts.append(place)
    parts = [merged(layers[a:b]) for a, b in itertools.pairwise(cuts)]
    at_cuts = LayerMoments(
        tuple(layer_moments.moments[cut] for cut in cuts), tuple(layer_moments.shapes[cut] for cut in cuts)
    )
    seed = oracle.key.seed("layers")
    return error_by_layer(parts, at_cuts, laws, independent=independent, seed=seed), tuple(skipped)


def _moments(law: Law) -> Laws:
    mean, covariance = law.mean[:1].flatten(1).double(), law.covariance[:1].double()
    if not (bool(torch.isfinite(mean).all()) and bool(torch.isfinite(covariance).all())):
        raise ValueError("the rule gives moments that are not finite")
    return Laws(mean, (covariance + covariance.mT) / 2)
