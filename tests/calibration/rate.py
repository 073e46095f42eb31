"""A simulated error rate and its nominal level."""

from dataclasses import dataclass
from math import sqrt

from scipy.stats import binom

SIGNIFICANCE = 1e-3


@dataclass(frozen=True)
class Rate:
    """Frequency of an error in independent trials.

    `nominal` is the largest rate that is claimed, and None for a known limitation without a claim.
    """

    error: str
    condition: str
    nominal: float | None
    errors: int
    trials: int

    @property
    def rate(self):
        return self.errors / self.trials

    @property
    def stderr(self):
        return sqrt(self.rate * (1 - self.rate) / self.trials)

    @property
    def p(self):
        """One-sided exact binomial test of "the rate is at most nominal"."""
        return 1.0 if self.nominal is None else float(binom.sf(self.errors - 1, self.trials, self.nominal))

    @property
    def too_large(self):
        return self.p < SIGNIFICANCE

    def __str__(self):
        nominal = "no claim" if self.nominal is None else f"nominal {self.nominal:g}"
        return (
            f"{self.error}, {self.condition}: {self.rate:.4f} ± {self.stderr:.4f} ({nominal}, p {self.p:.2g})"
        )
