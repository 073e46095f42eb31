"""The propagation rules, discovered from the modules of this package, and the parser of their specs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from sdp_ref.lazy import exports
from sdp_ref.registry import members
from sdp_ref.rules.base import Propagator, Rule, Traits, traits

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
    "rule",
    "rule_of",
    "rules",
    "traits",
]

_RULES: Mapping[str, type[Rule]] = members(__name__, "sdp_ref.rules.base.Rule")


def rules() -> tuple[str, ...]:
    """Names of the built-in rules, in the order of tables."""
    return tuple(_RULES)


def rule(name: str, **parameters: Any) -> Rule:
    """Return a rule by name.

    `name` is one of :func:`rules`, optionally with parameters as text, such as ``"monte_carlo:samples=100"``.
    Keyword arguments are parameters, too, such as ``samples=100``. Unknown names and invalid parameters raise
    a ValueError.
    """
    if not isinstance(name, str):
        raise ValueError(f"a rule is named by a string such as 'sdp', got {name!r}")
    name, _, text = name.partition(":")
    if name not in _RULES:
        raise ValueError(f"unknown rule '{name}'; choose from {', '.join(_RULES)}")
    kind = _RULES[name]
    given = {**parse_parameters(name, text), **parameters} if text else parameters
    known = [f.name for f in fields(kind)]
    for key in given:
        if key not in known:
            accepted = f"its parameters are {', '.join(known)}" if known else "it takes none"
            raise ValueError(f"rule '{name}' has no parameter '{key}'; {accepted}")
    return kind(**{key: _part(kind, key, value) for key, value in given.items()})


def rule_of(chosen: str | Propagator) -> Propagator:
    """Return a rule object as it is, or look up a name as :func:`rule` does."""
    if isinstance(chosen, str):
        return rule(chosen)
    if not isinstance(chosen, Propagator):
        raise ValueError(f"rule must be a name or an object with name and propagate(net, x), got {chosen!r}")
    return chosen


def _part(kind: type[Rule], key: str, value: Any) -> Any:
    """Build a parameter that is itself a rule from its spec; return other parameters unchanged."""
    (own,) = (field for field in fields(kind) if field.name == key)
    if not (own.metadata.get("rule") and isinstance(value, str)):
        return value
    try:
        return rule(value)
    except ValueError as error:
        raise ValueError(f"{key} of {kind.name}: {error}") from None


def parse_parameters(name: str, text: str) -> dict[str, Any]:
    """Parse the text ``key=value,...`` for the rule `name`; values become bool, int, float or str."""
    parsed: dict[str, Any] = {}
    for item in text.split(","):
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"rule '{name}': parameters are written key=value, got '{item}'")
        parsed[key.strip()] = _value(value.strip())
    return parsed


def _value(text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
