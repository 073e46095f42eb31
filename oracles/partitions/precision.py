"""Precision for sampling outputs: whether float32 moves samples between cells."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from sdp_ref.laws import Law

from ..estimate.tails import heavy_tailed
from ..sampling.noise import Seed
from ..sampling.outputs import sample_outputs
from .counting import pilot_values, rounding_of
from .heavy_tails import central_axes
from .tree import EqualMassTree, principal_axes

SHARE = 0.5
"""Maximum share of samples in different cells than in float64, relative to the floor. The total variation
between the two laws is at most that, and less where moves cancel: close to the limit it was at most half of
them. This raises the distance of an exact rule by 3 % of the floor, while the 95 % point is 6 % above the
floor.
"""

_CELLS = 512  # as in the headline; fewer cells would rarely divide thin directions and miss effects there
_ROWS_OF_CELL = 2  # minimum, to construct the cells
_ROWS = 2**13  # maximum: in both precisions as expensive as 2.5 % of 10^6 samples in float32
_SAMPLES_OF_ROW = 32  # minimum
_LEAST_ROWS = 32


@dataclass(frozen=True)
class Rounding:
    """Effect of float32 on the law of a net's output.

    `moved` is the share of the samples in different cells, an upper bound of the total variation between the
    laws in both precisions, counted in these cells; `allowed` is the largest acceptable share, :data:`SHARE`
    of the floor for the planned number of samples. `single` and `double` are the numbers of directions in
    which the law has spread in float32 and in float64.
    """

    moved: float
    allowed: float
    single: int
    double: int

    @property
    def matters(self) -> bool:
        """Whether the law has to be sampled in float64."""
        return self.moved > self.allowed or self.single != self.double


def precise(net: nn.Module, law: Law) -> tuple[nn.Module, Law]:
    return copy.deepcopy(net).double(), law.to(dtype=torch.float64)


def rounding_by(
    net: nn.Module, law: Law, samples: int, *, seed: Seed, device: torch.device | str | None = None
) -> Rounding:
    """Draw some samples from the same noise in both precisions, and compare their cells.

    The cells are those of the headline, of equal mass along the principal axes of the law in float64 (of
    its central half if tails are heavy). They are constructed on one half of the rows and used for the
    other, and vice versa, because edges are closer to the two samples that define them than to others.
    """
    rows = max(_LEAST_ROWS, min(_ROWS, samples // _SAMPLES_OF_ROW))
    cells = min(_CELLS, 2 ** int(math.log2(rows / 2 / _ROWS_OF_CELL)))
    allowed = SHARE * math.sqrt(cells / (math.pi * samples))
    single = sample_outputs(net, law, rows, seed=seed, device=device).cpu()
    if single.dtype == torch.float64:
        return Rounding(0.0, allowed, single.shape[1], single.shape[1])
    double = sample_outputs(*precise(net, law), rows, seed=seed, device=device).cpu()
    axes = central_axes if heavy_tailed(law) else principal_axes
    spread = [EqualMassTree.from_samples(each, 2, axes).axes.shape[1] for each in (single, double)]
    halves = slice(rows // 2), slice(rows // 2, rows)
    moved = 0
    for grown, looked_up in (halves, reversed(halves)):
        tree = EqualMassTree.from_samples(double[grown], cells, axes)
        moved += _moved(tree, single[looked_up], double[looked_up])
    return Rounding(moved / rows, allowed, *spread)


def _moved(tree: EqualMassTree, single: Tensor, double: Tensor) -> int:
    # Samples are off the subspace if rounding in float32 does not explain it.
    tolerant = replace(tree, rounding=rounding_of(single))
    cells = (tolerant.located(pilot_values(each).T) for each in (single, double))
    single_cells, double_cells = cells
    return int((single_cells != double_cells).sum())
