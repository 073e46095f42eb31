"""What stands in the place of a rule and is made from the oracle itself: yardsticks, which are not ranked."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from sdp_ref.laws import Gaussian, Law
from sdp_ref.rules import Traits

if TYPE_CHECKING:
    from sdp_bench.bench.metrics.oracle import Oracle
    from sdp_bench.bench.metrics.prediction import Prediction
    from sdp_bench.oracles.moments.moments import Moments


@dataclass(frozen=True)
class Reference(ABC):
    """Measured like a rule.

    Attributes
    ----------
    name : str
        What records know it by.
    version : int
        Raised with every change that changes predictions.
    traits : Traits
    oracles : int
        How many oracles it draws of its own.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    traits: ClassVar[Traits]
    oracles: ClassVar[int]
    reference: ClassVar[bool] = True

    @abstractmethod
    def predict(self, oracle: Oracle) -> Prediction:
        """What metrics compare with the oracle.

        Raises
        ------
        ValueError
            If it does not exist under this noise.
        """

    @abstractmethod
    def refusal(self, law: Law) -> str:
        """Why it does not exist under noise of this law; empty if it does."""


@dataclass(frozen=True)
class OracleMoments(Reference):
    """The Gaussian with the oracle's own mean and covariance, which rules that match moments aim at."""

    name = "oracle_moments"
    traits = Traits("the oracle’s own moments", reference=True, rank=300)
    oracles = 0

    def predict(self, oracle: Oracle) -> Prediction:
        """See `Reference.predict`."""
        from sdp_bench.bench.metrics.prediction import Prediction

        return Prediction(_gaussian(oracle.moments), oracle)

    def refusal(self, law: Law) -> str:
        """See `Reference.refusal`."""
        from sdp_bench.oracles.estimate.tails import lacking

        found = lacking("variance", law)
        return f"moments are infinite: {found} has no variance" if found else ""


@dataclass(frozen=True)
class OracleAgain(Reference):
    """A second, independent oracle, which shows the noise that an exact rule has."""

    name = "oracle_again"
    traits = Traits("the oracle again", reference=True, rank=300)
    oracles = 1

    def predict(self, oracle: Oracle) -> Prediction:
        """See `Reference.predict`."""
        from sdp_bench.bench.metrics.prediction import Prediction
        from sdp_bench.oracles.estimate.tails import heavy_tailed
        from sdp_bench.oracles.moments.moments import Moments

        again = oracle.redrawn("again")
        # In plain blocks even where the points are Sobol's: only its mean and covariance are used.
        law = None if heavy_tailed(oracle.law) else _gaussian(Moments.from_samples(again))
        return Prediction(law, oracle, again.double)

    def refusal(self, law: Law) -> str:  # noqa: ARG002
        """None: samples there are under any noise."""
        return ""


ORACLE_MOMENTS, ORACLE_AGAIN = OracleMoments(), OracleAgain()


@functools.cache
def references() -> Mapping[str, Reference]:
    """References by name, in the order of tables."""
    return MappingProxyType({each.name: each for each in (ORACLE_MOMENTS, ORACLE_AGAIN)})


def _gaussian(moments: Moments) -> Gaussian:
    import torch

    return Gaussian(torch.from_numpy(moments.mean)[None], torch.from_numpy(moments.covariance)[None])
