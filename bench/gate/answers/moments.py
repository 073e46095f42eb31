"""Predictions as numbers: moments, or a law without moments, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sdp_bench.bench.gate.documents import structure
from sdp_ref.laws import (
    Cauchy,
    DiagonalGaussian,
    Gaussian,
    Law,
    LocationScale,
    SymmetricStable,
    unchecked,
)

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PredictedMoments:
    """Predicted mean and covariance of one cell, or variances for a marginal rule."""

    mean: Array  # shape (m,)
    spread: Array  # shape (m, m) or (m,)
    seed: int | None = None  # of a sampling rule

    @classmethod
    def of(cls, law: Law, seed: int | None = None) -> PredictedMoments:
        """Return the moments of a law, batch 1; a ValueError if they do not exist or are not finite."""
        if isinstance(law, DiagonalGaussian | LocationScale):
            spread = law.variance.flatten(1)[0]
        else:
            spread = law.covariance[0]
        mean = law.mean.flatten(1)[0]
        if not bool(torch.isfinite(mean).all() and torch.isfinite(spread).all()):
            raise ValueError("the predicted moments are not finite")
        if bool((law.variance < 0).any()):
            raise ValueError("a predicted variance is negative")
        return cls(mean.detach().double().numpy(), spread.detach().double().numpy(), seed)

    @property
    def covariance(self) -> Array:
        return self.spread if self.spread.ndim == 2 else np.diag(self.spread)

    @property
    def law(self) -> Gaussian | DiagonalGaussian:
        """Return the Gaussian with these moments, batch 1."""
        mean, spread = torch.from_numpy(self.mean)[None], torch.from_numpy(self.spread)[None]
        if self.spread.ndim == 1:
            return unchecked(DiagonalGaussian, mean, spread)
        return unchecked(Gaussian, mean, spread)

    def equals(self, other: PredictedMoments) -> bool:
        return np.array_equal(self.mean, other.mean) and np.array_equal(self.spread, other.spread)

    def to_json(self) -> dict[str, Any]:
        name = "covariance" if self.spread.ndim == 2 else "variance"
        seed = {} if self.seed is None else {"seed": self.seed}
        return {**seed, "mean": self.mean.tolist(), name: self.spread.tolist()}

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> PredictedMoments:
        """Inverse of `to_json`; a ValueError for values that no moments can have."""
        plain = structure(entry, _Moments)
        if (plain.covariance is None) == (plain.variance is None):
            raise ValueError("moments need either a covariance or variances")
        spread = np.array(plain.variance if plain.covariance is None else plain.covariance, dtype=float)
        moments = cls(np.array(plain.mean, dtype=float), spread, plain.seed)
        width = len(plain.mean)
        if not width or spread.shape != (width,) * (1 if plain.covariance is None else 2):
            raise ValueError("moments of unequal size, or of no output")
        if bool((np.diag(moments.covariance) < 0).any()):
            raise ValueError("a negative variance")
        if plain.seed is not None and plain.seed < 0:
            raise ValueError("a negative seed")
        return moments


@dataclass(frozen=True)
class _Moments:
    """Moments as written to a file."""

    mean: list[float]
    covariance: list[list[float]] | None = None
    variance: list[float] | None = None
    seed: int | None = None


GAUSSIAN = "Gaussian"


@dataclass(frozen=True, eq=False)
class Answer:
    """Prediction for a probe: a law, or a refusal."""

    family: str = ""  # ``Gaussian``, ``Cauchy``, ``stable, alpha 1.5``; empty for a refusal
    # moments; for a law without moments, locations and squared scales
    moments: PredictedMoments | None = None
    refusal: str = ""  # type and message of the error; empty if there is a law

    @classmethod
    def of(cls, law: Law) -> Answer:
        """Return the answer of a law, batch 1.

        A ValueError is raised if it is not finite, or has no moments and is not stable.
        """
        if isinstance(law, Cauchy | SymmetricStable):
            name = "Cauchy" if isinstance(law, Cauchy) else f"stable, alpha {law.alpha:g}"
            as_moments = unchecked(DiagonalGaussian, law.location, law.scale.square())
            return cls(name, PredictedMoments.of(as_moments))
        name = GAUSSIAN if isinstance(law, Gaussian | DiagonalGaussian) else type(law).__name__
        return cls(name, PredictedMoments.of(law))

    @property
    def error(self) -> str:
        """Type of the error: ``UnsupportedError``."""
        return self.refusal.partition(":")[0]

    def to_json(self) -> dict[str, Any]:
        if self.moments is None:
            return {"refused": self.refusal}
        return {"family": self.family, **self.moments.to_json()}

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> Answer:
        """Inverse of `to_json`; errors as for `PredictedMoments`."""
        plain = structure(entry, _Answer)
        if (plain.family is None) == (plain.refused is None) or not (plain.family or plain.refused):
            raise ValueError("an answer needs either a family or a refusal")
        if plain.refused is not None:
            return cls(refusal=plain.refused)
        return cls(plain.family or "", PredictedMoments.from_json(entry))


@dataclass(frozen=True)
class _Answer:
    """The fields of an answer in a file, except the moments."""

    family: str | None = None
    refused: str | None = None
