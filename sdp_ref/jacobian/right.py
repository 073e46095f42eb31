"""The derivative from the right at kinks, for every rule that differentiates ops of a net by autograd.

At a kink, the derivative of an op is that at the next number on the right. For functions of one value, this
is :meth:`sdp_ref.activations.Activation.derivative`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch._C._autograd import _top_saved_tensors_default_hooks
from torch.nn import functional as F  # noqa: N812
from torch.overrides import TorchFunctionMode

from sdp_ref.activations.base import differentiating, on_the_right, transformed, with_right_derivative
from sdp_ref.errors import NoFormulaError
from sdp_ref.graph.recording import leaves, mapped

_CORNERS: dict[str, tuple[float, ...]] = {
    "relu": (0.0,),
    "leaky_relu": (0.0,),
    "prelu": (0.0,),
    "prelu_kernel": (0.0,),
    "rrelu": (0.0,),
    "elu": (0.0,),
    "celu": (0.0,),
    "selu": (0.0,),
    "abs": (0.0,),
    "absolute": (0.0,),
    "relu6": (0.0, 6.0),
    "hardswish": (-3.0, 3.0),
    "hardsigmoid": (-3.0, 3.0),
}
"""Functions with fixed corners."""

_CORNER_ARGUMENTS: dict[str, dict[str, float | None]] = {
    "hardtanh": {"min_val": -1.0, "max_val": 1.0},
    "hardshrink": {"lambd": 0.5},
    "softshrink": {"lambd": 0.5},
    "threshold": {"threshold": None},
    "clamp": {"min": None, "max": None},
    "clip": {"min": None, "max": None},
    "clamp_min": {"min": None},
    "clamp_max": {"max": None},
    "maximum": {"other": None},
    "minimum": {"other": None},
    "fmax": {"other": None},
    "fmin": {"other": None},
    "max": {"other": None},
    "min": {"other": None},
}
"""Functions with corners at arguments: the first arguments after the input, with their defaults."""

_COMPARISONS = frozenset(
    ("gt", "lt", "ge", "le", "eq", "ne", "greater", "less", "greater_equal", "less_equal", "not_equal")
)
_SIGNS = frozenset(("sign", "sgn", "signbit"))

_RELUS = frozenset({F.relu, F.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_})
_LEAKY = frozenset({F.leaky_relu, F.leaky_relu_})

_FILLED = frozenset(
    (
        "zeros_like",
        "ones_like",
        "empty_like",
        "full_like",
        "rand_like",
        "randn_like",
        "randint_like",
        "new_zeros",
        "new_ones",
        "new_empty",
        "new_full",
        "argmax",
        "argmin",
        "argsort",
        "nonzero",
        "count_nonzero",
    )
)
"""Functions of the shape of a tensor only, or with indices as the result."""
_SHAPED = frozenset(("to", "type_as", "expand_as", "view_as", "reshape_as"))
"""Functions of their first argument, with only dtype or shape of the second."""
_MEMORY = frozenset(
    ("int", "index", "item", "tolist", "data_ptr", "storage", "untyped_storage", "dlpack", "set")
)
_PROPERTIES = (type(None), bool, int, str, torch.dtype, torch.device, torch.layout, torch.memory_format)


class RightDerivative(TorchFunctionMode):
    """Computes functions with kinks such that their derivative is the one from the right.

    This applies to ReLU, leaky ReLU and PReLU, to the other piecewise functions of torch, to absolute values
    and clamps, and to the maximum or minimum of two tensors, for values that depend on the net's input. In a
    tie of two values the first is the larger one, since it is the one that moves to the right. Values do not
    change.

    The mode rejects torch's dropout, RReLU and batch normalisation in training mode, which make the result
    random or mix rows. Other implementations of these are not detected. Functions of the weights alone are
    allowed: weight standardisation often uses batch normalisation.

    After a run, `jumped` is whether a comparison or a step function was evaluated at a jump, so that the
    derivative of the selected branch may not be the one from the right, and `hidden` is whether the net used
    its input outside autograd (torch.no_grad, detach, NumPy). `recomputed` is whether hooks of autograd store
    its values, as in torch.utils.checkpoint, which runs parts of the net again in the backward pass.

    Parameters
    ----------
    depends : callable, optional
        Whether a tensor may depend on the net's input. If omitted, all tensors may.
    repeated : bool
        Whether the net has been run with this mode before: nothing is rejected or examined.
    """

    _COUPLED = "batch normalisation with batch statistics"
    _REFUSED: ClassVar = (
        ({F.batch_norm: False, torch.batch_norm: True, torch.native_batch_norm: True}, _COUPLED, 5),
        (
            {
                F.dropout: True,
                F.dropout1d: True,
                F.dropout2d: True,
                F.dropout3d: True,
                F.alpha_dropout: False,
                F.feature_alpha_dropout: False,
                torch.dropout: True,
                torch.alpha_dropout: True,
                torch.native_dropout: True,
            },
            "dropout in training mode",
            2,
        ),
        ({F.rrelu: False, torch.rrelu: False}, "RReLU in training mode", 3),
    )
    """Functions with the default and the position of their argument `training`."""
    _REJECTABLE = frozenset(itertools.chain.from_iterable(functions for functions, _, _ in _REFUSED))

    def __init__(self, depends: Callable[[Tensor], bool] = lambda _: True, *, repeated: bool = False) -> None:
        super().__init__()
        self.depends, self.repeated = depends, repeated
        self.hidden = self.recomputed = False
        self._jumps: list[Tensor] = []

    @property
    def jumped(self) -> bool:
        return bool(self._jumps) and bool(torch.stack(self._jumps).any())

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in self._REJECTABLE and not self.repeated:
            self._reject(func, args, kwargs)
        if func in _RELUS or func in _LEAKY:
            result = _ramp(func, args, kwargs)
        else:
            name = _name(func)
            if name in _CORNERS or name in _CORNER_ARGUMENTS:
                result = self._from_the_right(func, name, args, kwargs)
            else:
                if (name in _COMPARISONS or name in _SIGNS) and not self.repeated:
                    self._note_jump(args, kwargs)
                result = func(*args, **kwargs)
        if not self.repeated:
            self.recomputed = self.recomputed or _top_saved_tensors_default_hooks(True) is not None
            self.hidden = self.hidden or self._hides(func, args, kwargs, result)
        return result

    def _reject(self, func: Any, args: Any, kwargs: dict[str, Any]) -> None:
        for functions, op, position in self._REFUSED:
            if func in functions and (
                args[position] if len(args) > position else kwargs.get("training", functions[func])
            ):
                if op == self._COUPLED and not self.depends(args[0] if args else kwargs["input"]):
                    continue
                raise NoFormulaError(op)

    def _from_the_right(self, func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """Apply a function, and replace its derivative at corners by that of the next point."""
        if not differentiating():
            return func(*args, **kwargs)
        options = {key: value for key, value in kwargs.items() if key != "input"}
        first = args[0] if args else kwargs["input"]
        corners = _corners(name, args[1:], options)
        values = [v for v in (first, *corners) if isinstance(v, Tensor) and v.is_floating_point()]
        moving = next((v for v in values if v.requires_grad or _wrapped(v)), None)
        if moving is None or not corners:
            return func(*args, **kwargs)
        x = moving.detach()
        ties = [x == _constant(corner) for corner in (corners if moving is first else [first])]
        tie = functools.reduce(torch.logical_or, ties)
        if (self._eager(x) and not bool(tie.any())) or (not transformed() and not self.depends(moving)):
            return func(*args, **kwargs)
        if not self.repeated and any(v.requires_grad for v in values if v is not moving):
            self._jumps.append(tie.any())  # of two values, which may be functions of one value

        def applied(old: Tensor, new: Tensor) -> Any:
            new_args, new_kwargs = mapped(lambda leaf: new if leaf is old else leaf, (args, kwargs))
            return func(*new_args, **new_kwargs)

        copy = first.clone()  # for functions that work in place
        right, value = applied(moving, on_the_right(moving)), applied(first, copy)
        result = with_right_derivative(value, right, tie)
        return first.copy_(result) if value is copy else result

    def _note_jump(self, args: Any, kwargs: dict[str, Any]) -> None:
        """Note a comparison of equal numbers, or the sign of 0, if they depend on the net's input."""
        first, second = [*args, *kwargs.values(), 0.0][:2]
        moving = [v for v in (first, second) if isinstance(v, Tensor) and v.requires_grad]
        if moving and torch.is_grad_enabled() and not transformed():
            tie = torch.as_tensor(_constant(first) == _constant(second)).any()
            if (not self._eager(tie) or bool(tie)) and any(self.depends(v) for v in moving):
                self._jumps.append(tie)

    @staticmethod
    def _eager(x: Tensor) -> bool:
        """Whether reading a result costs nothing and is possible."""
        return x.device.type == "cpu" and not transformed() and not torch.compiler.is_compiling()

    def _hides(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> bool:
        """Whether a function of values that depend on the net's input has a result outside autograd."""
        recorded = torch.is_grad_enabled()
        if recorded and isinstance(result, Tensor) and (result.requires_grad or result.dtype == torch.bool):
            return False  # nearly all calls
        if transformed():
            return True
        name = _name(func)
        if name in _FILLED:
            return False
        used = args[:1] if name in _SHAPED else (args, kwargs)
        tensors = [t for t in leaves(used) if isinstance(t, Tensor) and t.requires_grad]
        return (
            bool(tensors)
            and _has_numbers(name, args[0] if name == "setitem" else result, recorded)
            and any(self.depends(t) for t in tensors)
        )


def _corners(name: str, args: Any, options: dict[str, Any]) -> list[Any]:
    """Corners of a function, from the arguments after its input; some may be tensors."""
    if name in _CORNERS:
        return list(_CORNERS[name])
    defaults = _CORNER_ARGUMENTS[name]
    arguments = defaults | dict(zip(defaults, args, strict=False)) | options
    corners = [arguments[argument] for argument in defaults]
    if name in ("max", "min"):  # a number is a dimension, and the result is one of the components
        return [corner for corner in corners if isinstance(corner, Tensor)]
    if name in ("hardshrink", "softshrink"):
        (corner,) = corners
        return [-corner, corner]
    return [corner for corner in corners if corner is not None]


def _has_numbers(name: str, result: Any, recorded: bool) -> bool:
    """Whether the result of a function of tensors with a gradient contains their numbers, but no gradient."""
    parts = leaves(result)
    tensors = [part for part in parts if isinstance(part, Tensor)]
    if not tensors:
        return name in _MEMORY or not all(isinstance(part, _PROPERTIES) for part in parts)
    if recorded and any(tensor.requires_grad for tensor in tensors):
        return False
    return any(tensor.dtype != torch.bool for tensor in tensors)


def _ramp(func: Any, args: Any, kwargs: dict[str, Any]) -> Tensor:
    """ReLU or leaky ReLU, by functions whose derivative at 0 is 1."""
    x, *options = args or (kwargs["input"],)
    in_place = (
        func.__name__.endswith("_")
        or kwargs.get("inplace", False)
        or any(option is True for option in options)
    )
    if func in _RELUS:
        return x.clamp_min_(0) if in_place else x.clamp_min(0)
    slope = options.pop(0) if options else kwargs.get("negative_slope", 0.01)
    result = torch.where(x < 0, slope * x, x)
    return x.copy_(result) if in_place else result


def _name(func: Any) -> str:
    """Name of a torch function, method or ATen operator."""
    name: str = getattr(func, "_opname", "") or getattr(func, "__name__", "")
    return name.strip("_")


def _constant(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


def _wrapped(tensor: Tensor) -> bool:
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))
