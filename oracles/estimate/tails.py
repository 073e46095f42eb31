"""Heavy tails, and the moments that do not exist because of them."""

from __future__ import annotations

from typing import Literal

from sdp_ref.laws import Law


def heavy_tailed(law: Law) -> bool:
    """Whether a law has no finite variance, or an unknown one."""
    return bool(lacking("variance", law))


def lacking(moment: Literal["mean", "variance"], *laws: Law) -> str:
    """Describe the first law without a finite mean or variance; empty if all have one."""
    return next((law.described for law in laws if not hasattr(law, moment)), "")


def require_mean(*laws: Law) -> None:
    """Raise a ValueError for a law without a mean: a Cauchy law, or alpha-stable with alpha <= 1.

    W1 between two such laws is infinite, unless they differ by a shift only.
    """
    if law := lacking("mean", *laws):
        raise ValueError(f"W1 is infinite: {law} has no mean; use total variation or quantile distances")


def require_moments(*laws: Law) -> None:
    """Raise a ValueError for a law with infinite covariance: a Cauchy law, or alpha-stable with alpha < 2."""
    if law := lacking("variance", *laws):
        raise ValueError(
            f"moments are infinite: {law} has no variance; use total variation or quantile distances"
        )
