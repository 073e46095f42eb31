"""The propagation rules, which are imported when they are used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sdp_ref.lazy import exports
from sdp_ref.rules.base import Propagator as Propagator
from sdp_ref.rules.base import Rule as Rule
from sdp_ref.rules.base import Traits as Traits
from sdp_ref.rules.base import parse_parameters as parse_parameters
from sdp_ref.rules.base import propagate as propagate
from sdp_ref.rules.base import rule as rule
from sdp_ref.rules.base import rule_of as rule_of
from sdp_ref.rules.base import rules as rules
from sdp_ref.rules.base import traits as traits

if TYPE_CHECKING:
    from sdp_ref.rules.dvia import DVIA as DVIA
    from sdp_ref.rules.exact.rule import Exact as Exact
    from sdp_ref.rules.full import FullCovarianceRule as FullCovarianceRule
    from sdp_ref.rules.layerwise import LayerwiseRule as LayerwiseRule
    from sdp_ref.rules.linearization import SDP as SDP
    from sdp_ref.rules.low_rank import LowRank as LowRank
    from sdp_ref.rules.marginal import MarginalRule as MarginalRule
    from sdp_ref.rules.marginal import MarginalSDP as MarginalSDP
    from sdp_ref.rules.moment_matching import MarginalMomentMatching as MarginalMomentMatching
    from sdp_ref.rules.moment_matching import MomentMatching as MomentMatching
    from sdp_ref.rules.points import Cubature as Cubature
    from sdp_ref.rules.points import DividedDifference as DividedDifference
    from sdp_ref.rules.points import PointRule as PointRule
    from sdp_ref.rules.points import Unscented as Unscented
    from sdp_ref.rules.sampling import ControlVariate as ControlVariate
    from sdp_ref.rules.sampling import MonteCarlo as MonteCarlo
    from sdp_ref.rules.second_order import SecondOrder as SecondOrder
    from sdp_ref.rules.splitting import Split as Split
else:
    __getattr__, __dir__ = exports(__name__)
