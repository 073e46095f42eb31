"""Reference moments after one non-linearity, from moments.json, and of other ops, from ops.json.

The files are made by tests/sdp_ref/make_conformance_fixtures.py, which shares nothing with sdp_ref: brute
quadrature of the definitions, with 30 digits for single units and 15 for pairs and for what reads several
components.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class Unit:
    """One unit: X ~ N(mean, std^2) and the moments of f(X).

    `spread` is the variance of (f(X) - E f(X))^2, from which standard errors follow.
    """

    mean: float
    std: float
    expectation: float
    variance: float
    spread: float


@dataclass(frozen=True)
class Pair:
    """Two units with correlation `rho` before the activation, and the covariance after it."""

    units: tuple[Unit, Unit]
    rho: float
    covariance: float
    spread: float


@dataclass(frozen=True)
class Moments:
    """X ~ N(mean, covariance), and mean and covariance of an op of it."""

    mean: Sequence[float]
    covariance: Sequence[Sequence[float]]
    expectation: Sequence[float]
    moments: Sequence[Sequence[float]]


def of_op(name: str) -> Sequence[Moments]:
    """Reference moments of an op of :data:`~sdp_ref.conformance.ops.OPS`: of independent components first."""
    return [Moments(**row) for row in _read("ops.json")[name]]


def known(activations: Iterable[str]) -> list[str]:
    """Those of some activations, by name, whose reference moments there are."""
    return [name for name in activations if name in _table()]


def pairs(activation: str) -> Sequence[Pair]:
    """Reference pairs of an activation that is :func:`known`."""
    return _table()[activation]


def pair(activation: str, mean: float) -> Pair:
    """The pair of two units N(mean, 1) with correlation 1/2; `mean` is 0, 2, -2 or 4."""
    for candidate in pairs(activation):
        first, second = candidate.units
        if (first.mean, second.mean, first.std, candidate.rho) == (mean, mean, 1.0, 0.5):
            return candidate
    raise KeyError(mean)


def single(activation: str) -> Sequence[Unit]:
    """Reference units, each (mean, std) once."""
    units = {(unit.mean, unit.std): unit for pair in pairs(activation) for unit in pair.units}
    return [units[key] for key in sorted(units)]


@functools.cache
def _table() -> dict[str, tuple[Pair, ...]]:
    return {name: tuple(_pair(row) for row in rows) for name, rows in _read("moments.json").items()}


@functools.cache
def _read(name: str) -> dict[str, list[dict[str, Any]]]:
    text = resources.files("sdp_ref.conformance").joinpath(name).read_text(encoding="utf-8")
    found: dict[str, list[dict[str, Any]]] = json.loads(text)
    return found


def _pair(row: dict[str, Any]) -> Pair:
    first, second = (
        Unit(*(row[key][i] for key in ("mean", "std", "expectation", "variance", "spread"))) for i in (0, 1)
    )
    return Pair((first, second), row["rho"], row["covariance"], row["spread"][2])
