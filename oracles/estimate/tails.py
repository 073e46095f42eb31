"""How heavy the tails of a law are, and what cannot be said of it for that reason."""

from __future__ import annotations

from typing import Literal

from sdp_ref.laws import Cauchy, Law, SymmetricStable

GAUSSIAN = 2.0


def stability(law: Law) -> float:
    """Stability index of a law: 2 for Gaussian ones, 1 for Cauchy's.

    Below 2 it is the power of the tail, P(abs(X) > x) ~ x^-alpha, and moments of that order and above are
    infinite.

    Returns
    -------
    float
        In (0, 2].
    """
    if isinstance(law, Cauchy):
        return 1.0
    return float(law.alpha) if isinstance(law, SymmetricStable) else GAUSSIAN


def lacking(moment: Literal["mean", "variance"], *laws: Law) -> str:
    """Which of some laws has not a finite mean, or variance: the first one in words, empty if all have.

    Parameters
    ----------
    moment : {"mean", "variance"}
    *laws : Law

    Returns
    -------
    str
        ``a Cauchy law``, say.
    """
    for law in laws:
        alpha = stability(law)
        if alpha < GAUSSIAN and (moment == "variance" or alpha <= 1):
            return "a Cauchy law" if alpha == 1 else f"a stable law with alpha {alpha:g}"
    return ""


def require_mean(*laws: Law) -> None:
    """Refuse laws without a mean: W1 between two of them is infinite, but for a mere shift.

    Parameters
    ----------
    *laws : Law
        Of the noise, of a prediction.

    Raises
    ------
    ValueError
        If one is a Cauchy law or alpha-stable with alpha <= 1.
    """
    if law := lacking("mean", *laws):
        raise ValueError(f"W1 is infinite: {law} has no mean; use total variation or quantile distances")


def require_moments(*laws: Law) -> None:
    """Refuse laws whose covariance is infinite.

    Raises
    ------
    ValueError
        If one is a Cauchy law or alpha-stable with alpha < 2.
    """
    if law := lacking("variance", *laws):
        raise ValueError(
            f"moments are infinite: {law} has no variance; use total variation or quantile distances"
        )
