"""Recording of a net: every ATen op that depends on its input, in order of execution, on a tape.

The net is run on actual numbers, under torch's dispatch mode and below autograd. At this level, a layer, a
function and a method of a tensor are the same op, composite ops (``linear``, ``softmax``, attention) are
still whole, and shapes are plain integers, so control flow may depend on them. The result of an in-place op
becomes a new value, and so does every live view of the same memory.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.utils.parametrize import type_before_parametrizations
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary


class UntraceableError(ValueError):
    """The net cannot be turned into a list of ops."""


@dataclass(frozen=True)
class Ref:
    """Reference to a value on a tape; 0 is the input of the net."""

    index: int


@dataclass(frozen=True)
class Entry:
    """One op on a tape, with a :class:`Ref` in place of each value among its arguments.

    `function` is an ATen op or :func:`overwritten`. `outputs` contains None for outputs that are not tensors,
    and `real` states which outputs are floating-point. `path` is the innermost active module of the net, and
    `draws` marks random results. `sources` are the tensors that existed before the run and from which the net
    computed constants among the arguments.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[int | None, ...]
    shapes: tuple[tuple[int, ...], ...]
    real: tuple[bool, ...]
    path: str
    draws: bool = False
    sources: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class Span:
    """A call of a module that a rule handles as a whole: entries ``start`` to ``stop - 1`` of the tape."""

    module: nn.Module
    inputs: tuple[int, ...]
    output: int
    start: int
    stop: int
    path: str


@dataclass(frozen=True)
class Tape:
    """The recording of a net, with its actual input `given` and output `result`.

    `roots` maps memory that existed before the run to the first tensor in it that the net read. `read` are
    those with values that the net converted to Python numbers. `modules` are those of the net, and others
    that it called.
    """

    entries: list[Entry]
    spans: list[Span]
    output: int
    given: Tensor
    result: Tensor
    roots: dict[int, Tensor]
    read: tuple[Tensor, ...]
    modules: list[nn.Module]


def memory_of(tensor: Tensor) -> int:
    """Identify the memory of a tensor, which its views share."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except NotImplementedError:  # sparse and other tensors without a storage
        return id(tensor)


def overwritten(
    old: Tensor, new: Tensor, view: tuple[Any, Any, int], written: tuple[Any, Any, int], length: int
) -> Tensor:
    """Return the contents of a view of memory after `new` is written to another view of it.

    `old` are the former contents. Views are given by size, stride and offset in a memory of `length` entries.
    """
    memory = torch.zeros(length, dtype=new.dtype, device=new.device)
    memory.as_strided(*view).copy_(old)
    memory.as_strided(*written).copy_(new)
    return memory.as_strided(*view).clone()


def leaves(tree: Any) -> list[Any]:
    """Return the leaves of nested lists, tuples and dicts."""
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, tuple | list):
        return [tree]
    return [leaf for part in tree for leaf in leaves(part)]


def mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """Apply a function to the leaves of nested lists, tuples and dicts."""
    if isinstance(tree, dict):
        return {key: mapped(function, part) for key, part in tree.items()}
    if isinstance(tree, tuple | list):
        return type(tree)([mapped(function, part) for part in tree])
    return function(tree)


_AUTOGRAD = (torch._C.DispatchKey.AutogradFunctionality, torch._C.DispatchKey.ADInplaceOrView)
_READS_NUMBERS = {"_local_scalar_dense", "is_nonzero", "item", "equal", "allclose"}
_OF_SHAPES = frozenset(
    ["new_zeros", "new_ones", "new_full", "new_empty", "zeros_like", "ones_like", "full_like", "empty_like"]
)
# running statistics in training mode, which the schema does not declare
_WRITES_STATISTICS = {"batch_norm", "native_batch_norm", "instance_norm"}
_LOCK = threading.RLock()  # module hooks and torch's settings are shared by all threads


def record(
    net: Callable[[Tensor], Tensor], x: Tensor, known: Collection[str], whole: Collection[type]
) -> Tape:
    """Run a net and record its computations on its input.

    `known` are the names of ATen ops that are recorded as a whole (other composite ops are decomposed), and
    `whole` the module classes whose calls are recorded as spans. Tensors that the net modifies are restored.
    Raises :class:`UntraceableError` if the net reads the values of its input or does not map one tensor to
    one tensor; errors of the net itself are passed through.
    """
    random = torch.random.fork_rng([x.device] if x.device.type == "cuda" else [])
    with _LOCK, random, by_ordinary_ops():
        given = x.clone()
        recorder = _Recorder(given, known)
        try:
            with recorder.watching(net, whole), _below_autograd(excluded=True), recorder, _Listed(recorder):
                result = net(given)
            shown = result.detach().clone() if isinstance(result, Tensor) else result
        finally:
            recorder.restore()
        if not isinstance(result, Tensor) or result not in recorder.values:
            raise UntraceableError("a net that does not return one tensor made from its input")
        return Tape(
            recorder.entries,
            recorder.spans,
            recorder.values[result],
            x,
            shown,
            recorder.roots,
            tuple(recorder.numbers.values()),
            list(recorder.modules.values()),
        )


class _Recorder(TorchDispatchMode):
    """Records every op that reads a value, and tracks which tensors are values."""

    def __init__(self, x: Tensor, known: Collection[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.known = known
        self.entries: list[Entry] = []
        self.spans: list[Span] = []
        self.count = 1
        self.values = WeakTensorKeyDictionary()
        self.values[x] = 0
        self.memory: dict[int, list[weakref.ref[Tensor]]] = {}
        self.made = WeakTensorKeyDictionary()  # tensors that the net created during the run
        # previously existing tensors that it modified, and their original contents
        self.saved: list[tuple[Tensor, Tensor]] = []
        self.changed: set[int] = set()  # their memory
        self.roots: dict[int, Tensor] = {}  # memory that existed before, and the first tensor in it
        # memory that the net wrote, and the roots that its contents were computed from
        self.origins: dict[int, dict[int, Tensor]] = {}
        self.numbers: dict[int, Tensor] = {}  # roots with values that became Python numbers
        self.modules: dict[int, nn.Module] = {}
        self.read: set[int] = set()  # memory of constants that entries hold
        self.path: list[str] = []
        self.layer = [False]  # whether the active module is a torch layer, whose name describes the op
        self._note(x)
        self.made[x] = True
        self.origins[memory_of(x)] = {}

    def restore(self) -> None:
        """Restore the tensors that existed before the run and that the net modified."""
        with torch.no_grad():
            for tensor, before in reversed(self.saved):
                tensor.copy_(before)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors = [t for t in leaves((args, kwargs)) if isinstance(t, Tensor)]
        name = func._opname
        reads = name not in _OF_SHAPES and any(t in self.values for t in tensors)
        if reads and name in _READS_NUMBERS:
            raise UntraceableError("a net whose control flow depends on values")
        if name not in self.known and not func._schema.is_mutable:
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        draws = torch.Tag.nondeterministic_seeded in func.tags and not _switched_off(func, args, kwargs)
        if func._schema.is_mutable:
            return self._write(func, args, kwargs, reads, draws)
        if name in _WRITES_STATISTICS:
            for tensor in tensors:
                if tensor not in self.values:
                    self._keep(tensor)
        if not reads and not draws:
            with _below_autograd(excluded=False):  # constants keep their autograd history
                return self._computed(name, tensors, _single_views(tensors, func(*args, **kwargs)))
        sources = self._sources(tensors)
        result = func(*args, **kwargs)
        results = result if isinstance(result, tuple | list) else (result,)
        args, kwargs = self._referring((args, kwargs))
        self._enter(func, args, kwargs, results, draws, sources=sources)
        return result

    def _computed(self, name: str, tensors: Sequence[Tensor], result: Any) -> Any:
        """Note the origins of the result of an op on constants."""
        roots = self._roots(tensors)
        if name in _READS_NUMBERS:
            self.numbers |= roots
        before = {memory_of(t) for t in tensors}
        for tensor in leaves(result):
            if isinstance(tensor, Tensor) and memory_of(tensor) not in before:
                self.origins[memory_of(tensor)] = roots
            elif name == "lift_fresh" and isinstance(tensor, Tensor):  # of a literal, torch.tensor([1, 2])
                self.origins[memory_of(tensor)] = {}
        return self._made(result)

    def note_numbers(self, tensor: Tensor) -> None:
        """Note that values of a constant become Python numbers."""
        if tensor in self.values:
            raise UntraceableError("a net whose control flow depends on values")
        self.numbers |= self._roots([tensor])

    def _roots(self, tensors: Sequence[Tensor]) -> dict[int, Tensor]:
        """Tensors that existed before the run and that determine the values of constants."""
        roots: dict[int, Tensor] = {}
        for tensor in tensors:
            if tensor in self.values:
                continue
            memory = memory_of(tensor)
            if memory not in self.origins:
                root = self.roots.setdefault(memory, tensor)
                roots[id(root)] = root
            else:
                roots |= self.origins[memory]
        return roots

    def _sources(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The roots of those constants that the net computed."""
        self._roots(tensors)
        return tuple(self._roots([t for t in tensors if memory_of(t) in self.origins]).values())

    def _made(self, result: Any) -> Any:
        for tensor in leaves(result):
            if isinstance(tensor, Tensor) and tensor not in self.made:
                self.made[tensor] = True
                self._note(tensor)
        return result

    def _note(self, tensor: Tensor) -> None:
        """Record which tensors share memory."""
        self.memory.setdefault(tensor.untyped_storage()._cdata, []).append(weakref.ref(tensor))

    def _enter(
        self,
        function: Any,
        args: Any,
        kwargs: Any,
        results: Sequence[Any],
        draws: bool,
        new: bool = False,
        sources: tuple[Tensor, ...] = (),
    ) -> None:
        """Record an op with references as arguments, and number its results; if `new`, also known values."""
        # an op may return its input
        is_new = [isinstance(t, Tensor) and (new or draws or t not in self.values) for t in results]
        if not any(is_new):
            return
        numbers = itertools.count(self.count)
        outputs = tuple(next(numbers) if fresh else None for fresh in is_new)
        self.count += sum(is_new)
        shapes = tuple(tuple(t.shape) if isinstance(t, Tensor) else () for t in results)
        real = tuple(isinstance(t, Tensor) and t.is_floating_point() for t in results)
        entry = Entry(
            function=function,
            args=tuple(args),
            kwargs=kwargs,
            outputs=outputs,
            shapes=shapes,
            real=real,
            path=self._path_of(function),
            draws=draws,
            sources=sources,
        )
        self.entries.append(entry)
        for tensor, index in zip(results, outputs, strict=True):
            if index is not None:
                self.values[tensor] = index
        self._made(results)

    def _referring(self, tree: Any) -> Any:
        """Replace values in arguments by references, and keep the current contents of constants."""

        def referred(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            if leaf in self.values:
                return Ref(self.values[leaf])
            memory = leaf.untyped_storage()._cdata
            if memory in self.changed:  # it will be restored after the run
                return leaf.clone()
            self.read.add(memory)
            return leaf

        return mapped(referred, tree)

    def _change(self, tensor: Tensor) -> None:
        """Copy constants that entries have read before they are overwritten."""
        memory = tensor.untyped_storage()._cdata
        if memory not in self.read:
            return
        self.read.discard(memory)

        def kept(leaf: Any) -> Any:
            same = isinstance(leaf, Tensor) and leaf.untyped_storage()._cdata == memory
            return leaf.clone() if same else leaf

        self.entries = [
            replace(entry, args=mapped(kept, entry.args), kwargs=mapped(kept, entry.kwargs))
            for entry in self.entries
        ]

    def _path_of(self, func: Any) -> str:
        """Path of an op for messages: that of the active torch layer, or of the active module and the op."""
        active = self.path[-1] if self.path else ""
        if active and self.layer[-1]:
            return active
        name = getattr(func, "_opname", getattr(func, "__name__", "op")).strip("_")
        return f"{active}.{name}" if active else name

    def _write(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], reads: bool, draws: bool
    ) -> Any:
        """Record an in-place op as its out-of-place variant, and its effect on all views of the memory."""
        written = _written(func, args, kwargs)
        roots = self._roots([t for t in leaves((args, kwargs)) if isinstance(t, Tensor)])
        for tensor in written:
            self._keep(tensor)
            self._change(tensor)
            self.origins[memory_of(tensor)] = roots
        gives_values = reads or draws or any(t in self.values for t in written)
        if not gives_values:
            return self._made(func(*args, **kwargs))
        if len(written) != 1:
            raise UntraceableError(f"a net that writes several values at once ({func._opname})")
        (target,) = written
        # all contents are read before the op overwrites them
        views = self._overlapping_views(target)
        old_contents = [Ref(self.values[view]) if view in self.values else view.clone() for view in views]
        old_args, old_kwargs = self._referring((args, kwargs))
        if target not in self.values:  # a constant becomes a value
            old_target = target.clone()
            old_args, old_kwargs = mapped(
                lambda leaf: old_target if leaf is target else leaf, (old_args, old_kwargs)
            )
        result = func(*args, **kwargs)
        sources = tuple(roots.values())
        function, new_args, new_kwargs = _out_of_place(func, old_args, old_kwargs, target.shape)
        self._enter(function, new_args, new_kwargs, [target], draws, new=True, sources=sources)
        for view, contents in zip(views, old_contents, strict=True):
            self._overwrite(view, contents, target, draws, sources)
        return result

    def _overwrite(
        self, view: Tensor, contents: Any, target: Tensor, draws: bool, sources: tuple[Tensor, ...]
    ) -> None:
        """Record that a write to `target` changed a view of the same memory with these former contents."""
        if _geometry(view) == _geometry(target) and view.dtype == target.dtype:
            self.values[view] = self.values[target]
            return
        length = target.untyped_storage().nbytes() // target.element_size()
        new_contents = Ref(self.values[target])
        arguments = (contents, new_contents, _geometry(view), _geometry(target), length)
        self._enter(overwritten, arguments, {}, [view], draws, new=True, sources=sources)

    def _overlapping_views(self, target: Tensor) -> list[Tensor]:
        """Other live tensors that share memory with `target`."""
        views = []
        for reference in self.memory.get(target.untyped_storage()._cdata, ()):
            view = reference()
            if view is not None and view is not target and _overlaps(view, target):
                views.append(view)
        return views

    def _keep(self, tensor: Tensor) -> None:
        """Save a tensor before it is overwritten if it existed before the run."""
        memory = memory_of(tensor)
        self._roots([tensor])
        if memory in self.roots:
            self.changed.add(memory)
            self.saved.append((tensor.detach(), tensor.detach().clone()))
            self._note(tensor)

    @contextmanager
    def watching(self, net: Any, whole: Collection[type]) -> Iterator[None]:
        """Record calls of modules in this thread, for the paths of ops and for spans."""
        names = {id(m): name for name, m in net.named_modules()} if isinstance(net, nn.Module) else {}
        if isinstance(net, nn.Module):
            self.modules = {id(module): module for module in net.modules()}
        calls: list[tuple[tuple[int, ...], int]] = []
        thread = threading.get_ident()

        def entered(module: nn.Module, args: tuple[Any, ...]) -> None:
            if threading.get_ident() != thread:
                return
            self.modules.setdefault(id(module), module)
            self.path.append(names.get(id(module)) or (self.path[-1] if self.path else ""))
            self.layer.append(type(module).__module__.startswith("torch.nn") and not module._modules)
            calls.append((self._span_inputs(module, args, whole), len(self.entries)))

        def left(module: nn.Module, _args: Any, kwargs: dict[str, Any], result: Any) -> None:
            if threading.get_ident() != thread:
                return
            inputs, start = calls.pop()
            path = self.path.pop()
            self.layer.pop()
            if inputs and not kwargs and isinstance(result, Tensor) and result in self.values:
                span = Span(module, inputs, self.values[result], start, len(self.entries), path)
                self.spans.append(span)

        before = register_module_forward_pre_hook(entered)
        after = register_module_forward_hook(left, with_kwargs=True, always_call=True)
        try:
            yield
        finally:
            before.remove()
            after.remove()

    def _span_inputs(
        self, module: nn.Module, args: tuple[Any, ...], whole: Collection[type]
    ) -> tuple[int, ...]:
        """Values that a module reads if its call is recorded as a span; otherwise empty."""
        hooked = module._forward_hooks or module._forward_pre_hooks
        if type_before_parametrizations(module) not in whole or hooked or getattr(module, "inplace", False):
            return ()
        if not all(isinstance(a, Tensor) and a in self.values for a in args):
            return ()
        return tuple(self.values[a] for a in args)


def _single_views(tensors: Sequence[Tensor], result: Any) -> Any:
    """Replace views of ops such as ``split``, which autograd invalidates when their memory is written."""
    bases = {memory_of(tensor): tensor for tensor in tensors}

    def single(leaf: Any) -> Any:
        base = bases.get(memory_of(leaf)) if isinstance(leaf, Tensor) else None
        return leaf if base is None else base.as_strided(*_geometry(leaf))

    return mapped(single, result) if isinstance(result, tuple | list) else result


class _Listed(TorchFunctionMode):
    """Notes constants that the net converts to lists of numbers, which is not an ATen op."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.tolist:
            self.recorder.note_numbers(args[0])
        return func(*args, **(kwargs or {}))


def _arguments(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    for position, argument in enumerate(func._schema.arguments):
        if position < len(args):
            yield argument, args[position]
        elif argument.name in kwargs:
            yield argument, kwargs[argument.name]


def _switched_off(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a random op is deterministic here: dropout in evaluation mode, attention without dropout."""
    given = {argument.name: argument.default_value for argument in func._schema.arguments}
    given |= {argument.name: value for argument, value in _arguments(func, args, kwargs)}
    if "train" in given:
        return not given["train"]
    if "training" in given:
        return not given["training"]
    return func._opname == "scaled_dot_product_attention" and not given.get("dropout_p", 0.0)


def _out_of_place(func: Any, args: Any, kwargs: Any, shape: torch.Size) -> tuple[Any, Any, Any]:
    """Return the out-of-place variant of an in-place op."""
    aten, name = torch.ops.aten, func._opname
    if name == "copy_":
        return aten.expand.default, (args[1], list(shape)), {}
    if name.endswith("_") and hasattr(aten, name[:-1]):
        packet = getattr(aten, name[:-1])
        if func._overloadname in packet.overloads():
            return getattr(packet, func._overloadname), args, kwargs
    raise UntraceableError(f"a net that writes with {name}")


def _geometry(tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    return tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """Arguments that an op overwrites, by its schema."""
    written = []
    for argument, value in _arguments(func, args, kwargs):
        is_write = argument.alias_info is not None and argument.alias_info.is_write
        if is_write and isinstance(value, Tensor):
            written.append(value)
    return written


def _overlaps(a: Tensor, b: Tensor) -> bool:
    if a.untyped_storage()._cdata != b.untyped_storage()._cdata or not a.numel() or not b.numel():
        return False
    if a.dtype != b.dtype:
        return True
    memory = torch.zeros(a.untyped_storage().nbytes() // a.element_size(), dtype=torch.bool)
    memory.as_strided(*_geometry(a)).fill_(True)
    return bool(memory.as_strided(*_geometry(b)).any())


@contextmanager
def _below_autograd(*, excluded: bool) -> Iterator[None]:
    """Exclude autograd from dispatch, so that composite ops arrive whole, or include it again."""
    with ExitStack() as stack:
        for key in _AUTOGRAD:
            stack.enter_context(torch._C._SetExcludeDispatchKeyGuard(key, excluded))
        yield


_SETTING = threading.Lock()
_ATTENTION = {"depth": 0, "fast path": True}  # number of active contexts, and the user's setting


@contextmanager
def by_ordinary_attention() -> Iterator[None]:
    """Disable torch's fast path of attention layers in all threads, so that a net is one function.

    torch takes it without gradients only. Its outputs differ where a mask hides a token or is a bias. The
    last of several overlapping contexts restores the setting.
    """
    backend = torch.backends.mha
    with _SETTING:
        if not _ATTENTION["depth"]:
            _ATTENTION["fast path"] = backend.get_fastpath_enabled()
            backend.set_fastpath_enabled(False)
        _ATTENTION["depth"] += 1
    try:
        yield
    finally:
        with _SETTING:
            _ATTENTION["depth"] -= 1
            if not _ATTENTION["depth"]:
                backend.set_fastpath_enabled(bool(_ATTENTION["fast path"]))


@contextmanager
def by_ordinary_ops() -> Iterator[None]:
    """Compute attention and recurrent layers by ordinary ops instead of fused inference kernels."""
    mkldnn = torch._C._get_mkldnn_enabled()
    # torch.backends.mkldnn.flags warns about settings that it does not change
    torch._C._set_mkldnn_enabled(False)
    try:
        with by_ordinary_attention():
            yield
    finally:
        torch._C._set_mkldnn_enabled(mkldnn)
