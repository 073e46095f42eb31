"""Reference rules for distribution propagation: the law of f(x + eps) without sampling.

>>> import torch, sdp_ref as sr
>>> net = torch.nn.Sequential(torch.nn.Linear(4, 100), torch.nn.ReLU(), torch.nn.Linear(100, 3))
>>> x = sr.DiagonalGaussian(torch.zeros(1, 4), torch.full((1, 4), 0.01))
>>> sr.propagate(net, x, rule="sdp").covariance.shape
torch.Size([1, 3, 3])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sdp_ref.errors import CovarianceSizeError, UndefinedError, UnsupportedError
from sdp_ref.laws import (
    Cauchy,
    DiagonalGaussian,
    Empirical,
    Gaussian,
    Law,
    LocationScale,
    Mixture,
    Quantiles,
    SplitNormal,
    SymmetricStable,
    law_of,
)
from sdp_ref.lazy import exports
from sdp_ref.rules.base import Rule, propagate, rule, rules

if TYPE_CHECKING:
    from sdp_ref import losses
    from sdp_ref.conformance import ConformanceReport, check_rule
    from sdp_ref.covariances import input_covariance
    from sdp_ref.module import Propagated
    from sdp_ref.rules import LayerwiseRule
else:
    __getattr__, __dir__ = exports(__name__)

__all__ = [
    "Cauchy",
    "ConformanceReport",
    "CovarianceSizeError",
    "DiagonalGaussian",
    "Empirical",
    "Gaussian",
    "Law",
    "LayerwiseRule",
    "LocationScale",
    "Mixture",
    "Propagated",
    "Quantiles",
    "Rule",
    "SplitNormal",
    "SymmetricStable",
    "UndefinedError",
    "UnsupportedError",
    "check_rule",
    "input_covariance",
    "law_of",
    "losses",
    "propagate",
    "rule",
    "rules",
]
