"""Forward passes over many samples, in chunks whose activations stay in cache.

A single call of a network on 10^6 samples moves every activation through main memory. Chunks of a few
thousand rows in two reused buffers keep them in cache, which makes small fully connected networks several
times faster. Networks other than chains of linear layers and elementwise activations are called chunk by
chunk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

import torch
from torch import Tensor, nn

from sdp_ref.graph.recording import by_ordinary_attention

Network = Callable[[Tensor], Tensor]
T = TypeVar("T")

_CHUNK_ROWS = 4096
_BUFFER_VALUES = 2**17  # values in a buffer of a chain: two of them fit in a core's own cache
_FEWEST_ROWS = 256  # number of rows from which on a matrix product is fully efficient
_CHUNK_VALUES = 2**19  # input values per chunk, for events so large that fewer rows fill the cache
_GPU_FACTOR = 32  # a GPU needs larger chunks

_ELEMENTWISE: dict[type[nn.Module], Network | None] = {
    nn.ReLU: torch.relu_,
    nn.Sigmoid: torch.sigmoid_,
    nn.Tanh: torch.tanh_,
    nn.LeakyReLU: None,
    nn.ELU: None,
    nn.GELU: None,
    nn.Hardtanh: None,
    nn.SiLU: None,
    nn.Softplus: None,
}  # how to apply it in place; None calls the module


def chunked_forward(net: Network, event: torch.Size) -> Network:
    """Return a function that maps a block of inputs, shape (rows, n), to outputs, shape (rows, m)."""
    steps = list(_chain(net)) if len(event) == 1 and isinstance(net, nn.Module) else [None]
    if None in steps or not any(isinstance(step, nn.Linear) for step in steps):
        return _Plain(net, event)
    return Chain([step for step in steps if step is not None], event[0])


def in_threads(tasks: Iterator[Callable[[], T]]) -> Iterator[T]:
    """Yield results of tasks in order, from as many threads as torch uses, with one thread per task.

    This is cheaper than many threads for each small matrix product, which would synchronise after every
    product. Only a few tasks run or wait at a time.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        yield from (task() for task in tasks)
        return
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            running = deque(pool.submit(task) for task in islice(tasks, 2 * threads))
            while running:
                yield running.popleft().result()
                running.extend(pool.submit(task) for task in islice(tasks, 1))
    finally:
        torch.set_num_threads(threads)  # the workers' setting is also the default of new threads


class _Plain:
    def __init__(self, net: Network, event: torch.Size) -> None:
        self.net = net
        self.event = event

    def __call__(self, block: Tensor) -> Tensor:
        rows = max(1, min(_CHUNK_ROWS, _CHUNK_VALUES // block.shape[1]))
        if block.device.type != "cpu":
            rows *= _GPU_FACTOR
        return torch.cat([self._outputs(chunk) for chunk in block.split(rows)])

    def _outputs(self, chunk: Tensor) -> Tensor:
        with by_ordinary_attention():
            outputs = self.net(chunk.reshape(-1, *self.event))
        if not isinstance(outputs, Tensor):
            raise ValueError(f"the network must return a tensor, got {type(outputs).__name__}")
        if outputs.ndim != 2 or outputs.shape[0] != chunk.shape[0] or not outputs.is_floating_point():
            raise ValueError(
                f"the network must return floating-point outputs of shape (rows, m); {chunk.shape[0]} rows "
                f"gave shape {tuple(outputs.shape)}, {outputs.dtype}"
            )
        return outputs


class Chain:
    """Linear layers and elementwise activations with two alternating buffers."""

    def __init__(self, steps: list[nn.Module], inputs: int) -> None:
        width = inputs
        for step in steps:
            if isinstance(step, nn.Linear):
                if step.in_features != width:
                    raise ValueError(f"the network's {step} is given {width} inputs")
                width = step.out_features
        self.steps = steps
        self.outputs = width
        self.widest = max(step.out_features for step in steps if isinstance(step, nn.Linear))

    def __call__(self, block: Tensor) -> Tensor:
        """Outputs, shape (rows, m), of inputs of shape (rows, n), which may be overwritten."""
        if block.device.type == "cpu":
            rows = max(_FEWEST_ROWS, min(_CHUNK_ROWS, _BUFFER_VALUES // self.widest))
        else:
            rows = _CHUNK_ROWS * _GPU_FACTOR
        rows = min(len(block), rows)
        buffers = [block.new_empty(rows * self.widest) for _ in range(2)]
        outputs = block.new_empty(len(block), self.outputs)
        for chunk, target in zip(block.split(rows), outputs.split(rows), strict=True):
            target.copy_(self._outputs(chunk, buffers))
        return outputs

    def _outputs(self, hidden: Tensor, buffers: list[Tensor]) -> Tensor:
        rows = len(hidden)
        for step in self.steps:
            if isinstance(step, nn.Linear):
                buffers.reverse()
                target = buffers[0][: rows * step.out_features].view(rows, step.out_features)
                # the transposed view instead of a copy: three times faster for few outputs
                if step.bias is None:
                    hidden = torch.mm(hidden, step.weight.t(), out=target)
                else:
                    hidden = torch.addmm(step.bias, hidden, step.weight.t(), out=target)
            else:
                hidden = (_ELEMENTWISE[type(step)] or step)(hidden)
        return hidden


def _chain(module: nn.Module) -> Iterator[nn.Module | None]:
    """Layers of nested Sequentials in order; None if a module is not supported in a chain."""
    hooked = bool(module._forward_hooks or module._forward_pre_hooks)  # old-style spectral norm is a hook
    if type(module) is nn.Sequential and not hooked:
        for child in module:
            yield from _chain(child)
    elif type(module) in (nn.Identity, nn.Flatten) and not hooked:
        return
    elif (type(module) is nn.Linear or type(module) in _ELEMENTWISE) and not hooked:
        yield module
    else:
        yield None
