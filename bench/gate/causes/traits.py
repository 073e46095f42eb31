"""Features of cells and probes, and those shared by the ones in which a rule changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

import torch
from torch import nn

from sdp_bench.bench.gate.cells import Cell
from sdp_bench.bench.gate.probes import Probe, Residual, Way
from sdp_ref.laws import Cauchy, Gaussian, SymmetricStable

_LAYERS: dict[type[nn.Module], str] = {
    nn.Conv1d: "convolution of a row",
    nn.Conv2d: "convolution",
    nn.ConvTranspose2d: "transposed convolution",
    nn.MaxPool2d: "max pooling",
    nn.AvgPool2d: "average pooling",
    nn.BatchNorm1d: "batch normalisation",
    nn.BatchNorm2d: "batch normalisation",
    Residual: "residual sum",
}
_INPUTS = {Gaussian: "correlated input", Cauchy: "Cauchy input", SymmetricStable: "stable input"}


def traits(place: Cell | Probe) -> tuple[str, ...]:
    """Describe activation, layer types, input, noise level, depth and net of a cell or probe."""
    modules = list(place.build().modules())
    activations = [type(each).__name__ for each in modules if type(each).__module__.endswith("activation")]
    found = [*activations, *(_LAYERS[type(each)] for each in modules if type(each) in _LAYERS)]
    if type(place.law) in _INPUTS:
        found.append(_INPUTS[type(place.law)])
    if isinstance(place, Cell):
        layers = len(activations)
        found += [
            f"sigma {place.group.sigma:g}",
            f"{layers} hidden layer{'' if layers == 1 else 's'}",
            "committed net",
        ]
    else:
        found.append("probe net")
        if place.law.location.dtype == torch.float32:
            found.append("float32")
        if place.way is not Way.PREPARED:
            found.append(f"asked {place.way.value}")
    return tuple(dict.fromkeys(found))


def shared(some: Sequence[Cell | Probe], others: Sequence[Cell | Probe]) -> str:
    """Return features that all of `some` and none of `others` have, in words, or ''.

    ``GELU``: every single feature that separates them. Otherwise two features that do so together, ``sigma 10
    and 4 hidden layers``, or one that only the others have, ``no ReLU``.
    """
    if not some or not others:
        return ""
    ours, theirs = ([traits(place) for place in places] for places in (some, others))
    common = [trait for trait in ours[0] if all(trait in each for each in ours)]
    single = [trait for trait in common if not _any_has(theirs, (trait,))]
    if single:
        return ", ".join(single)
    for pair in combinations(common, 2):
        if not _any_has(theirs, pair):
            return " and ".join(pair)
    for trait in theirs[0]:
        if all(trait in each for each in theirs) and not _any_has(ours, (trait,)):
            return f"no {trait}"
    return ""


def _any_has(described: Iterable[Iterable[str]], wanted: Iterable[str]) -> bool:
    return any(set(wanted) <= set(each) for each in described)
