"""The affine forms of all ops."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from sdp_ref.errors import NoFormulaError
from sdp_ref.graph.affine.base import Affine, Power
from sdp_ref.graph.affine.components import Elementwise, Padding, Rearrangement
from sdp_ref.graph.affine.functions import Dense, Interpolation
from sdp_ref.graph.affine.layers import Convolution, LinearMap, Normalisation, TransposedConvolution
from sdp_ref.graph.affine.reductions import AdaptiveAveragePool, AveragePool, MeanOver, SumOver
from sdp_ref.graph.ops import (
    BatchNorm,
    Divide,
    Folded,
    Interpolate,
    LinearFunction,
    Mean,
    Pad,
    Rearrange,
    Reshape,
    Scale,
    Shift,
    Sum,
)


class FoldedAffine(Affine):
    """An affine op that is applied to each part of an event separately."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        kind = type_before_parametrizations(self.module.module)
        if kind not in AFFINE:
            raise NoFormulaError(kind.__name__)
        self.op = AFFINE[kind](self.module.module)
        self.diagonal = self.op.diagonal

    def value(self, x: Tensor) -> Tensor:
        return _unfolded(self.op.value(x.flatten(0, 1)), x)

    def check(self, x: Tensor) -> None:
        self.op.check(x.flatten(0, 1))

    def weight(self, x: Tensor) -> Tensor:
        return self.op.weight(x.flatten(0, 1))

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        return _unfolded(self.op.linear(x.flatten(0, 1), weight), x)

    def rows(self, x: Tensor) -> Tensor:
        return _unfolded(self.op.rows(x.flatten(0, 1)), x)

    def spread(self, x: Tensor, exponent: Power) -> Tensor:
        return _unfolded(self.op.spread(x.flatten(0, 1), exponent), x)


_CONSTANT_PADS = (
    *(nn.ConstantPad1d, nn.ConstantPad2d, nn.ConstantPad3d),
    *(nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d),
)
_COPIES = (
    *(nn.ReflectionPad1d, nn.ReflectionPad2d, nn.ReflectionPad3d),
    *(nn.ReplicationPad1d, nn.ReplicationPad2d, nn.ReplicationPad3d),
    *(nn.CircularPad1d, nn.CircularPad2d, nn.CircularPad3d),
    *(nn.PixelShuffle, nn.PixelUnshuffle, nn.ChannelShuffle),
)

AFFINE: dict[type[nn.Module], type[Affine]] = {
    nn.Linear: LinearMap,
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), Convolution),
    **dict.fromkeys((nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), TransposedConvolution),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, BatchNorm), Normalisation),
    **dict.fromkeys((nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d), AveragePool),
    **dict.fromkeys((nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d), AdaptiveAveragePool),
    Mean: MeanOver,
    Sum: SumOver,
    **dict.fromkeys((Scale, Divide, Shift), Elementwise),
    **dict.fromkeys((nn.Flatten, nn.Unflatten, Rearrange, Reshape, *_COPIES), Rearrangement),
    **dict.fromkeys((Pad, *_CONSTANT_PADS), Padding),
    LinearFunction: Dense,
    **dict.fromkeys((Interpolate, nn.Upsample), Interpolation),
    Folded: FoldedAffine,
}


def _unfolded(y: Tensor, like: Tensor) -> Tensor:
    return y.reshape(*like.shape[:2], *y.shape[1:])
