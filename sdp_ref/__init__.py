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
    SymmetricStable,
    law_of,
)
from sdp_ref.lazy import exports
from sdp_ref.rules import Propagator, Rule, rule, rule_of, rules
from sdp_ref.rules.base import predicted

if TYPE_CHECKING:
    from sdp_ref import losses
    from sdp_ref.conformance import ConformanceReport, check_rule
    from sdp_ref.graph.trace import Net
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
    "SymmetricStable",
    "UndefinedError",
    "UnsupportedError",
    "check_rule",
    "law_of",
    "losses",
    "propagate",
    "rule",
    "rules",
]


def propagate(net: Net, x: Law, rule: str | Propagator = "sdp") -> Law:
    """Predict the law of ``net(X)`` for a random input X.

    The net is a module or function that maps a batch (B, *event) to (B, m), row by row; it is not modified.
    `x` is a law of batch B, or anything that :func:`law_of` accepts. The rule decides which families it
    supports: rules based on moments accept every law with a covariance. `rule` is a name from :func:`rules`
    or a rule object.

    The result has batch B and the dtype of `x`. Rules with a full covariance return a :class:`Gaussian`;
    marginal rules return the family of `x`. If the rule cannot handle the net or the family of `x`, it raises
    :class:`UnsupportedError`. A result that is not finite raises a ValueError.
    """
    return predicted(rule_of(rule), net, x)
