"""One stored measurement looked into: where its error enters, layer by layer, and what its laws look like."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments import fingerprints, predict
from sdp_bench.bench.identity.keys import OracleKey
from sdp_bench.bench.metrics.oracle import Oracle
from sdp_bench.bench.metrics.prediction import Prediction
from sdp_bench.bench.metrics.references import Reference
from sdp_bench.bench.replay.error_by_layer import ErrorByLayer, error_by_layer
from sdp_bench.bench.replay.layers import Layer, LayerMoments, layers_of, merged, sample_layers
from sdp_bench.bench.replay.stored import StoredMeasurement, stored_measurement
from sdp_bench.bench.results.store import Store
from sdp_bench.oracles.estimate.tails import GAUSSIAN, stability
from sdp_ref.errors import UnsupportedError
from sdp_ref.laws import DiagonalGaussian, Gaussian, Law
from sdp_ref.rules import MarginalMomentMatching, MomentMatching, Propagator


@dataclass(frozen=True)
class Drilldown:
    """What there is to show of one measurement.

    Attributes
    ----------
    key : str
        ``unit/rule/metric``.
    record : mapping
        Its first component as stored, `component` among it.
    components : list of mapping
        All of them.
    noise : str
        Symbolic name of the noise's scale, ``sigma``.
    net : mapping
        `label`, `activation`, `depth`, `seed`, `digest`, `recipe` and `accuracy`.
    oracle : Oracle
    prediction : Prediction
    errors : ErrorByLayer, optional
        None where nothing can be said by layer; `missing` says why.
    missing : str
    skipped : tuple of str
        Places where the rule could not be asked: layers were taken together there.
    own_reference : bool
        Whether the rule's own integrals are the reference that it is held against, layer by layer.
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
    """Raise a UserError if a measurement was made by other code than today's."""
    rule, metric = made.first["rule"], made.first["metric"]
    if made.first["fingerprint"] != fingerprints.of_measurement(rule, metric, made.settings.plugins):
        raise UserError(
            f"the code of {rule} or of {metric.partition(':')[0]} has changed since it was measured; "
            "run the experiment again"
        )


def drill(
    store: Store, key: str, *, trusted: bool = False, known: dict[str, LayerMoments] | None = None
) -> Drilldown:
    """Make a stored measurement's laws again and find where its error enters.

    Parameters
    ----------
    store : Store
    key : str
        ``unit/rule/metric``, or the beginning of one.
    trusted : bool
        Whether the stored code of a plug-in rule may be run.
    known : dict, optional
        True moments of the layers, by unit: those of the last one are kept there for its next rule.

    Returns
    -------
    Drilldown

    Raises
    ------
    UserError
        If the key is unknown, stands for several measurements, is that of a reference, which is no rule, or
        the code of rule or metric is not what it was: the laws made now would not be those measured.
    RunFailedError
        If weights or data are not there; see :func:`sdp_bench.bench.replay.stored.stored_measurement`.
    """
    made = stored_measurement(store, key, trusted=trusted)
    first = made.first
    rule = made.rule
    if isinstance(rule, Reference):
        raise UserError(f"'{first['rule']}' is a reference and no rule: there is nothing to drill into")
    _require_current(made)
    prediction, _ = made.prediction()
    found: ErrorByLayer | None = None
    missing, skipped = "", tuple[str, ...]()
    try:
        layer_moments = (known or {}).get(first["unit"]) or _layer_moments(made.oracle)
        if known is not None:
            known.clear()
            known[first["unit"]] = layer_moments
        found, skipped = rule_errors(rule, made.oracle, layer_moments)
    except (ValueError, UnsupportedError) as error:
        missing = str(error)
    return Drilldown(
        key=f"{first['unit']}/{first['rule']}/{first['metric']}",
        record=first,
        components=made.rows,
        noise=made.group.noise.parameter,
        net=_net(made),
        oracle=made.oracle,
        prediction=prediction,
        errors=found,
        missing=missing,
        skipped=skipped,
        own_reference=found is not None and isinstance(rule, MomentMatching | MarginalMomentMatching),
    )


def rule_errors(
    rule: Propagator, oracle: Oracle, layer_moments: LayerMoments | None = None
) -> tuple[ErrorByLayer, tuple[str, ...]]:
    """Errors of a rule by layer, for the net, input and seeds of an oracle.

    Parameters
    ----------
    rule : Propagator
        Asked for the net cut after each layer, with the seed that it has for the whole net.
    oracle : Oracle
        The layers' moments are those of its own samples.
    layer_moments : LayerMoments, optional
        These moments, where they are known already.

    Returns
    -------
    ErrorByLayer
    skipped : tuple of str
        Layers after which the rule failed: the next ones are taken together with them.

    Raises
    ------
    ValueError
        If the noise has no moments, the net cannot be cut or is too wide, or the rule's law has no moments.
    UnsupportedError
        If the rule fails for the whole net.
    """
    key = oracle.key
    layer_moments = layer_moments or _layer_moments(oracle)
    double = layers_of(copy.deepcopy(oracle.net).cpu().double())
    wide = oracle.law.to(device="cpu", dtype=torch.float64)
    laws, cuts, skipped = [_moments(wide)], [0], []
    independent = True
    for place in range(1, len(double) + 1):
        try:
            predicted = _after(rule, double[:place], wide, key)
            pair = _moments(predicted)
        except (ValueError, UnsupportedError, NotImplementedError) as error:
            if place == len(double):
                raise
            skipped.append(f"{double[place - 1].label} at '{double[place - 1].paths[-1]}': {error}")
            continue
        independent &= isinstance(predicted, DiagonalGaussian)
        laws.append(pair)
        cuts.append(place)
    parts = [merged(double[a:b]) for a, b in itertools.pairwise(cuts)]
    moments, shapes = layer_moments.moments, layer_moments.shapes
    kept = LayerMoments(tuple(moments[c] for c in cuts), tuple(shapes[c] for c in cuts))
    found = error_by_layer(parts, kept, laws, independent=independent, seed=key.seed("layers"))
    return found, tuple(skipped)


def _layer_moments(oracle: Oracle) -> LayerMoments:
    if stability(oracle.law) != GAUSSIAN:
        raise ValueError("this noise has no moments, so that no errors by layer can be told")
    key, net = oracle.key, copy.deepcopy(oracle.net).cpu()
    sampler: Any = key.sampler
    law = oracle.law.to(device="cpu")
    return sample_layers(layers_of(net), law, key.samples, seed=key.seed("oracle"), sampler=sampler)


def _after(rule: Propagator, layers: Sequence[Layer], law: Law, key: OracleKey) -> Law:
    """Law that a rule predicts for the net that ends after these layers."""
    cut: nn.Module = nn.Sequential(*layers).eval()
    propagate: Callable[[Law], Law] = predict.prepared(rule, cut, predict.seeds_of(rule, [key]))
    with torch.no_grad():
        return propagate(law)


def _moments(law: Law) -> tuple[Tensor, Tensor]:
    if not isinstance(law, Gaussian | DiagonalGaussian):
        raise ValueError(f"the rule gives a {type(law).__name__} law, which has no moments to compare")
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
