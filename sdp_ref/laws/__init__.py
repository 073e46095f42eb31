"""The families of laws that rules take and give: Gaussian, Cauchy, symmetric alpha-stable.

One batch dimension comes first in every field, as everywhere in torch; what follows it is the
event. A law is validated once, where a user builds it; rules build their results with
:func:`unchecked`, since a published rule may give what no law has (DVIA's covariance can be
slightly indefinite) and that is for the measurements to show.
"""

from sdp_ref.laws.base import Law, joined, unchecked
from sdp_ref.laws.gaussian import DiagonalGaussian, Gaussian
from sdp_ref.laws.stable import Cauchy, SymmetricStable

__all__ = ["Cauchy", "DiagonalGaussian", "Gaussian", "Law", "SymmetricStable", "joined", "unchecked"]
