"""DVIA: the deterministic approximation to full moment matching of ReLU nets (Wu et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from sdp_ref.distributions import Gaussian, Law, unchecked
from sdp_ref.dvia_moments import dvia_relu
from sdp_ref.graph import UnsupportedError
from sdp_ref.rules.base import LayerwiseRule
from sdp_ref.rules.moment_matching import FullCovarianceRule


@dataclass(frozen=True)
class DVIA(FullCovarianceRule):
    """Deterministic variational inference approximation, for ReLU only, as published.

    Its covariance is an approximation with known faults, which are kept: the variance is 12 % too
    small at mean/std = -2 and 82 % at -4, and the matrix can be slightly indefinite. It is returned
    as it is; :meth:`Gaussian.factor` clips it for sampling.
    """

    name: ClassVar[str] = "dvia"


@DVIA.handles(nn.ReLU)
def _relu(rule: LayerwiseRule, _module: nn.Module, law: Gaussian) -> Law:
    if law.mean.ndim != 2:
        raise UnsupportedError(rule.name, f"ReLU on an event of shape {tuple(law.event_shape)}")
    return unchecked(Gaussian, *dvia_relu(law.mean, law.covariance))
