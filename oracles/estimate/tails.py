"""How heavy the tails of a law are, and what cannot be said of it for that reason."""

from __future__ import annotations

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
    for law in laws:
        if stability(law) <= 1:
            raise ValueError(
                f"W1 is infinite: {_named(law)} has no mean; use total variation or quantile distances"
            )


def require_moments(*laws: Law) -> None:
    """Refuse laws whose covariance is infinite.

    Raises
    ------
    ValueError
        If one is a Cauchy law or alpha-stable with alpha < 2.
    """
    for law in laws:
        if stability(law) < GAUSSIAN:
            raise ValueError(
                f"moments are infinite: {_named(law)} has no variance; use total variation or quantile "
                "distances"
            )


def _named(law: Law) -> str:
    return "a Cauchy law" if stability(law) == 1 else f"a stable law with alpha {stability(law):g}"
