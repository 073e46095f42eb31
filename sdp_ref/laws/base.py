"""What a law is: a batch of distributions on one event shape, validated where a user builds it."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar

if TYPE_CHECKING:
    import torch
    from torch import Tensor

LawT = TypeVar("LawT", bound="Law")


@dataclass(frozen=True, eq=False)
class Law:
    """What every family shares: a batch of laws on one event shape."""

    if TYPE_CHECKING:  # a property here at run time would be taken for a subclass field's default

        @property
        def location(self) -> Tensor:
            """Centre of the law, shape (B, *event): its mean where it has one."""

    @property
    def batch(self) -> int:
        """Number of laws, B."""
        return self.location.shape[0]

    @property
    def event_shape(self) -> torch.Size:
        """Shape of one draw."""
        return self.location.shape[1:]

    @property
    def dimension(self) -> int:
        """Number of components of one draw, n."""
        return math.prod(self.event_shape)

    def __getitem__(self: LawT, index: SupportsIndex | slice) -> LawT:
        """Law or laws at `index`, still batched: ``x[0]`` has batch 1.

        Returns
        -------
        Law
            Of the same family.

        Raises
        ------
        IndexError
            If there is no such law.
        ValueError
            If a slice holds none: there is no batch of 0, here as in the constructors.
        """
        if not isinstance(index, slice):
            index = operator.index(index)
            if not -self.batch <= index < self.batch:  # also what ends a plain `for law in laws`
                raise IndexError(f"law {index} of a batch of {self.batch}")
            index %= self.batch
            index = slice(index, index + 1)
        elif not range(self.batch)[index]:
            raise ValueError(f"a batch has one law or more, the slice holds none of {self.batch}")
        return unchecked(type(self), *(_row(getattr(self, f.name), index) for f in fields(self)))

    def to(self: LawT, *args: Any, **kwargs: Any) -> LawT:
        """Same law with every tensor moved or cast as by :meth:`torch.Tensor.to`."""
        from torch import Tensor

        moved = (getattr(self, f.name) for f in fields(self))
        return unchecked(type(self), *(v.to(*args, **kwargs) if isinstance(v, Tensor) else v for v in moved))


def unchecked(family: type[LawT], *values: object) -> LawT:
    """Build a law of `family` from its fields without validating them (for results of rules)."""
    law = object.__new__(family)
    for field, value in zip(fields(family), values, strict=True):
        object.__setattr__(law, field.name, value)
    return law


def joined(laws: Sequence[LawT]) -> LawT:
    """Batch made of the parts of one: laws of one family and event shape, one after the other."""
    import torch
    from torch import Tensor

    values = ([getattr(law, f.name) for law in laws] for f in fields(laws[0]))
    return unchecked(type(laws[0]), *(torch.cat(v) if isinstance(v[0], Tensor) else v[0] for v in values))


def _row(value: Any, index: slice) -> Any:
    from torch import Tensor

    return value[index] if isinstance(value, Tensor) else value


def check_tensor(name: str, value: object, location: Tensor | None = None) -> Tensor:
    """Give back a field of a law that is a finite floating-point tensor.

    Parameters
    ----------
    name : str
        Of the field, for the message.
    value : object
    location : Tensor, optional
        Of the law, whose dtype and device it must have.

    Returns
    -------
    Tensor
        The value.

    Raises
    ------
    ValueError
        If it is not.
    """
    import torch
    from torch import Tensor

    if not isinstance(value, Tensor):
        raise ValueError(f"{name} must be a torch tensor, got {type(value).__name__}")
    if not value.is_floating_point():
        raise ValueError(f"{name} must have a floating-point dtype, got {value.dtype}")
    if location is not None and value.dtype != location.dtype:
        raise ValueError(f"{name} has dtype {value.dtype}, the location {location.dtype}; make them one")
    if location is not None and value.device != location.device:
        raise ValueError(f"{name} is on {value.device}, the location on {location.device}; make them one")
    if not bool(torch.isfinite(value.detach()).all()):
        raise ValueError(f"{name} must be finite, but has NaN or infinite entries")
    return value


def check_location(name: str, value: object) -> None:
    """Refuse a location that :func:`check_tensor` refuses or that has no batch dimension.

    Parameters
    ----------
    name : str
        Of the field, for the message.
    value : object

    Raises
    ------
    ValueError
        If so.
    """
    shape = check_tensor(name, value).shape
    if len(shape) < 2:
        raise ValueError(f"{name} must have a batch dimension first, shape (B, *event), got {tuple(shape)}")
    if shape[0] < 1:
        raise ValueError(f"a batch has one law or more, {name} has shape {tuple(shape)}")


def check_scale(name: str, value: object, location: Tensor) -> None:
    """Refuse scales that :func:`check_tensor` refuses, of another shape than the location, or negative.

    Parameters
    ----------
    name : str
        Of the field, for the message.
    value : object
    location : Tensor
        Of the law.

    Raises
    ------
    ValueError
        If so.
    """
    scale = check_tensor(name, value, location).detach()
    if scale.shape != location.shape:
        raise ValueError(
            f"{name} must have the location's shape {tuple(location.shape)}, got {tuple(scale.shape)}"
        )
    if bool((scale < 0).any()):
        raise ValueError(f"{name} must be >= 0, smallest entry is {scale.min().item():.3g}")
