"""What a rule says in one cell, as numbers: moments, or a law without moments, or why it says nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sdp_ref.laws import Cauchy, DiagonalGaussian, Gaussian, Law, SymmetricStable, unchecked

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PredictedMoments:
    """Predicted mean and covariance of one cell, or its variances where the rule is marginal.

    Attributes
    ----------
    mean : ndarray, shape (m,)
    spread : ndarray, shape (m, m) or (m,)
    seed : int, optional
        Of a sampling rule's draws.
    """

    mean: Array
    spread: Array
    seed: int | None = None

    @classmethod
    def of(cls, law: Law, seed: int | None = None) -> PredictedMoments:
        """Moments of a law, batch 1.

        Parameters
        ----------
        law : Law
        seed : int, optional
            That it was drawn from.

        Returns
        -------
        PredictedMoments

        Raises
        ------
        ValueError
            If it has none, or they are not finite.
        """
        if isinstance(law, Gaussian):
            spread = law.covariance[0]
        elif isinstance(law, DiagonalGaussian):
            spread = law.variance.flatten(1)[0]
        else:
            raise ValueError(f"the prediction is a {type(law).__name__}, which has no moments to compare")
        mean = law.location.flatten(1)[0]
        if not bool(torch.isfinite(mean).all() and torch.isfinite(spread).all()):
            raise ValueError("the predicted moments are not finite")
        if bool((law.variance < 0).any()):
            raise ValueError("a predicted variance is negative")
        return cls(mean.detach().double().numpy(), spread.detach().double().numpy(), seed)

    @property
    def covariance(self) -> Array:
        """Of shape (m, m)."""
        return self.spread if self.spread.ndim == 2 else np.diag(self.spread)

    @property
    def law(self) -> Gaussian | DiagonalGaussian:
        """The Gaussian with these moments, batch 1."""
        mean, spread = torch.from_numpy(self.mean)[None], torch.from_numpy(self.spread)[None]
        if self.spread.ndim == 1:
            return unchecked(DiagonalGaussian, mean, spread)
        return unchecked(Gaussian, mean, spread)

    def equals(self, other: PredictedMoments) -> bool:
        """Whether all numbers are the same to the last bit."""
        return np.array_equal(self.mean, other.mean) and np.array_equal(self.spread, other.spread)

    def to_json(self) -> dict[str, Any]:
        """As plain values; :meth:`from_json` reads them."""
        name = "covariance" if self.spread.ndim == 2 else "variance"
        seed = {} if self.seed is None else {"seed": self.seed}
        return {**seed, "mean": self.mean.tolist(), name: self.spread.tolist()}

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> PredictedMoments:
        """From plain values.

        Parameters
        ----------
        entry : dict
            As :meth:`to_json` gives them.

        Returns
        -------
        PredictedMoments

        Raises
        ------
        ValueError
            If they are no moments: of unequal size, or not finite. A KeyError or TypeError passes where a
            field is missing or is no list of numbers.
        """
        spread = entry["covariance"] if "covariance" in entry else entry["variance"]
        moments = cls(np.array(entry["mean"], dtype=float), np.array(spread, dtype=float), entry.get("seed"))
        width = len(moments.mean)
        if moments.mean.ndim != 1 or moments.spread.shape not in ((width,), (width, width)):
            raise ValueError("moments of unequal size")
        if not (np.isfinite(moments.mean).all() and np.isfinite(moments.spread).all()):
            raise ValueError("moments that are not finite")
        return moments


GAUSSIAN = "Gaussian"


@dataclass(frozen=True, eq=False)
class Answer:
    """What a rule says about a probe: a law, or that it does not take it.

    Attributes
    ----------
    family : str
        ``Gaussian``, ``Cauchy``, ``stable, alpha 1.5``; empty if refused.
    moments : PredictedMoments or None
        Of a law without moments its locations and squared scales.
    refusal : str
        Kind of the error and what it says; empty if there is a law.
    """

    family: str = ""
    moments: PredictedMoments | None = None
    refusal: str = ""

    @classmethod
    def of(cls, law: Law) -> Answer:
        """Answer of a law, batch 1.

        Returns
        -------
        Answer
            Of a law without moments its locations and squared scales.

        Raises
        ------
        ValueError
            If its numbers are not finite, or it is of another family.
        """
        if isinstance(law, Cauchy | SymmetricStable):
            name = "Cauchy" if isinstance(law, Cauchy) else f"stable, alpha {law.alpha:g}"
            as_moments = unchecked(DiagonalGaussian, law.location, law.scale.square())
            return cls(name, PredictedMoments.of(as_moments))
        return cls(GAUSSIAN, PredictedMoments.of(law))

    @property
    def error(self) -> str:
        """Kind of the error: ``UnsupportedError``."""
        return self.refusal.partition(":")[0]

    def to_json(self) -> dict[str, Any]:
        """As plain values; :meth:`from_json` reads them."""
        if self.moments is None:
            return {"refused": self.refusal}
        return {"family": self.family, **self.moments.to_json()}

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> Answer:
        """From plain values; raises as :meth:`PredictedMoments.from_json`."""
        if "refused" in entry:
            return cls(refusal=str(entry["refused"]))
        return cls(str(entry["family"]), PredictedMoments.from_json(entry))
