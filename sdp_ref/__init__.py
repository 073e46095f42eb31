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

    Parameters
    ----------
    net : nn.Module or function
        Maps a batch (B, *event) to (B, m), each row by itself. Left as it is.
    x : Law, or what `law_of` takes for one
        Of X, a batch of B. Which families a rule takes is its own; those that work with moments take any
        with a covariance.
    rule : str or Rule
        A name of :func:`rules`, or a rule object.

    Returns
    -------
    Law
        Law of the output, batch B, in the dtype of `x` (rules with a full covariance give a
        :class:`Gaussian`, marginal ones the family of `x`, others what they will).

    Raises
    ------
    ValueError
        If the rule is unknown, dtype or shape of `x` does not fit the net, or the result is not
        finite.
    UnsupportedError
        If the rule cannot do this net or this family.
    """
    return predicted(rule_of(rule), net, x)
