"""Prediction intervals on regression sets: methods, their nets, trainings and scores."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Method:
    """A way to predict intervals.

    Attributes
    ----------
    objective : str
        That its nets are trained by.
    propagates : bool
        Whether noise of the inputs enters, whose variance is scanned.
    own_variance : bool
        Whether a variance that the net itself predicts enters.
    samples : int
        Noisy inputs, where their effect is estimated and not linearised.
    members : int
        Nets whose predictions are mixed.
    """

    objective: str
    propagates: bool = False
    own_variance: bool = False
    samples: int = 0
    members: int = 1


METHODS = {
    "sdp": Method("squared_error", propagates=True),
    "sdp_nll": Method("sdp_nll", propagates=True),
    "sdp+pnn": Method("pnn", propagates=True, own_variance=True),
    "pnn": Method("pnn", own_variance=True),
    "ensemble:members=5": Method("pnn", own_variance=True, members=5),
    "sqr_ends": Method("sqr_ends"),
    "sqr": Method("sqr"),
    **{
        f"monte_carlo:samples={k}": Method("squared_error", propagates=True, samples=k)
        for k in (5, 10, 100, 1000)
    },
}
"""`sdp` propagates through a net trained by squared error, after the fact; `sdp_nll` through one trained by
the likelihood of the propagated law. `sqr_ends` learns the two quantiles of its interval, as the published
code of Tagasovska and Lopez-Paz does, `sqr` all of them, as their text has it."""

READINGS = ("set_scan", "set_variance", None)
"""What the paper's "(for each data set) used 11 variances [...] around the best initial variance" may mean,
as components of what is measured; nearest to its words first.

One scan a set: the decade that is best in one run (seed 0), and eleven variances around it, among which, and
the settings, each seed selects. One variance a set: that of these eleven which is best in the one run. And a
scan for each seed and setting of its own, which has more candidates for few rows of validation.
"""
