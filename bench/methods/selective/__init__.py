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
paper speaks of Cauchy scores also under moment matching, which has no Cauchy noise.
"""

SCORES = {
    "softmax": (
        *("softmax_entropy", "orthonormal_certificates"),
        *("dirichlet", "pairwise_gaussian", "pairwise_cauchy"),
    ),
    "dirichlet": ("dirichlet", "pairwise_gaussian"),
    "pairwise_gaussian": ("softmax_entropy", "pairwise_gaussian", "pairwise_cauchy"),
}
"""What the paper ranks the predictions of each kind of model by."""
