"""References, made from the oracle itself and measured like rules. They are not ranked."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from sdp_ref.laws import Gaussian, Law
from sdp_ref.rules import Traits

if TYPE_CHECKING:
    from ...oracles.moments.moments import Moments
    from .oracle import Oracle, Prediction


@dataclass(frozen=True)
class Reference:
    """A reference prediction that is measured like a rule."""

    name: str  # in records
    label: str  # in tables
    predict: Callable[[Oracle], Prediction]
    oracles: int = 0  # number of additional oracles that it draws
    needs_variance: bool = False  # whether it exists only under noise with a variance
    version: int = 1  # raised with every change that changes predictions
    reference: ClassVar[bool] = True

    @property
    def traits(self) -> Traits:
        """Its properties, as rules have them."""
        return Traits(self.label, reference=True, rank=300)

    def refusal(self, law: Law) -> str:
        """Return why the reference does not exist under noise with this law, or an empty string."""
        from ...oracles.estimate.tails import lacking

        law_without = lacking("variance", law) if self.needs_variance else ""
        return f"moments are infinite: {law_without} has no variance" if law_without else ""


def _moments(oracle: Oracle) -> Prediction:
    """Return the Gaussian with the oracle's mean and covariance, the target of rules that match moments."""
    from .oracle import Prediction

    return Prediction(_gaussian(oracle.moments), oracle, passes=lambda: oracle.key.samples)


def _again(oracle: Oracle) -> Prediction:
    """Return a second, independent oracle, which shows the noise level of an exact rule."""
    from ...oracles.estimate.tails import heavy_tailed
    from ...oracles.moments.moments import Moments
    from .oracle import Prediction

    again = oracle.redrawn("again")
    # In plain blocks even if the points are Sobol points: only mean and covariance are used.
    law = None if heavy_tailed(oracle.law) else _gaussian(Moments.from_samples(again))
    return Prediction(law, oracle, again.double, lambda: oracle.key.samples)


def _gaussian(moments: Moments) -> Gaussian:
    import torch

    return Gaussian(torch.from_numpy(moments.mean)[None], torch.from_numpy(moments.covariance)[None])


ORACLE_MOMENTS = Reference("oracle_moments", "the oracle’s own moments", _moments, needs_variance=True)
ORACLE_AGAIN = Reference("oracle_again", "the oracle again", _again, oracles=1)


@functools.cache
def references() -> Mapping[str, Reference]:
    """Return references by name, in the order of tables."""
    return MappingProxyType({known.name: known for known in (ORACLE_MOMENTS, ORACLE_AGAIN)})
