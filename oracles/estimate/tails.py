"""How heavy the tails of a law are, and what cannot be said of it for that reason."""

from __future__ import annotations

from typing import Literal

from sdp_ref.laws import Law


def heavy_tailed(law: Law) -> bool:
    """Whether a law has no finite variance, or none that is known."""
    return bool(lacking("variance", law))


def lacking(moment: Literal["mean", "variance"], *laws: Law) -> str:
    """Which of some laws has not a finite mean, or variance: the first one in words, empty if all have."""
    return next((law.described for law in laws if not hasattr(law, moment)), "")


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
