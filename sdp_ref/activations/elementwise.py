"""Which non-linearity a module of torch applies."""

from __future__ import annotations

from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations

from sdp_ref.activations import ACTIVATIONS
from sdp_ref.activations.base import Activation

ELEMENTWISE: dict[type[nn.Module], type[Activation]] = {kind.module: kind for kind in ACTIVATIONS.values()}
"""All there are, by the module that applies them."""


def activation_of(module: nn.Module) -> Activation:
    """Non-linearity that a module applies.

    Parameters
    ----------
    module : nn.Module
        Of a type in :data:`ELEMENTWISE`.

    Returns
    -------
    Activation

    Raises
    ------
    NoFormulaError
        If it has options for which there are no formulas.
    """
    return ELEMENTWISE[type_before_parametrizations(module)].of(module)
