"""Metadata of a rule: its label, colour and rank."""

from __future__ import annotations

from dataclasses import dataclass

from sdp_ref.rules.base import Propagator, Rule


@dataclass(frozen=True)
class Traits:
    """Metadata of a rule for tables, figures and statistics.

    Attributes
    ----------
    label : str
        Display name, with the parameters.
    colour : str or None
        As ``#rrggbb``; None lets the figure choose.
    sampling : int or None
        Number of samples of the net that it draws, 0 if unknown; None for deterministic rules.
    marginal : bool
        Whether it drops the correlations between the units of a layer.
    reference : bool
        Whether it is derived from the oracle itself and therefore not ranked.
    rank : int
        Sort key in tables.
    """

    label: str
    colour: str | None = Rule.colour
    sampling: int | None = None
    marginal: bool = Rule.marginal
    reference: bool = Rule.reference
    rank: int = Rule.rank


def traits(rule: Propagator) -> Traits:
    """Return the metadata of any rule, from its attributes of these names.

    A rule that has a ``seed`` but does not declare the number of samples counts as sampling, since its
    results may depend on the seed.
    """
    sampling = getattr(rule, "sampling", 0 if hasattr(rule, "seed") else None)
    return Traits(
        label=str(getattr(rule, "label", rule.name)),
        colour=getattr(rule, "colour", Rule.colour),
        sampling=None if sampling is None else int(sampling),
        marginal=bool(getattr(rule, "marginal", Rule.marginal)),
        reference=bool(getattr(rule, "reference", Rule.reference)),
        rank=int(getattr(rule, "rank", Rule.rank)),
    )
