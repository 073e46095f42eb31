"""Template of a rule: copy it, rename it, and write what `propagate` does.

Here it linearises the net at the mean, as the built-in rule `sdp` does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.autograd.functional import jacobian

import sdp_ref as sr


@dataclass(frozen=True)
class MyRule(sr.Rule):
    """One line about the rule.

    Parameters
    ----------
    inflation : float
        Factor of the predicted variances; positive. Every field is a parameter of the rule, and those
        that are not at their default are written into results, as ``my_rule:inflation=1.1``.

    Raises
    ------
    ValueError
        If the factor is not positive.
    """

    name: ClassVar[str] = "my_rule"
    inflation: float = 1.0

    def __post_init__(self) -> None:
        if not self.inflation > 0:
            raise ValueError(f"my_rule needs a positive inflation, got {self.inflation}")

    def prepare(self, net: Callable[[Tensor], Tensor]) -> Callable[[sr.Law], sr.Law]:
        """Do once what depends on the net alone, and give the function of the law of the input."""

        def propagate(x: sr.Law) -> sr.Law:
            # Refuse what the rule has no formula for; never guess.
            if not isinstance(x, sr.Gaussian | sr.DiagonalGaussian):
                raise sr.UnsupportedError(self.name, f"{type(x).__name__} input")

            # x.mean is (B, *event); x.covariance is (B, n, n) over the flattened event. A net maps each row
            # by itself, so the derivative of a sum over rows has that of each.
            slopes = jacobian(lambda rows: net(rows).sum(0), x.mean)  # (m, B, *event)
            slopes = slopes.movedim(0, 1).flatten(2)  # (B, m, n)
            with torch.no_grad():
                covariance = self.inflation * slopes @ x.covariance @ slopes.mT
                mean = net(x.mean)
            # The result is (B, m) and (B, m, m), in the dtype of x, and exactly symmetric.
            return sr.Gaussian(mean, (covariance + covariance.mT) / 2)

        return propagate
