"""Reference rules for distribution propagation: the law of f(x + eps) without sampling.

>>> import torch, sdp_ref as sr
>>> net = torch.nn.Sequential(torch.nn.Linear(4, 100), torch.nn.ReLU(), torch.nn.Linear(100, 3))
>>> x = sr.DiagonalGaussian(torch.zeros(1, 4), torch.full((1, 4), 0.01))
>>> sr.propagate(net, x, rule="sdp").covariance.shape
torch.Size([1, 3, 3])
"""

from __future__ import annotations

from torch import Tensor, nn

from sdp_ref.distributions import Cauchy, DiagonalGaussian, Gaussian, Law, SymmetricStable
from sdp_ref.graph import Net, UnsupportedError
from sdp_ref.rules import LayerwiseRule, Propagator, Rule, rule, rules

__all__ = [
    "Cauchy",
    "DiagonalGaussian",
    "Gaussian",
    "LayerwiseRule",
    "Rule",
    "SymmetricStable",
    "UnsupportedError",
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
    x : Gaussian, DiagonalGaussian, Cauchy or SymmetricStable
        Law of X, a batch of B.
    rule : str or Rule
        A name of :func:`rules`, or a rule object.

    Returns
    -------
    Law
        Law of the output, batch B, in the dtype of `x` (rules with a full covariance give a
        :class:`Gaussian`, marginal ones the family of `x`).

    Raises
    ------
    ValueError
        If the rule is unknown, or dtype or shape of `x` does not fit the net.
    UnsupportedError
        If the rule cannot do this net or this family.
    """
    chosen = _rule(rule)
    if not isinstance(x, Law):
        raise ValueError(f"x must be a law such as sdp_ref.Gaussian, got {type(x).__name__}")
    if not callable(net):
        raise ValueError(f"net must be a torch module or a function, got {type(net).__name__}")
    weight = (
        next((p for p in net.parameters() if p.is_floating_point()), None)
        if isinstance(net, nn.Module)
        else None
    )
    if weight is not None and (weight.dtype, weight.device) != (x.location.dtype, x.location.device):
        raise ValueError(
            f"the net is {weight.dtype} on {weight.device}, the input law {x.location.dtype} on "
            f"{x.location.device}; bring them together with net.to(...) or x.to(...)"
        )
    _check_shape(net, x.location)
    return chosen.propagate(net, x)


def _rule(chosen: str | Propagator) -> Propagator:
    if isinstance(chosen, str):
        return rule(chosen)
    if not isinstance(chosen, Propagator):
        raise ValueError(f"rule must be a name or an object with name and propagate(net, x), got {chosen!r}")
    return chosen


def _check_shape(net: Net, location: Tensor) -> None:
    """Name the mismatch where the first layer is plainly a Linear of another width."""
    first = next(iter(net.modules()), None) if isinstance(net, nn.Linear) else None
    if isinstance(net, nn.Sequential) and len(net):
        first = net[0]
    if isinstance(first, nn.Linear) and location.shape[-1] != first.in_features:
        raise ValueError(
            f"the net takes {first.in_features} features, the input law has shape {tuple(location.shape)}"
        )
