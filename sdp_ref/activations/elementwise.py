"""Look-up of the non-linearity that a torch module or operator applies."""

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
"""Non-linearities by the torch module that applies them."""

OPERATORS: dict[str, type[Activation]] = {
    op: kind for kind in ACTIVATIONS.values() for op in kind.ops or (kind.name,)
}
"""Non-linearities by the ATen operator that applies them."""


def activation_of(module: nn.Module) -> Activation:
    """Return the non-linearity that a module applies; its type must be in :data:`ELEMENTWISE`.

    Options of the module without formulas raise :class:`~sdp_ref.errors.NoFormulaError`.
    """
    return ELEMENTWISE[type_before_parametrizations(module)].of(module)
