"""Third cumulants of the output, which correct the predicted probabilities of classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sdp_ref.laws import Law, noted, unchecked
from sdp_ref.laws.gaussian import Edgeworth
from sdp_ref.rules.third_cumulants import ThirdCumulants

if TYPE_CHECKING:
    from sdp_ref.rules.third_cumulants import Skewed


@dataclass(frozen=True)
class EdgeworthRule(ThirdCumulants):
    """The moments of `third_cumulants`, and probabilities of classes that use the third cumulants.

    The probability of class i is d/dmean_i E max_j Y_j for outputs with the Edgeworth series of first order:
    that of the Gaussian, plus T_abc / 6 times its third derivatives by the means a, b, c. Everything else in
    the returned :class:`~sdp_ref.laws.Edgeworth` law is Gaussian.

    References
    ----------
    See :class:`ThirdCumulants` and :func:`sdp_ref.laws.classes.class_probabilities`.
    """

    name: ClassVar[str] = "edgeworth"
    title: ClassVar[str] = "Edgeworth series"
    rank: ClassVar[int] = 36
    claims: ClassVar[frozenset[str]] = frozenset({"moments", "class"})

    def finish(self, law: Skewed, x: Law) -> Law:  # type: ignore[override]  # the rule's own law
        gaussian = super().finish(law, x)
        third = law.third.to(x.location.dtype)
        return noted(unchecked(Edgeworth, gaussian.mean, gaussian.covariance, third), gaussian.notes)
