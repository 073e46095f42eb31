"""Drill-down into one stored measurement: the error of its rule by layer."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd
import torch
from torch import nn

from sdp_ref.errors import UnsupportedError
from sdp_ref.laws import DiagonalGaussian, Law
from sdp_ref.rules import Propagator

from ...oracles.estimate.tails import heavy_tailed
from ..environment import threads
from ..errors import UserError
from ..experiments import predict, versions
from ..identity import OracleKey
from ..metrics import recorded_metric
from ..metrics.oracle import Oracle
from ..metrics.references import Reference
from .error_by_layer import error_by_layer
from .layers import Laws, Layer, LayerMoments, layers_of, merged, sample_layers
from .replay import StoredMeasurement


def drilldown(measurement: StoredMeasurement) -> pd.DataFrame:
    """Return the error of a measured rule by layer, with the columns and attributes of `error_by_layer`.

    The rule is applied to the net truncated after each layer, with its seed for the whole net. A layer after
    which it fails is merged with the next one; the column `note` then gives the reason. True moments come
    from the inputs of the oracle's samples. Contributions to the output are whitened if the metric weights
    all directions equally.

    Raises UserError for a reference, and if rule, metric or oracle have another version now, because their
    laws would differ from the measured ones. Raises ValueError if the noise or the predicted law has no
    moments, or the net has no layers or is too wide, and UnsupportedError if the rule fails for the whole
    net. Other errors are those of `measurement`.
    """
    rule = rule_of(measurement)
    _check_versions(measurement)
    oracle = measurement.oracle
    sampled = _sampled_moments(oracle)
    layers = layers_of(copy.deepcopy(oracle.net).cpu().double(), oracle.law.location)
    x = oracle.law.to(device="cpu", dtype=torch.float64)
    truncated = _laws_of_truncated_nets(rule, layers, x, oracle.key)
    # Layers after which the rule fails are merged with the next one.
    starts = [0, *truncated.layers[:-1]]
    parts = [merged(layers[start:end]) for start, end in zip(starts, truncated.layers, strict=True)]
    points = [0, *truncated.layers]
    moments = LayerMoments(
        tuple(sampled.moments[point] for point in points), tuple(sampled.shapes[point] for point in points)
    )
    frame = error_by_layer(
        parts,
        moments,
        [_moments(x), *truncated.laws],
        independent=truncated.independent,
        whitened=recorded_metric(measurement.first["metric_spec"]).whitens,
        seed=oracle.key.seed("layers"),
    )
    return frame.assign(note=truncated.notes)


def _check_versions(measurement: StoredMeasurement) -> None:
    record = measurement.first
    rule, metric = record["rule"], record["metric_spec"]
    if record["fingerprint"] != versions.of_measurement(rule, metric, measurement.settings.plugins):
        raise UserError(
            f"{rule}, {metric.partition(':')[0]} or the oracle has another version since it was measured; "
            "run the experiment again"
        )


@dataclass
class _TruncatedNets:
    """Laws of a rule for a net truncated after some of its layers."""

    layers: list[int] = field(default_factory=list)  # how many layers, counted from the input
    laws: list[Laws] = field(default_factory=list)
    independent: bool = True  # whether the components of all laws are independent
    # why the rule fails for nets with fewer layers, but more than the previous ones; mostly empty
    notes: list[str] = field(default_factory=list)


def _laws_of_truncated_nets(
    rule: Propagator, layers: Sequence[Layer], x: Law, key: OracleKey
) -> _TruncatedNets:
    """Apply a rule to a net truncated after each layer, with its seed for the whole net."""
    truncated = _TruncatedNets()
    reasons: list[str] = []
    for count, layer in enumerate(layers, 1):
        net = nn.Sequential(*layers[:count]).eval()
        try:
            propagate = predict.prepared(rule, net, predict.seeds_of(rule, [key]))
            with torch.no_grad(), threads(1):  # the matrices of a layer are too small for more
                law = propagate(x)
                moments = _moments(law)
        except (ValueError, UnsupportedError, NotImplementedError) as error:
            if count == len(layers):
                raise
            reasons.append(f"the rule fails after {layer.label} at '{layer.paths[-1]}': {error}")
            continue
        truncated.layers.append(count)
        truncated.laws.append(moments)
        truncated.independent &= isinstance(law, DiagonalGaussian)
        truncated.notes.append("; ".join(reasons))
        reasons = []
    return truncated


def rule_of(measurement: StoredMeasurement) -> Propagator:
    """Return the measured rule; raises UserError for a reference, which has no errors by layer."""
    rule = measurement.rule
    if isinstance(rule, Reference):
        raise UserError(f"'{measurement.first['rule']}' is a reference and does not propagate through layers")
    return rule


def _sampled_moments(oracle: Oracle) -> LayerMoments:
    """Return the true moments of all layers, from the inputs of an oracle's samples."""
    if heavy_tailed(oracle.law):
        raise ValueError(f"the input has {oracle.law.described}, without a finite variance")
    net, law = oracle.drawn
    return sample_layers(
        layers_of(copy.deepcopy(net).cpu(), law.location),
        law.to(device="cpu"),
        oracle.key.samples,
        seed=oracle.key.seed("oracle"),
        sampler=oracle.sampler,
    )


def _moments(law: Law) -> Laws:
    mean, covariance = law.mean[:1].flatten(1).double(), law.covariance[:1].double()
    if not (bool(torch.isfinite(mean).all()) and bool(torch.isfinite(covariance).all())):
        raise ValueError("the rule gives moments that are not finite")
    return Laws(mean, (covariance + covariance.mT) / 2)
