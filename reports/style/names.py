"""Names, order and traits of noise families, nets and rules on pages."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import sdp_ref
from sdp_ref.activations import ACTIVATIONS
from sdp_ref.rules import Traits, traits

from ...bench.metrics.references import references
from ...bench.nets.architectures import NETWORKS
from ...bench.noise import GAUSSIAN, name_of, parameter_of
from ...bench.published import PUBLISHED


def noise_symbol(family: str) -> str:
    """Symbol of the scale of a stored family: σ of a standard deviation, γ of a stable distribution's."""
    parameter = parameter_of(family)
    return {"sigma": "σ", "gamma": "γ"}.get(parameter, parameter)


def noise_words(family: str) -> str:
    """Name of a family, ``Laplace noise``; empty for Gaussian noise, the default."""
    return "" if family in ("", GAUSSIAN.family) else f"{name_of(family)} noise"


_LAST = 100  # rank of a classifier, and of a non-linearity without a rank
_OWN = "own"  # prefix of the name of a user's net, in place of an activation


@dataclass(frozen=True)
class NetKind:
    """Nets of one non-linearity and depth, an image classifier, or a user's net.

    `activation` is stored in records: the name of the non-linearity with its parameters, or of the
    classifier. `depth` is the number of hidden layers.
    """

    activation: str
    depth: int

    @property
    def label(self) -> str:
        """Name for readers: ``4 ReLU layers``, or the name of a classifier or of a user's net."""
        if self.is_classifier:
            return NETWORKS[self.activation].title
        kind, _, name = self.activation.partition(":")
        if kind == _OWN:
            return name
        return f"{self.depth} {activation_label(self.activation)} layer{'' if self.depth == 1 else 's'}"

    @property
    def family(self) -> str:
        """Building block of a classifier, such as attention or convolution; empty for other nets."""
        return NETWORKS[self.activation].family if self.is_classifier else ""

    @property
    def is_classifier(self) -> bool:
        """Whether this is a classifier of images or sequences, evaluated on their test split."""
        return self.activation in NETWORKS


def activation_label(activation: str) -> str:
    name, _, parameters = activation.partition(":")
    if name in NETWORKS:
        return NETWORKS[name].title
    if name in (_OWN, PUBLISHED):
        return parameters.removeprefix(f"{PUBLISHED}:")
    label = ACTIVATIONS.written(name, "label", str) if name in ACTIVATIONS else name
    return f"{label} ({parameters})" if parameters else label


def activation_rank(activation: str) -> int:
    name = activation.partition(":")[0]
    return ACTIVATIONS.written(name, "rank", int) if name in ACTIVATIONS else _LAST


@dataclass(frozen=True, eq=False)
class RuleTraits:
    """Traits of rules, by spec.

    Traits of a user's rule are stored with its measurements, so that pages are made without its code. A rule
    missing from `stored` was not measured and is therefore one of the package's own, mentioned by a claim or
    a table of the paper.
    """

    stored: Mapping[str, Traits] = field(default_factory=dict)

    def __getitem__(self, rule: str) -> Traits:
        return self.stored[rule] if rule in self.stored else _declared(rule)

    def label(self, rule: str) -> str:
        """Label of a rule in all texts, ``DVIA*``: at most `LONGEST` characters, and no other rule has it."""
        if rule in self.stored:
            return self._labels[rule]
        return distinct_labels({spec: self[spec].label for spec in (*self.stored, rule)})[rule]

    @functools.cached_property
    def _labels(self) -> dict[str, str]:
        return distinct_labels({rule: self[rule].label for rule in self.stored})

    def recommended(self, rule: str) -> str:
        """A rule in advice: ``1,000 samples``, ``128 Sobol samples (measured with 100)``, or its label.

        Numbers of Sobol samples are rounded up to a power of two, for which the points are most uniform.
        """
        measured = count = self[rule].sampling or 0
        is_sobol = "sobol" in rule
        if is_sobol and measured:
            count = 2 ** (measured - 1).bit_length()
        if rule.startswith("monte_carlo") and count:
            words = f"{count:,} {'Sobol ' * is_sobol}samples"
            return words if count == measured else f"{words} (measured with {measured:,})"
        label = self.label(rule)
        return label if count == measured else f"{label} with {count:,} samples"

    def action(self, rule: str) -> str:
        """What to do to apply a rule: ``draw 1,000 samples``, ``use DVIA``."""
        is_plain = rule.startswith("monte_carlo") and self[rule].sampling
        return f"{'draw' if is_plain else 'use'} {self.recommended(rule)}"

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


_SHORTER = (
    (" (means=regular_covariance)", "*"),
    (" (means=regular)", "†"),
    (" (full)", ""),
    ("MC estimate k=", "MC "),
    ("MC with control variate k=", "MC + control variate "),
)


def shortened(label: str) -> str:
    """Replace long parts of the package's own labels, which the page of all rules explains."""
    for long, short in _SHORTER:
        label = label.replace(long, short)
    return label


LONGEST = 48
"""Largest number of characters of a label."""


def distinct_labels(declared: Mapping[str, str]) -> dict[str, str]:
    """Return short, distinct labels of rules, from their declared labels by spec.

    A declared label counts if it is short and no other rule has it; it is shortened if the result is distinct
    as well. Otherwise the label is the title with the parts of the spec, name and parameters, that not all
    rules with this title share. Labels that are still too long or equal are cut and numbered.
    """
    rules = sorted(declared)
    shorter = {rule: shortened(label) for rule, label in declared.items()}
    titles = {rule: _title(rule, declared[rule]) for rule in rules}
    parts = {rule: [part for part in re.split("[:,]", rule) if part] for rule in rules}
    distinguished = {}
    for rule in rules:
        alike = [set(parts[other]) for other in rules if titles[other] == titles[rule]]
        shared = set.intersection(*alike) if len(alike) > 1 else set(parts[rule][:1])
        own = ", ".join(part for part in parts[rule] if part not in shared)
        distinguished[rule] = f"{titles[rule]} ({own})" if own else titles[rule]
    chosen: dict[str, str] = {}
    for labels in (shorter, declared, distinguished):
        counts = Counter([*chosen.values(), *labels.values()])
        for rule in rules:
            if rule not in chosen and len(labels[rule]) <= LONGEST and counts[labels[rule]] == 1:
                chosen[rule] = labels[rule]
    for number, rule in enumerate([rule for rule in rules if rule not in chosen], 1):
        ending = f"… #{number}"
        chosen[rule] = declared[rule][: LONGEST - len(ending)].rstrip() + ending
    return chosen


def _title(rule: str, label: str) -> str:
    """Declared label without the parameters in parentheses at its end."""
    return label.rpartition(" (")[0] if ":" in rule and label.endswith(")") else label


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
