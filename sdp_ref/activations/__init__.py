"""Elementwise non-linearities and their moments under a normal law; each file defines one function or family.

Moments are computed in float64 and cast to the dtype of the input. Variances are exact or centred
quadratures; covariances are closed forms, Hermite series or quadratures.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from sdp_ref.lazy import exports
from sdp_ref.registry import Members, members

if TYPE_CHECKING:
    from sdp_ref.activations.base import Activation
    from sdp_ref.activations.elementwise import ELEMENTWISE, activation_of
else:
    __getattr__, __dir__ = exports(__name__)

__all__ = ["ACTIVATIONS", "ELEMENTWISE", "Activation", "activation", "activation_of"]

ACTIVATIONS: Members[type[Activation]] = members(__name__, "sdp_ref.activations.base.Activation")
"""All non-linearities by name, in the order of tables."""


def activation(name: str, **parameters: float) -> Activation:
    """Return a non-linearity by name."""
    if name not in ACTIVATIONS:
        raise ValueError(f"unknown activation {name!r}; valid ones are {', '.join(ACTIVATIONS)}")
    kind = ACTIVATIONS[name]
    valid = [f.name for f in fields(kind)]
    unknown = [p for p in parameters if p not in valid]
    if unknown:
        takes = ", ".join(valid) if valid else "no parameters"
        raise ValueError(f"activation {name!r} has no parameter {unknown[0]!r}; it takes {takes}")
    return kind(**parameters)
