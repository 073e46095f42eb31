"""Trainings that save checkpoints and resume from them."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from . import storage

SAVE_SECONDS = 120.0
"""Longest time (s) between two checkpoints."""
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
}


class Training(Protocol):
    """A training in progress."""

    def to_bytes(self) -> bytes:
        """Return the complete state, a safetensors file."""

    def restore(self, content: bytes) -> None:
        """Restore the state from `to_bytes`; raises an error of any type for another training's state."""


TrainingT = TypeVar("TrainingT", bound=Training)


class Minibatches(ABC):
    """A training by minibatches of `batch` shuffled examples on a device.

    The order of an epoch depends on `entropy` and the epoch only, so an interrupted training continues as if
    it had never stopped. A subclass sets `net`, `optimizer` and `extra`, further tensors of the state, which
    it changes in place. `kind` is a hash of the recipe, if there is one, and `seconds` the training time.
    """

    net: nn.Module
    optimizer: torch.optim.Optimizer
    extra: dict[str, Tensor]
    kind: str | None = None

    def __init__(self, examples: int, batch: int, epochs: int, entropy: tuple[int, ...], device: str) -> None:
        self.device, self.batch, self._examples, self._entropy = device, batch, examples, entropy
        self.steps_an_epoch = math.ceil(examples / batch)
        self.steps = epochs * self.steps_an_epoch
        self.step, self.seconds = 0, 0.0
        self._order: Tensor | None = None

    @abstractmethod
    def loss(self, rows: Tensor) -> Tensor:
        """Return the mean loss of some examples in the next step."""

    def advance(self) -> None:
        """Take the next step."""
        epoch, batch_index = divmod(self.step, self.steps_an_epoch)
        if batch_index == 0 or self._order is None:
            order = torch.randperm(self._examples, generator=generator(*self._entropy, epoch))
            self._order = order.to(self.device)
        loss = self.loss(self._order[batch_index * self.batch : (batch_index + 1) * self.batch])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.step += 1

    def to_bytes(self) -> bytes:
        """Return the complete state, a safetensors file."""
        tensors = {f"net/{name}": tensor for name, tensor in self.net.state_dict().items()} | self.extra
        for index, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{index}/{k}": v for k, v in state.items() if isinstance(v, Tensor)}
        return storage.to_file(tensors, {"of": self.kind, "step": self.step, "seconds": self.seconds})

    def restore(self, content: bytes) -> None:
        """Restore the state from `to_bytes`; raises an error of any type for another training's state."""
        tensors, about = storage.from_file(content)
        if about.get("of") != self.kind:
            raise ValueError("it is of another recipe")
        states: dict[int, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            if key.startswith("optimizer/"):
                _, index, name = key.split("/")
                states.setdefault(int(index), {})[name] = tensor
        self.net.load_state_dict({key[4:]: t for key, t in tensors.items() if key.startswith("net/")})
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": states})
        with torch.no_grad():
            for name, tensor in self.extra.items():
                tensor.copy_(tensors[name])
        self.step, self.seconds = int(about["step"]), float(about.get("seconds", 0.0))
        storage.check_weights(self.net)


def generator(*entropy: int) -> torch.Generator:
    """Return a generator on the CPU; other integers give independent random numbers."""
    seed = np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(seed))


@contextmanager
def numerics(*, tf32: bool = False) -> Iterator[None]:
    """Select deterministic products on a GPU; on a CPU flush denormal numbers, which are slow."""
    torch.set_flush_denormal(True)
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=tf32):
            yield
    finally:
        torch.set_flush_denormal(False)


@torch.no_grad()
def accuracy_of(scores: Callable[[Tensor], Tensor], inputs: Tensor, labels: Tensor, rows: int = 250) -> float:
    """Return the share of inputs with the largest score for their label; `rows` are scored at a time."""
    is_correct = []
    for inputs_of_batch, labels_of_batch in zip(inputs.split(rows), labels.split(rows), strict=True):
        predicted = scores(inputs_of_batch).argmax(1)
        is_correct.append(predicted == labels_of_batch.to(inputs_of_batch.device))
    return float(torch.cat(is_correct).double().mean())


def trained(
    path: Path, start: Callable[[], TrainingT], steps: Callable[[TrainingT], Iterator[bool]]
) -> TrainingT:
    """Return a finished training, from its file, or trained as by `resumed` and written to it."""
    if (kept := _restored(path, start)) is not None:
        return kept
    checkpoint = path.with_suffix(storage.CHECKPOINT)
    training = resumed(checkpoint, start, steps)
    storage.write(path, training.to_bytes())
    checkpoint.unlink()
    return training


def resumed(
    checkpoint: Path, start: Callable[[], TrainingT], steps: Callable[[TrainingT], Iterator[bool]]
) -> TrainingT:
    """Run a training to its end, from its checkpoint if there is one, and return it.

    `start` returns the training before its first step. `steps` runs the remaining steps and yields between
    them, True to save a checkpoint at once. A RunFailedError is raised if the checkpoint cannot be written,
    which is tested before the first step.
    """
    training = _restored(checkpoint, start) or start()
    storage.write(checkpoint, training.to_bytes())
    saved = time.monotonic()
    for is_due in steps(training):
        if is_due or time.monotonic() - saved >= SAVE_SECONDS:
            storage.write(checkpoint, training.to_bytes())
            saved = time.monotonic()
    return training


def _restored(path: Path, start: Callable[[], TrainingT]) -> TrainingT | None:
    if not path.exists():
        return None
    training = start()  # a new object, because a damaged checkpoint may have been restored in part

    def decode(content: bytes) -> TrainingT:
        training.restore(content)
        return training

    return storage.read(path, decode, put_aside=True)
