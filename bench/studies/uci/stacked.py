"""Training of many small regression nets at once: one matrix product per layer for all nets.

The nets are Linear(n, hidden)-ReLU-Linear(hidden, outputs), those of Tagasovska and Lopez-Paz (2019). Each
net is trained as torch.optim.Adam would train it alone, on minibatches of its seed's data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from ...errors import RunFailedError
from ...identity import digest
from ...nets import storage
from ...nets.training import numerics, trained
from . import LEVELS

HIDDEN = 64
BATCH = 64
VARIANCE_FLOOR = 1e-3
"""Added to a predicted variance in a likelihood used for training, in standardised targets squared."""

_CHUNK = 60  # nets per step: their hidden units (1 MB in float32) fit in a core's cache
_FIRST_VARIANCE = 1e-2  # initial input variance, if it is trained
_BETAS, _EPSILON = (0.9, 0.999), 1e-8  # Adam's defaults


class Hyperparameters(NamedTuple):
    """Grid parameters: learning rate and weight decay (an L2 penalty, as in torch.optim.Adam)."""

    learning_rate: float
    weight_decay: float


@dataclass(frozen=True)
class Problem:
    """Training data of several seeds, all of the same size."""

    features: Tensor  # shape (S, N, n)
    targets: Tensor  # shape (S, N)
    seeds: tuple[int, ...]  # seeds of the initial weights, the order of minibatches and the quantile levels
    member: int = 0  # index in an ensemble; each member has other random numbers

    def generator(self, seed: int, purpose: str, number: int) -> torch.Generator:
        """Return an independent generator for a seed, purpose, number and member."""
        # the first member draws the numbers of nets from before there were ensembles
        member = [self.member] if self.member else []
        words: Any = [seed, number, *purpose.encode(), *member]
        entropy = np.random.SeedSequence(words).generate_state(1, np.uint64)[0]
        return torch.Generator().manual_seed(int(entropy >> np.uint64(1)))


@dataclass(frozen=True)
class NetStack:
    """A stack of nets, seed by seed, each seed with all settings."""

    weight: Tensor  # shape (N, hidden, n)
    bias: Tensor  # shape (N, hidden, 1); first layer
    second: Tensor  # shape (N, o, hidden)
    offset: Tensor  # shape (N, o, 1); second layer
    log_variance: Tensor  # shape (N, 1, 1), or (N, 1, 0); logarithm of the input variance, if it is trained

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The parameters by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def __len__(self) -> int:
        return len(self.weight)

    def __getitem__(self, part: slice) -> NetStack:
        return NetStack(**{name: tensor[part] for name, tensor in self.tensors.items()})

    @classmethod
    def initial(cls, problem: Problem, objective: IntervalObjective, settings: int) -> NetStack:
        """Return initial weights as drawn by torch.nn.Linear, by seed, equal for all settings."""
        inputs = problem.features.shape[2] + objective.levels
        by_seed = []
        for seed in problem.seeds:
            generator = problem.generator(seed, "weights", 0)
            weight, bias = _linear(inputs, HIDDEN, generator)
            second, offset = _linear(HIDDEN, objective.outputs, generator)
            log_variance = weight.new_full((1, int(objective.propagated)), math.log(_FIRST_VARIANCE))
            by_seed.append(cls(weight, bias, second, offset, log_variance))
        stacks = {}
        for field in fields(cls):
            stack = torch.stack([getattr(net, field.name) for net in by_seed])
            stacks[field.name] = stack.repeat_interleave(settings, 0).to(problem.features).contiguous()
        return cls(**stacks)

    def __call__(self, x: Tensor) -> Tensor:
        """Return outputs, shape (N, o, B), at inputs of shape (N, n, B)."""
        return torch.baddbmm(self.offset, self.second, self._hidden(x))

    def _hidden(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, self.weight, x).relu_()

    def with_gain(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs, shape (N, o, B), and the first one's squared Jacobian norm at x, shape (N, B).

        The norm is in squared units of outputs over inputs. Times an input variance it is SDP's output
        variance. The derivative at a kink is 0.
        """
        hidden = self._hidden(x)
        slopes = torch.bmm(self.weight.mT, (hidden > 0) * self.second[:, :1].mT)
        return torch.baddbmm(self.offset, self.second, hidden), slopes.square().sum(1)


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return a weight and a bias as torch.nn.Linear draws them: uniform in +-1 / sqrt(inputs)."""
    unit = torch.rand(outputs, inputs + 1, generator=generator, dtype=torch.float64)
    layer = (2 * unit - 1) / math.sqrt(inputs)
    return layer[:, :-1], layer[:, -1:]


Loss = Callable[[NetStack, Tensor, Tensor, Tensor], Tensor]
"""Loss of each row, shape (N, 1, B), given inputs (N, n, B), targets and quantile levels (N, 1, B).

Without levels, their shape is (N, 0, B).
"""


@dataclass(frozen=True)
class IntervalObjective:
    """A loss; training minimises its mean over a minibatch."""

    name: str
    loss: Loss
    outputs: int = 1
    levels: bool = False  # whether a quantile level is an additional input: 12 (tau - 1/2)
    # levels at which every row is learned in each step; by default one is drawn for each row
    fixed: tuple[float, ...] = ()
    propagated: bool = False  # whether an input variance is trained


T = TypeVar("T", float, Tensor)


def level_input(level: T) -> T:
    """Return a net's input for a quantile level in (0, 1), as in the code of Tagasovska and Lopez-Paz."""
    return 12 * (level - 0.5)


def _gaussian(nets: NetStack, x: Tensor, y: Tensor, _: Tensor) -> Tensor:
    out = nets(x)
    return _likelihood(out[:, :1] - y, F.softplus(out[:, 1:]) + VARIANCE_FLOOR)


def _propagated(nets: NetStack, x: Tensor, y: Tensor, _: Tensor) -> Tensor:
    """Likelihood with the variance of SDP: exp(s) times the squared norm of the Jacobian; s is trained."""
    out, gain = nets.with_gain(x)
    return _likelihood(out - y, nets.log_variance.exp() * gain.unsqueeze(1) + VARIANCE_FLOOR)


def _likelihood(residual: Tensor, variance: Tensor) -> Tensor:
    return variance.log() / 2 + residual.square() / (2 * variance)


def _pinball(nets: NetStack, x: Tensor, y: Tensor, levels: Tensor) -> Tensor:
    error = y - nets(x)
    return torch.maximum(levels * error, (levels - 1) * error)


def _two_pinballs(nets: NetStack, x: Tensor, y: Tensor, levels: Tensor) -> Tensor:
    # The sum of two means, each over the minibatch; the weight of a weight decay depends on this scaling.
    return len(LEVELS) * _pinball(nets, x, y, levels)


SQUARED_ERROR = IntervalObjective("squared_error", lambda nets, x, y, _: (nets(x) - y).square())
GAUSSIAN = IntervalObjective("pnn", _gaussian, outputs=2)
QUANTILES = IntervalObjective("sqr", _pinball, levels=True)
TWO_QUANTILES = IntervalObjective("sqr_ends", _two_pinballs, levels=True, fixed=LEVELS)
PROPAGATED = IntervalObjective("sdp_nll", _propagated, propagated=True)
OBJECTIVES = {
    objective.name: objective for objective in (SQUARED_ERROR, GAUSSIAN, QUANTILES, TWO_QUANTILES, PROPAGATED)
}


class StackTrainer:
    """Training of a stack in minibatches; its state can be saved and restored."""

    def __init__(
        self, problem: Problem, objective: IntervalObjective, settings: Sequence[Hyperparameters]
    ) -> None:
        self.problem, self.objective, self._copies = problem, objective, len(settings)
        self.nets = NetStack.initial(problem, objective, len(settings))
        self._momentum = {name: torch.zeros_like(tensor) for name, tensor in self.nets.tensors.items()}
        self._square = {name: torch.zeros_like(tensor) for name, tensor in self.nets.tensors.items()}
        # Learning rate and weight decay of each net, shape (N, 1, 1).
        by_net = problem.features.new_tensor(settings).repeat(len(problem.seeds), 1)
        self._rate, self._decay = by_net.T.unsqueeze(2).unsqueeze(3)
        self.steps = self.epochs = 0

    def run(self, epochs: int) -> Iterator[int]:
        """Train up to a total of `epochs` epochs, and yield after each."""
        while self.epochs < epochs:
            with numerics():
                self._epoch()
            yield self.epochs

    def to_bytes(self) -> bytes:
        """Return a safetensors file of weights, state of the optimiser, and counts, for `restore`."""
        return storage.to_file(self._state(), {})

    def _state(self) -> dict[str, Tensor]:
        state = {}
        for name, weights in self.nets.tensors.items():
            state[f"nets.{name}"] = weights
            state[f"momentum.{name}"] = self._momentum[name]
            state[f"square.{name}"] = self._square[name]
        state["counts"] = torch.tensor([self.steps, self.epochs])
        return state

    def restore(self, content: bytes) -> None:
        """Restore the state from `to_bytes`; a ValueError for another stack's."""
        current = self._state()
        stored, _ = storage.from_file(content)
        shapes = {name: tensor.shape for name, tensor in current.items()}
        if {name: tensor.shape for name, tensor in stored.items()} != shapes:
            raise ValueError("the checkpoint is of another stack of nets")
        for name, tensor in current.items():
            tensor.copy_(stored[name])
        self.steps, self.epochs = stored["counts"].tolist()

    def _epoch(self) -> None:
        x, y, levels = self._shuffled()
        for start in range(0, x.shape[2], BATCH):
            rows = slice(start, start + BATCH)
            batch = self._at_levels(x[:, :, rows], y[:, :, rows], levels[:, :, rows])
            # A seed's nets, one for each setting, all get its minibatch.
            batch_x, batch_y, batch_levels = [part.repeat_interleave(self._copies, 0) for part in batch]
            self._step(batch_x, batch_y, batch_levels)
        self.epochs += 1

    def _shuffled(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rows of each seed in the order of this epoch: inputs (S, n, N), targets and levels (S, 1, N)."""
        problem, device = self.problem, self.problem.features.device
        count = problem.features.shape[1]
        orders, levels = [], []
        for seed in problem.seeds:
            generator = problem.generator(seed, "order", self.epochs)
            orders.append(torch.randperm(count, generator=generator))
            if self.objective.levels and not self.objective.fixed:
                levels.append(torch.rand(count, generator=generator, dtype=torch.float64))
        order = torch.stack(orders).to(device)
        x = problem.features.take_along_dim(order.unsqueeze(2), 1).mT
        y = problem.targets.take_along_dim(order, 1).unsqueeze(1)
        return x, y, torch.stack(levels).to(x).unsqueeze(1) if levels else y[:, :0]

    def _at_levels(self, x: Tensor, y: Tensor, levels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Add quantile levels as an input of a minibatch, which is repeated at each fixed level."""
        if fixed := self.objective.fixed:
            levels = torch.cat([torch.full_like(y, level) for level in fixed], 2)
            x = x.repeat(1, 1, len(fixed))
            y = y.repeat(1, 1, len(fixed))
        return torch.cat([x, level_input(levels)], 1), y, levels

    def _step(self, x: Tensor, y: Tensor, levels: Tensor) -> None:
        self.steps += 1
        size = len(x) if x.is_cuda else _CHUNK
        for start in range(0, len(x), size):
            part = slice(start, start + size)
            leaves = {name: t[part].detach().requires_grad_() for name, t in self.nets.tensors.items()}
            # The sum of the nets' mean losses, so that gradients do not mix.
            loss = self.objective.loss(NetStack(**leaves), x[part], y[part], levels[part]).mean(2).sum()
            gradients = torch.autograd.grad(loss, [*leaves.values()], materialize_grads=True)
            with torch.no_grad():
                for name, gradient in zip(leaves, gradients, strict=True):
                    self._adam(name, part, gradient)

    def _adam(self, name: str, part: slice, gradient: Tensor) -> None:
        """Update a tensor of some nets as torch.optim.Adam, which has no learning rates per net.

        Source: Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015, algorithm 1.
        """
        fast, slow = _BETAS
        values = self.nets.tensors[name][part]
        momentum, square = self._momentum[name][part], self._square[name][part]
        if name != "log_variance":  # not a weight: shrinking it to 0 would not simplify the model
            gradient = gradient + self._decay[part] * values
        momentum.lerp_(gradient, 1 - fast)
        square.mul_(slow).addcmul_(gradient, gradient, value=1 - slow)
        root = square.sqrt().mul_(1 / math.sqrt(1 - slow**self.steps)).add_(_EPSILON)
        values.addcmul_(momentum / root, self._rate[part], value=-1 / (1 - fast**self.steps))


VERSION = 1
"""Raise it with every change that changes what is trained: nets are trained again, and scored again."""


def get_nets(
    name: str,
    problem: Problem,
    objective: IntervalObjective,
    settings: Sequence[Hyperparameters],
    epochs: int,
) -> NetStack:
    """Return the nets of an objective for all seeds and settings, from the cache or newly trained.

    An interrupted training resumes from its last checkpoint and gives the same weights. `name` is that of
    the data set, for the file name. The result is ordered by seed, then by setting. A RunFailedError is
    raised if the training of every net diverges or the cache cannot be written.
    """

    def steps(trainer: StackTrainer) -> Iterator[bool]:
        for _ in trainer.run(epochs):
            yield False  # no checkpoint is due
        # Nets that diverged have no coverage, so they are never selected.
        finite = [tensor.isfinite().flatten(1).all(1) for tensor in trainer.nets.tensors.values()]
        if not bool(torch.stack(finite).all(0).any()):
            raise RunFailedError(f"training on {name} diverged ({objective.name})")

    data = problem.features, problem.targets, list(problem.seeds)
    identity = digest(*data, objective.name, list(settings), epochs, problem.member, VERSION)
    path = storage.cache_folder() / f"intervals-{name}-{objective.name}-{identity[:12]}.safetensors"
    return trained(path, lambda: StackTrainer(problem, objective, settings), steps).nets
