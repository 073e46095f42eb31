"""Which non-linearity a module of torch applies."""

from __future__ import annotations

from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations

from sdp_ref.activations import ACTIVATIONS
from sdp_ref.activations.base import Activation
from sdp_ref.activations.pointwise import Pointwise

ELEMENTWISE: dict[type[nn.Module], type[Activation]] = {
    **{kind.module: kind for kind in ACTIVATIONS.values()},
    Pointwise.module: Pointwise,
}
"""All there are, by the module that applies them."""

OPERATORS: dict[str, type[Activation]] = {op: kind for kind in ACTIVATIONS.values() for op in kind.ops}
"""All that an ATen operator applies, by its name."""


def activation_of(module: nn.Module) -> Activation:
    """Non-linearity that a module applies.

    Parameters
    ----------
    module : nn.Module
        Of a type in :data:`ELEMENTWISE`.

    Raises
    ------
    NoFormulaError
        If it has options for which there are no formulas.
    """
    return ELEMENTWISE[type_before_parametrizations(module)].of(module)
