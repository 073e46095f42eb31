"""Labels, order and traits of the rules of some results."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import sdp_ref
from sdp_bench.bench.metrics.references import references
from sdp_ref.rules import Traits, traits


@dataclass(frozen=True, eq=False)
class RuleTraits:
    """Traits of rules, by spec.

    Traits of a user's rule are stored with its measurements: pages are made without running its code, and its
    name does not say whether it samples. A rule missing from `stored` was not measured and is therefore one
    of the package's own, mentioned by a claim or a table of the paper; its traits are those of the current
    code.
    """

    stored: Mapping[str, Traits] = field(default_factory=dict)

    def __getitem__(self, rule: str) -> Traits:
        return self.stored[rule] if rule in self.stored else _declared(rule)

    def label(self, rule: str) -> str:
        """Label of a rule; with its spec if another rule of the results has the same label."""
        label = self[rule].label
        others = (each for each in self.stored if each != rule)
        return f"{label} ({rule})" if any(self[each].label == label for each in others) else label

    def is_sampling(self, rule: str) -> bool:
        return self[rule].sampling is not None

    def is_reference(self, rule: str) -> bool:
        """Whether a rule is derived from the oracle and therefore not ranked."""
        return self[rule].reference

    def in_order(self, rules: Iterable[str]) -> list[str]:
        """Distinct rules in the order of tables and figures: by rank, sampling rules by size."""

        def key(rule: str) -> tuple[int, int, str]:
            return self[rule].rank, self[rule].sampling or 0, rule

        return sorted(set(rules), key=key)


@functools.cache
def _declared(rule: str) -> Traits:
    """Traits of the package's own rules and references; only the name for others, such as methods."""
    if rule in references():
        return references()[rule].traits
    try:
        return traits(sdp_ref.rule(rule))
    except ValueError:
        name, _, parameters = rule.partition(":")
        return Traits(f"{name} ({parameters.replace(',', ', ')})" if parameters else name)
