"""Names and sizes of the timed nets."""

from __future__ import annotations

import re
from dataclasses import dataclass

_MLP = "mlp"
_NAME = re.compile(r"(?P<kind>[^-]+)(?P<sizes>(?:-[0-9]{1,6}x[0-9]{1,6}(?:-[0-9]{1,6}){0,2})?)")


@dataclass(frozen=True)
class Mlp:
    """A fully connected ReLU net whose hidden layers have equal width."""

    depth: int
    width: int
    outputs: int = 3
    inputs: int = 4

    @property
    def name(self) -> str:
        return f"{_MLP}-{self.depth}x{self.width}-{self.outputs}-{self.inputs}"


@dataclass(frozen=True)
class ImageNet:
    """An image classifier."""

    kind: str  # name of its architecture
    # size of the images
    size: int = 32
    channels: int = 3
    width: int | None = None  # width of the first layer; by default all sizes are the architecture's own

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.size}x{self.width}-{self.channels}" if self.width else self.kind


def sized(name: str) -> Mlp | ImageNet:
    """Return the net with this name.

    Names are ``cnn3`` and ``resnet18`` for 3x32x32 images, or ``mlp-4x100`` for four hidden layers of 100
    units, with four inputs and 3 outputs. ``mlp-4x100-10`` has 10 outputs, and ``mlp-4x100-10-50`` also 50
    inputs. ``cnn3-8x4`` is cnn3 with 4 channels in the first layer for 3x8x8 images, ``cnn3-28x64-1`` the
    same for 1x28x28.
    """
    found = _NAME.fullmatch(name)
    kind, numbers = (found["kind"], [*map(int, re.findall(r"\d+", found["sizes"]))]) if found else ("", [])
    if kind == _MLP and numbers:
        return Mlp(*numbers)
    if kind in ("", _MLP) or len(numbers) > 3:
        raise ValueError(f"no net is called {name!r}")
    if not numbers:
        return ImageNet(kind)
    size, width, channels = [*numbers, 3][:3]
    return ImageNet(kind, size, channels, width)
