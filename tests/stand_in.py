"""A fake accelerator backed by the CPU, for tests of device handling on any machine.

It shows whether a rule, a law or a net creates its tensors on the device of its input, and how often the host
has to wait for the device. Results equal those of the CPU bit for bit, except for ops that have special CPU
kernels in torch (attention, recurrent layers): these are decomposed first, as on other devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing

aten = torch.ops.aten
Op = Any
"""An op overload of torch (torch._ops.OpOverload)."""

DEVICE = torch.device("lazy", 0)
"""Device of stand-in tensors. Every build of torch knows the name, its autograd runs in the calling
thread, and no build has kernels for it, so that any op that bypasses the stand-in fails.
"""

_COPIES = frozenset({aten._to_copy.default, aten.copy_.default})
_INDEXED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._unsafe_index.Tensor}
_INDEXED |= {aten._index_put_impl_.default}
"""Ops whose indices may be on the CPU, since CUDA copies them."""
_SCALARS = frozenset({aten.where.self, aten.masked_fill.Tensor, aten.masked_fill_.Tensor, aten.fill_.Tensor})
"""Ops that accept CPU scalars, in addition to pointwise and indexing ops."""
_WAITS = frozenset(
    {
        "_linalg_check_errors",
        "_linalg_eigh",
        "_linalg_svd",
        "_local_scalar_dense",
        "_unique2",
        "allclose",
        "bincount",
        "equal",
        "linalg_eig",
        "linalg_lstsq",
        "masked_select",
        "multinomial",
        "nonzero",
        "unique_consecutive",
        "unique_dim",
    }
)
"""Ops whose results, shapes or errors require the host to wait for the device."""
_WITH_NUMBERS: dict[Op, Op] = {aten._efficientzerotensor.default: aten.zeros.default}
"""Replacements of ops that return tensors without storage."""


class StandInTensor(Tensor):
    """A tensor on the stand-in device, with its values in the CPU tensor `held`."""

    __torch_function__: Any = torch._C._disabled_torch_function_impl
    held: Tensor
    owner: StandIn

    @staticmethod
    def __new__(cls, held: Tensor, owner: StandIn) -> StandInTensor:
        tensor: StandInTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=DEVICE,
        )
        tensor.held, tensor.owner = held, owner
        return tensor

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Op, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Dispatch to the tensor's device when its mode is not active, for example in another thread."""
        owner = next(t.owner for t in _tensors((args, kwargs)) if isinstance(t, StandInTensor))
        return owner.__torch_dispatch__(func, types, args, kwargs)

    def __tensor_flatten__(self) -> tuple[list[str], StandIn]:
        # nn.Module.to swaps traceable subclasses instead of setting their data, which would not update
        # `held`.
        return ["held"], self.owner

    @staticmethod
    def __tensor_unflatten__(parts: dict[str, Tensor], owner: StandIn, *_: Any) -> StandInTensor:
        return StandInTensor(parts["held"], owner)

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"StandInTensor({self.held!r})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if id(self) not in memo:
            copied: Any = self.detach().clone().requires_grad_(self.requires_grad)
            copied._is_param = getattr(self, "_is_param", False)
            memo[id(self)] = copied
        found: Tensor = memo[id(self)]
        return found

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, *_: Any, **__: Any) -> Any:
        """Raise a TypeError, as CUDA tensors do."""
        raise TypeError(
            f"can't convert {DEVICE} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to "
            "host memory first."
        )

    __array__ = numpy


class StandIn(TorchDispatchMode):
    """A fake device for tests: its tensors are computed on the CPU but cannot be mixed with CPU tensors.

    In a ``with`` block, ``x.to(stand_in.device)``, ``net.to(stand_in.device)`` and ``device=`` in factories
    create tensors on it. As on CUDA, ops reject tensors of both devices (except scalars and indices),
    ``numpy()`` raises, and sampling on the device rejects a CPU generator. `synchronisations` has the names
    of the ops for which the host had to wait, `copied` the number of elements copied to the host.

    The mode is active in its thread only. In other threads, tensors stay on the device, but none are created.
    """

    device = DEVICE

    def __init__(self) -> None:
        super().__init__()
        self.synchronisations: list[str] = []
        self.copied = 0
        self._random = torch.Generator().manual_seed(0).get_state()
        self._around = ExitStack()

    def __enter__(self) -> StandIn:
        with ExitStack() as stack:
            lifted = torch._C._only_lift_cpu_tensors()
            stack.callback(torch._C._set_only_lift_cpu_tensors, lifted)
            torch._C._set_only_lift_cpu_tensors(True)  # makes torch.tensor(..., device=) dispatch to the mode
            # torch looks these up by the name of the device, for activation checkpointing for example.
            stack.enter_context(mock.patch.object(torch, DEVICE.type, SimpleNamespace(), create=True))
            super().__enter__()
            self._around = stack.pop_all()
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        self._around.close()

    def __torch_dispatch__(self, func: Op, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute an op on the CPU if it involves the device."""
        kwargs = dict(kwargs or {})
        here = any(isinstance(t, StandInTensor) for t in _tensors((args, kwargs)))
        place = kwargs.get("device")
        onto = here if place is None else torch.device(place).type == DEVICE.type
        if not here and not onto:
            return func(*args, **kwargs)
        _check_places(func, args, kwargs)
        if place is not None:
            kwargs["device"] = "cpu"
        if here and _waits(func, args, onto=onto):
            self.synchronisations.append(_name(func))
            if func in _COPIES:
                self.copied += args[func is aten.copy_.default].numel()
        held_args, held_kwargs = pytree.tree_map_only(StandInTensor, lambda t: t.held, (args, kwargs))
        numbered: Op = _WITH_NUMBERS.get(func, func)
        with self._randomness(func, kwargs):
            found = numbered(*held_args, **held_kwargs)
        if func is aten.copy_.default:
            return args[0]
        if not onto:
            return found
        placed = pytree.tree_map_only(Tensor, lambda t: StandInTensor(t, self), found)
        return return_and_correct_aliasing(func, args, kwargs, placed) if here else placed

    @contextmanager
    def _randomness(self, func: Op, kwargs: Mapping[str, Any]) -> Iterator[None]:
        """Use the device's own random state for ops that sample."""
        if torch.Tag.nondeterministic_seeded not in func.tags:
            yield
            return
        if (given := kwargs.get("generator")) is not None:
            raise RuntimeError(
                f"Expected a '{DEVICE.type}' device type for generator but found '{given.device.type}'"
            )
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._random)
            yield
            self._random = torch.get_rng_state()


def _name(func: Op) -> str:
    name: str = func._schema.name
    return name.removeprefix("aten::")


def _tensors(tree: Any) -> Iterator[Tensor]:
    return (leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor))


def _check_places(func: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Reject ops that mix tensors of the CPU and the device."""
    if func in _COPIES:
        return
    tensors = list(_tensors((args[0], args[2:]) if func in _INDEXED else (args, kwargs)))
    numbers = func in _INDEXED or func in _SCALARS or torch.Tag.pointwise in func.tags
    written = args[0] if args and func._schema.is_mutable else None
    others = [t for t in tensors if not isinstance(t, StandInTensor)]
    if len(others) == len(tensors):
        return
    for t in others:
        if t.ndim or not numbers or t is written:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, {DEVICE} "
                f"and {t.device}! (when checking {func._schema.name})"
            )


def _waits(func: Op, args: Sequence[Any], *, onto: bool) -> bool:
    """Whether the host has to wait for the device before it can continue after an op."""
    if func is aten._to_copy.default:
        return not onto
    if func is aten.copy_.default:
        return not isinstance(args[0], StandInTensor)
    if func in _INDEXED:  # the number of true entries of a mask determines the shape
        return any(isinstance(i, StandInTensor) and i.dtype in (torch.bool, torch.uint8) for i in args[1])
    return _name(func) in _WAITS
