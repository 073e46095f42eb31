"""References, made from the oracle itself and measured like rules. They are not ranked."""

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
    from sdp_bench.bench.metrics.oracle import Oracle, Prediction
    from sdp_bench.oracles.moments.moments import Moments


@dataclass(frozen=True)
class Reference(ABC):
    """A reference prediction that is measured like a rule."""

    name: ClassVar[str]  # in records
    version: ClassVar[int] = 1  # raised with every change that changes predictions
    traits: ClassVar[Traits]
    oracles: ClassVar[int]  # number of additional oracles that it draws
    reference: ClassVar[bool] = True

    @abstractmethod
    def predict(self, oracle: Oracle) -> Prediction:
        """Return the reference prediction; a ValueError if it does not exist under this noise."""

    def refusal(self, law: Law) -> str:  # noqa: ARG002
        """Return why the reference does not exist under noise with this law, or an empty string."""
        return ""


@dataclass(frozen=True)
class OracleMoments(Reference):
    """The Gaussian with the oracle's mean and covariance, the target of rules that match moments."""

    name = "oracle_moments"
    traits = Traits("the oracle’s own moments", reference=True, rank=300)
    oracles = 0

    def predict(self, oracle: Oracle) -> Prediction:
        from sdp_bench.bench.metrics.oracle import Prediction

        return Prediction(_gaussian(oracle.moments), oracle, passes=lambda: oracle.key.samples)

    def refusal(self, law: Law) -> str:
        from sdp_bench.oracles.estimate.tails import lacking

        found = lacking("variance", law)
        return f"moments are infinite: {found} has no variance" if found else ""


@dataclass(frozen=True)
class OracleAgain(Reference):
    """A second, independent oracle, which shows the noise level of an exact rule."""

    name = "oracle_again"
    traits = Traits("the oracle again", reference=True, rank=300)
    oracles = 1

    def predict(self, oracle: Oracle) -> Prediction:
        from sdp_bench.bench.metrics.oracle import Prediction
        from sdp_bench.oracles.estimate.tails import heavy_tailed
        from sdp_bench.oracles.moments.moments import Moments

        again = oracle.redrawn("again")
        # In plain blocks even if the points are Sobol points: only mean and covariance are used.
        law = None if heavy_tailed(oracle.law) else _gaussian(Moments.from_samples(again))
        return Prediction(law, oracle, again.double, lambda: oracle.key.samples)


ORACLE_MOMENTS, ORACLE_AGAIN = OracleMoments(), OracleAgain()


@functools.cache
def references() -> Mapping[str, Reference]:
    """Return references by name, in the order of tables."""
    return MappingProxyType({each.name: each for each in (ORACLE_MOMENTS, ORACLE_AGAIN)})


def _gaussian(moments: Moments) -> Gaussian:
    import torch

    return Gaussian(torch.from_numpy(moments.mean)[None], torch.from_numpy(moments.covariance)[None])
