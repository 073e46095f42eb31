"""The table of modules for ATen ops, for :mod:`sdp_ref.graph.trace`.

Ops that only move components do not need an entry: they are run once on component indices, and the result
shows where the components went.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from sdp_ref.activations.base import Activation
from sdp_ref.activations.elementwise import OPERATORS
from sdp_ref.graph.aten import arithmetic, layers
from sdp_ref.graph.aten.call import Builder, Call, as_value, fixed
from sdp_ref.graph.ops import Mean, Sum
from sdp_ref.graph.recording import Entry, overwritten
from sdp_ref.graph.replay import Value


def _elementwise(kind: type[Activation], name: str) -> Builder:
    def build(call: Call, x: Any, *args: Any, **options: Any) -> Value:
        fixed(*args, *options.values())
        return call.made(call.emit(kind.from_op(name, *args, **options), as_value(x)))

    return build


_MOVES = (
    "overwritten",
    "contiguous",
    "clone",
    "alias",
    "fill",
    "zero",
    "view",
    "reshape",
    "_unsafe_view",
    "view_as",
    "reshape_as",
    "flatten",
    "unflatten",
    "squeeze",
    "unsqueeze",
    "permute",
    "transpose",
    "t",
    "adjoint",
    "movedim",
    "swapaxes",
    "numpy_T",
    "roll",
    "flip",
    "rot90",
    "expand",
    "expand_as",
    "repeat",
    "repeat_interleave",
    "tile",
    "stack",
    "hstack",
    "vstack",
    "select",
    "slice",
    "narrow",
    "index",
    "index_select",
    "take",
    "gather",
    "diagonal",
    "tril",
    "triu",
    "split",
    "split_with_sizes",
    "unsafe_split",
    "unsafe_split_with_sizes",
    "unsafe_chunk",
    "chunk",
    "tensor_split",
    "unbind",
    "where",
    "masked_fill",
    "slice_scatter",
    "select_scatter",
    "constant_pad_nd",
    "pad",
    "pixel_shuffle",
    "pixel_unshuffle",
    "channel_shuffle",
    "native_channel_shuffle",
    "unfold",
    "im2col",
    "reflection_pad1d",
    "reflection_pad2d",
    "reflection_pad3d",
    "replication_pad1d",
    "replication_pad2d",
    "replication_pad3d",
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
)
"""Ops that only move components, or fill some with constants."""

_INTERPOLATIONS = (
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_bicubic2d",
    "upsample_trilinear3d",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
)

_TABLE: dict[str, Builder] = {
    **{name: _elementwise(kind, name) for name, kind in OPERATORS.items()},
    "linear": layers.linear,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution", "_convolution"), layers.convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), layers.convolution),
    "batch_norm": layers.batch_norm,
    **dict.fromkeys(("layer_norm", "native_layer_norm"), layers.layer_norm),
    "rms_norm": layers.rms_norm,
    "group_norm": layers.group_norm,
    "instance_norm": layers.instance_norm,
    **dict.fromkeys(("softmax", "_softmax"), layers.softmax(nn.Softmax)),
    **dict.fromkeys(("log_softmax", "_log_softmax"), layers.softmax(nn.LogSoftmax)),
    **{f"avg_pool{n}d": layers.pool(getattr(nn, f"AvgPool{n}d")) for n in (1, 2, 3)},
    **{
        f"max_pool{n}d{indices}": layers.pool(getattr(nn, f"MaxPool{n}d"))
        for n in (1, 2, 3)
        for indices in ("", "_with_indices")
    },
    **{
        f"adaptive_{kind}_pool{n}d": layers.pool(getattr(nn, f"Adaptive{kind.capitalize()}Pool{n}d"))
        for n in (1, 2, 3)
        for kind in ("avg", "max")
    },
    "rrelu": layers.rrelu,
    "mean": layers.reduced(Mean, "a mean"),
    "sum": layers.reduced(Sum, "a sum"),
    "add": arithmetic.add,
    **dict.fromkeys(("sub", "subtract"), arithmetic.sub),
    "rsub": arithmetic.rsub,
    **dict.fromkeys(("mul", "multiply"), arithmetic.mul),
    **dict.fromkeys(("div", "divide", "true_divide"), arithmetic.div),
    "addcmul": arithmetic.addcmul,
    "neg": arithmetic.neg,
    **dict.fromkeys(("matmul", "mm", "bmm"), arithmetic.matmul),
    "addmm": arithmetic.addmm,
    **dict.fromkeys(("maximum", "max.other"), arithmetic.of_two(1)),
    **dict.fromkeys(("minimum", "min.other"), arithmetic.of_two(-1)),
    **dict.fromkeys(("amax", "max.default", "max.dim"), arithmetic.over(1)),
    **dict.fromkeys(("amin", "min.default", "min.dim"), arithmetic.over(-1)),
    "clamp.Tensor": arithmetic.clamp,
    "clamp_min.Tensor": arithmetic.clamp,
    "clamp_max.Tensor": lambda call, x, bound: arithmetic.clamp(call, x, None, bound),
    "linalg_vector_norm": arithmetic.vector_norm,
    "scaled_dot_product_attention": arithmetic.attention,
    "cat": layers.cat,
    **dict.fromkeys(("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"), layers.dropout),
    **dict.fromkeys(
        ("detach", "to", "_to_copy", "type_as", "float", "double", "lift_fresh", "positive"), layers.same
    ),
    **dict.fromkeys(_MOVES, layers.rearranged),
    "cumsum": layers.cumulated,
    "col2im": layers.folded,
    **dict.fromkeys(_INTERPOLATIONS, layers.interpolated),
}
KNOWN = frozenset(name.partition(".")[0] for name in _TABLE)
"""Names of the ATen ops that are recorded as a whole; other composite ops are decomposed."""


def builder_of(entry: Entry) -> Builder | None:
    """Return the builder of an entry's steps, if there is one."""
    plain = "overwritten" if entry.function is overwritten else getattr(entry.function, "_opname", "")
    whole = f"{plain}.{getattr(entry.function, '_overloadname', '')}"
    return _TABLE.get(whole, _TABLE.get(plain))
