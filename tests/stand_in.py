"""A fake accelerator, on any machine: its tensors obey the rules of CUDA, and the CPU computes its numbers.

Nothing computes faster on it. It shows whether a rule, a law or a net makes its tensors where its input is,
and how often the host would have to wait for the device. Numbers are the host's, bit for bit, but where torch
has other kernels for the host (attention, recurrent layers): there an op is taken apart first, as elsewhere.
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
"""An overload of an op of torch's (torch._ops.OpOverload)."""

DEVICE = torch.device("lazy", 0)
"""What tensors of the stand-in say of their place. Every build of torch knows the name, its autograd takes it
in the thread of the caller, and no build has kernels for it: what the stand-in does not see must fail."""

_COPIES = frozenset({aten._to_copy.default, aten.copy_.default})
_INDEXED = frozenset(
    {
        aten.index.Tensor,
        aten.index_put.default,
        aten.index_put_.default,
        aten._index_put_impl_.default,
        aten._unsafe_index.Tensor,
    }
)
"""Their indices may be the host's: CUDA brings them over."""
_SCALARS = frozenset({aten.where.self, aten.masked_fill.Tensor, aten.masked_fill_.Tensor, aten.fill_.Tensor})
"""Beside pointwise ops and those above, what takes a number of the host that is a tensor."""
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
"""Their results, shapes or errors are known to the host once the device is done."""
_WITH_NUMBERS: dict[Op, Op] = {aten._efficientzerotensor.default: aten.zeros.default}
"""Ops in the place of those that give tensors without numbers."""


class StandInTensor(Tensor):
    """A tensor on the stand-in: the host has its numbers, and shows them only where CUDA would."""

    __torch_function__: Any = torch._C._disabled_torch_function_impl
    held: Tensor
    owner: StandIn

    @staticmethod
    def __new__(cls, held: Tensor, owner: StandIn) -> StandInTensor:
        """Put a tensor of the host on the device."""
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
        """Where the mode is not on, in another thread say: the same by the tensor's own device."""
        owner = next(t.owner for t in _tensors((args, kwargs)) if isinstance(t, StandInTensor))
        return owner.__torch_dispatch__(func, types, args, kwargs)

    def __tensor_flatten__(self) -> tuple[list[str], StandIn]:
        # A module that is cast swaps such tensors and does not set their data, which knows nothing of `held`.
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
        """Numbers on the host."""
        return self.cpu().tolist()

    def numpy(self, *_: Any, **__: Any) -> Any:
        """Refuse, as CUDA does.

        Raises
        ------
        TypeError
            Always.
        """
        raise TypeError(
            f"can't convert {DEVICE} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to "
            "host memory first."
        )

    __array__ = numpy


class StandIn(TorchDispatchMode):
    """A device for tests: its tensors are computed on the host and refuse to meet the host's.

    In a ``with`` block, ``x.to(stand_in.device)``, ``net.to(stand_in.device)`` and ``device=`` in factories
    make tensors on it. As on CUDA, an op refuses tensors of both places (but for numbers of no dimension, and
    indices), ``numpy()`` is refused, and so is a generator of the host for draws on the device. What brings
    numbers to the host is kept in `synchronisations`: there a GPU would run out of work.

    The mode holds for its thread: in others, tensors that are on the device stay on it, and none are made.

    Attributes
    ----------
    device : torch.device
    synchronisations : list of str
        Names of the ops for which the host had to wait, in order.
    copied : int
        How many numbers were copied to the host as tensors, in all.

    Examples
    --------
    >>> with StandIn() as stand_in:
    ...     x = torch.ones(3, device=stand_in.device)
    ...     found = float((x + x).sum())
    >>> found, stand_in.synchronisations
    (6.0, ['_local_scalar_dense'])
    """

    device = DEVICE

    def __init__(self) -> None:
        super().__init__()
        self.synchronisations: list[str] = []
        self.copied = 0
        self._random = torch.Generator().manual_seed(0).get_state()
        self._around = ExitStack()

    def __enter__(self) -> StandIn:
        """Make the device known to torch; gives the stand-in back."""
        with ExitStack() as stack:
            lifted = torch._C._only_lift_cpu_tensors()
            stack.callback(torch._C._set_only_lift_cpu_tensors, lifted)
            torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device=) asks the mode too
            # What torch looks up of each device by its name, for activations that are computed again, say.
            stack.enter_context(mock.patch.object(torch, DEVICE.type, SimpleNamespace(), create=True))
            super().__enter__()
            self._around = stack.pop_all()
        return self

    def __exit__(self, *raised: Any) -> None:
        """Forget it."""
        super().__exit__(*raised)
        self._around.close()

    def __torch_dispatch__(self, func: Op, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute an op on the host, if it is about tensors of the device."""
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
        """Where an op that draws does so: the device has random numbers of its own.

        Raises
        ------
        RuntimeError
            As CUDA has it, where a generator of the host's is given.
        """
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
    """Refuse tensors of the host beside the device's.

    Raises
    ------
    RuntimeError
        As CUDA has it.
    """
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
    """Whether the host has to wait for an op of the device's tensors."""
    if func is aten._to_copy.default:
        return not onto
    if func is aten.copy_.default:
        return not isinstance(args[0], StandInTensor)
    if func in _INDEXED:  # at how many places a mask is true, the device alone knows
        return any(isinstance(i, StandInTensor) and i.dtype in (torch.bool, torch.uint8) for i in args[1])
    return _name(func) in _WAITS
