"""The propagation rules, which are imported when they are used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sdp_ref.lazy import exports
from sdp_ref.rules.base import (
    Propagator,
    Rule,
    Traits,
    parse_parameters,
    propagate,
    rule,
    rule_of,
    rules,
    traits,
)

if TYPE_CHECKING:
    from sdp_ref.rules.dvia import DVIA
    from sdp_ref.rules.exact.rule import Exact
    from sdp_ref.rules.full import FullCovarianceRule
    from sdp_ref.rules.layerwise import LayerwiseRule
    from sdp_ref.rules.linearization import SDP
    from sdp_ref.rules.low_rank import LowRank
    from sdp_ref.rules.marginal import MarginalRule, MarginalSDP
    from sdp_ref.rules.moment_matching import MarginalMomentMatching, MomentMatching
    from sdp_ref.rules.points import Cubature, DividedDifference, PointRule, Unscented
    from sdp_ref.rules.sampling import ControlVariate, MonteCarlo
    from sdp_ref.rules.second_order import SecondOrder
    from sdp_ref.rules.splitting import Split
else:
    __getattr__, __dir__ = exports(__name__)

__all__ = [
    "DVIA",
    "SDP",
    "ControlVariate",
    "Cubature",
    "DividedDifference",
    "Exact",
    "FullCovarianceRule",
    "LayerwiseRule",
    "LowRank",
    "MarginalMomentMatching",
    "MarginalRule",
    "MarginalSDP",
    "MomentMatching",
    "MonteCarlo",
    "PointRule",
    "Propagator",
    "Rule",
    "SecondOrder",
    "Split",
    "Traits",
    "Unscented",
    "parse_parameters",
    "propagate",
    "rule",
    "rule_of",
    "rules",
    "traits",
]
