"""Selective prediction: classifiers of digits, and how sure they are of each image."""

from __future__ import annotations

CERTIFICATES = (100, 1000, 5000)
"""Numbers of orthonormal certificates; the first is the default of their authors' code."""

COMBINED = ("mean", "geometric", "minimum")
"""Ways to make class scores of pairwise probabilities."""
_BORROWED = tuple(f"sd_{name}" for name in COMBINED)
READINGS: dict[str, tuple[str, ...]] = {
    "softmax_entropy": ("",),
    "orthonormal_certificates": tuple(str(count) for count in CERTIFICATES),
    "dirichlet": ("law", "mean", "concentration"),
    "pairwise_gaussian": COMBINED,
    "pairwise_cauchy": (*COMBINED, *_BORROWED),
}
"""Scores, and the readings of what the paper leaves open, the first of which is the default.

Of certificates, how many there are. Of a Dirichlet output, the entropy of the law itself, the entropy of its
mean (which is softmax(mean): the variance has no part in it), or minus the logarithm of its total
concentration. Of pairwise probabilities, how they become class scores
(:func:`sdp_ref.losses.pairwise_scores`), whose entropy is taken. Of Cauchy pairs, the scales too: those of
propagated Cauchy noise or, with ``sd_``, the standard deviations of the propagated Gaussian law, since the
paper speaks of Cauchy scores also under moment matching, which has no Cauchy noise. There propagated Cauchy
noise is that of marginal SDP.
"""

_PAIRS = ("softmax_entropy", "pairwise_gaussian", "pairwise_cauchy")
SCORES = {
    "softmax": (
        *("softmax_entropy", "orthonormal_certificates"),
        *("dirichlet", "pairwise_gaussian", "pairwise_cauchy"),
    ),
    "dirichlet": ("dirichlet", "pairwise_gaussian", "pairwise_cauchy"),
    "pairwise_gaussian": _PAIRS,
    "pairwise_marginal": _PAIRS,
    "pairwise_cauchy": _PAIRS,
}
"""What predictions of each kind of model are ranked by: what the paper speaks of, in its Table 5 or beside
it. Of the last two kinds it trains none there."""

SCALE = 0.01
"""Standard deviation of the input noise of the paper's Dirichlet model, in units of pixels in [0, 1]."""
OTHER_SCALES = (0.001, 0.1, 1.0)
"""Others that the model is trained at, since the paper finds its own the best: decades, from one below it
up to noise as large as the pixels are."""
