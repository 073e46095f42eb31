"""What is known of the rules of some results: how each is called, ordered, drawn and ranked."""

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

    What a user's rule declares is known where it was measured and nowhere else: its code is not run again to
    make a page, and its name does not say whether it samples.

    Attributes
    ----------
    stored : mapping of str to Traits
        As they are kept with the results. A rule that is not there was not measured, so that it is one of
        the package's own, which a claim or a table of the paper is about: that one's are today's.
    """

    stored: Mapping[str, Traits] = field(default_factory=dict)

    def __getitem__(self, rule: str) -> Traits:
        return self.stored[rule] if rule in self.stored else _declared(rule)

    def label(self, rule: str) -> str:
        """Name of a rule for people; with its spec where another rule of the results is called the same."""
        label = self[rule].label
        others = (each for each in self.stored if each != rule)
        return f"{label} ({rule})" if any(self[each].label == label for each in others) else label

    def is_sampling(self, rule: str) -> bool:
        """Whether a rule draws samples of the net."""
        return self[rule].sampling is not None

    def is_reference(self, rule: str) -> bool:
        """Whether it stands in the place of a rule, made from the oracle itself, and is not ranked."""
        return self[rule].reference

    def in_order(self, rules: Iterable[str]) -> list[str]:
        """Rules in the order of tables and figures, each once: by rank, sampling ones by size.

        Parameters
        ----------
        rules : iterable of str

        Returns
        -------
        list of str
        """

        def key(rule: str) -> tuple[int, int, str]:
            return self[rule].rank, self[rule].sampling or 0, rule

        return sorted(set(rules), key=key)


@functools.cache
def _declared(rule: str) -> Traits:
    """Traits of the package's own rules and references; of what is neither, such as a method, its name."""
    if rule in references():
        return references()[rule].traits
    try:
        return traits(sdp_ref.rule(rule))
    except ValueError:
        name, _, parameters = rule.partition(":")
        return Traits(f"{name} ({parameters.replace(',', ', ')})" if parameters else name)
