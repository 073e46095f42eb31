"""Risk over coverage of a classifier that may abstain, and the area below the curve."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """Risk as a piecewise linear function of coverage, starting at (0, 0)."""

    coverage: NDArray[np.float64]  # shape (K,); share of inputs with a prediction, increasing from 0 to 1
    risk: NDArray[np.float64]  # shape (K,); wrong predictions among those, as a share of all inputs

    @property
    def area(self) -> float:
        """Area under the curve (RCAUC), a share: at most 1/2, and smaller is better."""
        return float((np.diff(self.coverage) * (self.risk[1:] + self.risk[:-1])).sum() / 2)

    def at(self, coverage: ArrayLike) -> NDArray[np.float64]:
        """Return the risk at coverages between 0 and 1."""
        return np.interp(np.asarray(coverage, dtype=np.float64), self.coverage, self.risk)


def risk_coverage(uncertainty: ArrayLike, wrong: ArrayLike) -> RiskCoverage:
    """Return the curve when predictions are accepted in order of increasing uncertainty.

    The risk is the number of accepted errors over all N inputs (not over the accepted ones), which gives the
    perfect value of 12.5 % in the paper's Table 5. Inputs of equal uncertainty are accepted in random order:
    errors among them count at their mean rate, so neither the order of inputs nor a strictly monotone
    transform of the uncertainty changes the curve. The curve has one point for each distinct uncertainty,
    after (0, 0).

    The area is (1 / N^2) sum over errors i of #{j: u_j > u_i} + #{j: u_j = u_i} / 2, including j = i.

    `uncertainty`, shape (N,), may be infinite, and `wrong`, shape (N,), bool, says whether a prediction is an
    error. A ValueError is raised for NaN.
    """
    u, errors = np.asarray(uncertainty, dtype=np.float64), np.asarray(wrong)
    if bool(np.isnan(u).any()):
        raise ValueError("an uncertainty is not a number")
    # Inputs and errors at each distinct uncertainty, in increasing order.
    _, rank, inputs_at = np.unique(u, return_inverse=True, return_counts=True)
    errors_at = np.bincount(rank[errors], minlength=len(inputs_at))
    coverage = np.concatenate([[0], inputs_at]).cumsum() / len(u)
    risk = np.concatenate([[0], errors_at]).cumsum() / len(u)
    return RiskCoverage(coverage, risk)


def perfect(unknown: float) -> RiskCoverage:
    """Return the curve of a predictor that is correct, and most certain, on all inputs that have a class.

    `unknown`, in [0, 1], is the share of inputs without a correct class; half of them give an area of 12.5 %.
    """
    return RiskCoverage(np.array([0.0, 1.0 - unknown, 1.0]), np.array([0.0, 0.0, unknown]))
