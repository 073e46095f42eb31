"""Selection of a net's noisy input, its other inputs, and one of its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sdp_bench.bench.errors import UserError


@dataclass(frozen=True, eq=False)
class Ports:
    """The selected input and output."""

    noisy: str = "0"  # index or name of the input with the noise
    # shape (1, ...); the other inputs by index or name, the same for all examples
    given: Mapping[str, Tensor] = field(default_factory=dict)
    output: str = ""  # keys, fields and indices, separated by dots; empty if the net returns one tensor

    @property
    def names(self) -> dict[str, str]:
        return {"noisy": self.noisy, "output": self.output}

    @property
    def is_plain(self) -> bool:
        """Whether the net takes one tensor and returns one."""
        return not self.given and self.names == Ports().names

    def wrap(self, net: nn.Module) -> nn.Module:
        """Return a net with one input and one output tensor; `net` itself if there is no choice."""
        return net if self.is_plain else _Chosen(net, self)


class _Chosen(nn.Module):
    """A net restricted to one of its inputs and one of its outputs."""

    def __init__(self, net: nn.Module, ports: Ports) -> None:
        super().__init__()
        self.net, self.noisy, self.output = net, ports.noisy, ports.output
        names = [*ports.given, ports.noisy]
        places = sorted(int(name) for name in names if name.isdigit())
        if places != list(range(len(places))):
            raise UserError(f"of the net's inputs by place there are {places}, which leaves some out")
        self.places, self.keywords = places, [name for name in names if not name.isdigit()]
        dtype = dtype_of(net)
        for name, value in ports.given.items():
            cast = value.to(dtype) if value.is_floating_point() else value
            self.register_buffer(f"given_{name}", cast, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        args = [self._input(str(place), x) for place in self.places]
        made = self.net(*args, **{name: self._input(name, x) for name in self.keywords})
        taken: Tensor = picked(made, self.output)
        return taken

    def _input(self, name: str, x: Tensor) -> Tensor:
        if name == self.noisy:
            return x
        given: Tensor = getattr(self, f"given_{name}")
        return given.expand(x.shape[0], *given.shape[1:])


def dtype_of(net: nn.Module) -> torch.dtype:
    """Type of a net's weights, float32 without any."""
    return next((p.dtype for p in net.parameters() if p.is_floating_point()), torch.float32)


def picked(made: Any, path: str) -> Any:
    """Return a part of a net's result, by keys, fields and indices separated by dots."""
    for part in path.split(".") if path else ():
        inside = _inside(made)
        if not inside:
            raise UserError(f"there is no output '{path}' in {described(made)}")
        if part not in inside:
            raise UserError(
                f"there is no output '{path}': there are {', '.join(inside)} in {described(made)}"
            )
        made = inside[part]
    return made


def described(made: Any) -> str:
    """Describe a net's result briefly."""
    if isinstance(made, Tensor):
        return f"a tensor of shape {tuple(made.shape)}"
    inside = ", ".join(
        f"{name} {tuple(value.shape)}" if isinstance(value, Tensor) else f"{name} ({type(value).__name__})"
        for name, value in list(_inside(made).items())[:8]
    )
    return type(made).__name__ + (f" of {inside}" if inside else "")


def _inside(made: Any) -> dict[str, Any]:
    if isinstance(made, Mapping):
        return {str(key): value for key, value in made.items()}
    if is_dataclass(made) and not isinstance(made, type):
        return {each.name: getattr(made, each.name) for each in fields(made)}
    if isinstance(made, Sequence) and not isinstance(made, str | bytes):
        named = dict(zip(getattr(made, "_fields", ()), made, strict=False))
        return named | {str(place): value for place, value in enumerate(made)}
    return {}
