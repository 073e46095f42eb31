"""What is to be known of a rule beside its predictions: how it is called, drawn and ranked."""

from __future__ import annotations

from dataclasses import dataclass

from sdp_ref.rules.base import Propagator, Rule


@dataclass(frozen=True)
class Traits:
    """What tables, figures and statistics have to know of a rule.

    Attributes
    ----------
    label : str
        Name for people, with its parameters.
    colour : str or None
        As ``#rrggbb``; None leaves it to the figure.
    sampling : int or None
        Samples of the net that it draws, 0 if their number is not known; None for a rule that draws none.
    marginal : bool
        Whether it drops the correlations between the units of a layer.
    reference : bool
        Whether it is made from the oracle itself, and so has no place in a ranking.
    rank : int
        Place in tables, the lowest first.
    """

    label: str
    colour: str | None = Rule.colour
    sampling: int | None = None
    marginal: bool = Rule.marginal
    reference: bool = Rule.reference
    rank: int = Rule.rank


def traits(rule: Propagator) -> Traits:
    """Traits of a rule, be it a :class:`Rule` or not.

    Parameters
    ----------
    rule : Propagator
        What it declares by attributes of these names counts. One that has a ``seed`` and does not say how
        many samples it draws is taken for one that draws some: its results may change with the seed.
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
