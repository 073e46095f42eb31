"""Training of many small regression nets at once: one matrix product per layer for all nets.

The nets are Linear(n, hidden)-ReLU-Linear(hidden, outputs), those of Tagasovska and Lopez-Paz (2019). Each
net is trained as torch.optim.Adam would train it alone, on minibatches of its seed's data. Gradients are
written out: autograd would store and traverse the same few products again, at twice the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from sdp_bench.bench.errors import RunFailedError
from sdp_bench.bench.identity import digest
from sdp_bench.bench.nets import storage
from sdp_bench.bench.studies.uci import LEVELS

HIDDEN = 64
BATCH = 64
VARIANCE_FLOOR = 1e-3
"""Added to a predicted variance in a likelihood used for training, in standardised targets squared."""

_CHUNK = 60  # nets per product: their hidden units (1 MB in float32) fit in a core's cache
_FIRST_VARIANCE = 1e-2  # initial input variance, if it is trained
_BETAS, _EPSILON = (0.9, 0.999), 1e-8  # Adam's defaults


@dataclass(frozen=True)
class Setting:
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
class Objective:
    """A loss, defined by its gradient with respect to the outputs."""

    name: str
    outputs: int
    # gradient of the loss's mean over the minibatch
    gradient: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    levels: bool = False  # whether a quantile level is an additional input: 12 (tau - 1/2)
    # levels at which every row is learned in each step; by default one is drawn for each row
    fixed: tuple[float, ...] = ()
    # whether the likelihood's variance is that of SDP: exp(s) times the squared norm of the Jacobian, with a
    # trained parameter s, plus `VARIANCE_FLOOR`
    propagated: bool = False


def _squared_error(out: Tensor, y: Tensor, _levels: Tensor | None) -> Tensor:
    return (out - y).mul_(2 / y.shape[2])


def _gaussian(out: Tensor, y: Tensor, _levels: Tensor | None) -> Tensor:
    mean, raw = out[:, :1], out[:, 1:]
    variance = F.softplus(raw).add_(VARIANCE_FLOOR)
    residual = mean - y
    in_mean, in_variance = _likelihood(residual, variance)
    return torch.cat([in_mean, in_variance.mul_(raw.sigmoid())], 1)


def _likelihood(residual: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of mean(log(variance) / 2 + residual^2 / (2 variance)) over the last dimension."""
    scaled = residual / variance
    size = residual.shape[2]
    return scaled / size, (1 / variance - scaled.square()).div_(2 * size)


def _pinball(out: Tensor, y: Tensor, levels: Tensor | None) -> Tensor:
    if levels is None:
        raise ValueError("a pinball loss needs levels")
    return ((y < out).to(y.dtype) - levels).div_(y.shape[2])


def _two_pinballs(out: Tensor, y: Tensor, levels: Tensor | None) -> Tensor:
    # The sum of two means, each over the minibatch; the weight of a weight decay depends on this scaling.
    return _pinball(out, y, levels).mul_(len(LEVELS))


SQUARED_ERROR = Objective("squared_error", 1, _squared_error)
GAUSSIAN = Objective("pnn", 2, _gaussian)
QUANTILES = Objective("sqr", 1, _pinball, levels=True)
TWO_QUANTILES = Objective("sqr_ends", 1, _two_pinballs, levels=True, fixed=LEVELS)
PROPAGATED = Objective("sdp_nll", 1, _squared_error, propagated=True)
OBJECTIVES = {each.name: each for each in (SQUARED_ERROR, GAUSSIAN, QUANTILES, TWO_QUANTILES, PROPAGATED)}


@dataclass(frozen=True)
class Nets:
    """A stack of nets, seed by seed, each seed with all settings."""

    weight: Tensor  # shape (N, hidden, n)
    bias: Tensor  # shape (N, hidden, 1); first layer
    second: Tensor  # shape (N, o, hidden)
    offset: Tensor  # shape (N, o, 1); second layer
    log_variance: Tensor  # shape (N, 1, 1), or (N, 1, 0); logarithm of the input variance, if it is trained

    @property
    def tensors(self) -> dict[str, Tensor]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def outputs(self) -> int:
        return self.second.shape[1]

    def __len__(self) -> int:
        return len(self.weight)

    def __getitem__(self, part: slice) -> Nets:
        return Nets(**{name: tensor[part] for name, tensor in self.tensors.items()})

    def zeros(self) -> Nets:
        return Nets(**{name: torch.zeros_like(tensor) for name, tensor in self.tensors.items()})

    @classmethod
    def initial(cls, problem: Problem, objective: Objective, settings: int) -> Nets:
        """Return initial weights as drawn by torch.nn.Linear, by seed, equal for all settings."""
        inputs = problem.features.shape[2] + objective.levels
        drawn: list[tuple[Tensor, ...]] = []
        for seed in problem.seeds:
            generator = problem.generator(seed, "weights", 0)
            layers = []
            for size, fan_in in ((HIDDEN, inputs), (objective.outputs, HIDDEN)):
                unit = torch.rand(size, fan_in + 1, generator=generator, dtype=torch.float64)
                layer = (2 * unit - 1) / math.sqrt(fan_in)
                layers += [layer[:, :-1], layer[:, -1:]]
            trained = layer.new_full((1, int(objective.propagated)), math.log(_FIRST_VARIANCE))
            drawn.append((*layers, trained))
        stacked = (torch.stack(each).repeat_interleave(settings, 0) for each in zip(*drawn, strict=True))
        return cls(*(each.to(problem.features).contiguous() for each in stacked))

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


class Trainer:
    """Training of a stack in minibatches of `batch` rows, whose state can be saved and restored."""

    def __init__(
        self, problem: Problem, objective: Objective, settings: Sequence[Setting], batch: int = BATCH
    ) -> None:
        self.problem, self.objective, self.batch, self._copies = problem, objective, batch, len(settings)
        self.nets = Nets.initial(problem, objective, len(settings))
        self._gradient, self._momentum, self._square = (self.nets.zeros() for _ in range(3))
        rows = problem.features.new_tensor([[s.learning_rate, s.weight_decay] for s in settings])
        self._rate, self._decay = rows.repeat(len(problem.seeds), 1).T.unsqueeze(2).unsqueeze(3)
        self.steps = self.epochs = 0

    def run(self, epochs: int) -> Iterator[int]:
        """Train up to a total of `epochs` epochs, and yield after each."""
        # Gradients become denormal numbers late in training, which make a CPU several times slower.
        before = torch.ones(1).mul(1e-40).item() != 0
        torch.set_flush_denormal(True)
        try:
            while self.epochs < epochs:
                self._epoch()
                yield self.epochs
        finally:
            torch.set_flush_denormal(not before)

    def to_bytes(self) -> bytes:
        return save({name: tensor.cpu().contiguous() for name, tensor in self._state().items()})

    def _state(self) -> dict[str, Tensor]:
        kept = {"nets": self.nets, "momentum": self._momentum, "square": self._square}
        state = {f"{key}.{name}": t for key, nets in kept.items() for name, t in nets.tensors.items()}
        return state | {"counts": torch.tensor([self.steps, self.epochs])}

    def restore(self, content: bytes) -> None:
        """Restore the state from `to_bytes`; a ValueError for another stack's."""
        own, state = self._state(), load(content)
        if {k: t.shape for k, t in own.items()} != {k: t.shape for k, t in state.items()}:
            raise ValueError("the checkpoint is of another stack of nets")
        for key, tensor in own.items():
            tensor.copy_(state[key])
        self.steps, self.epochs = state["counts"].tolist()

    def _epoch(self) -> None:
        x, y, levels = self._shuffled()
        for start in range(0, x.shape[2], self.batch):
            rows = slice(start, start + self.batch)
            at = None if levels is None else levels[:, :, rows]
            own_x, own_y, at = self._at_levels(x[:, :, rows], y[:, :, rows], at)
            own_x, own_y = (t.repeat_interleave(self._copies, 0) for t in (own_x, own_y))
            self._step(own_x, own_y, None if at is None else at.repeat_interleave(self._copies, 0))
        self.epochs += 1

    def _shuffled(self) -> tuple[Tensor, Tensor, Tensor | None]:
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
        return x, y, torch.stack(levels).to(x).unsqueeze(1) if levels else None

    def _at_levels(self, x: Tensor, y: Tensor, levels: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Add quantile levels as an input of a minibatch, or repeat it at each fixed level."""
        if not self.objective.levels:
            return x, y, None
        if levels is None:
            levels = torch.cat([torch.full_like(y, level) for level in self.objective.fixed], 2)
            x, y = (each.repeat(1, 1, len(self.objective.fixed)) for each in (x, y))
        return torch.cat([x, 12 * (levels - 0.5)], 1), y, levels

    def _step(self, x: Tensor, y: Tensor, levels: Tensor | None) -> None:
        size = len(x) if x.is_cuda else _CHUNK
        for start in range(0, len(x), size):
            part = slice(start, start + size)
            self._differentiate(part, x[part], y[part], None if levels is None else levels[part])
        self._adam()

    def _differentiate(self, part: slice, x: Tensor, y: Tensor, levels: Tensor | None) -> None:
        """Compute the gradients of some nets in place."""
        nets, into = self.nets[part], self._gradient[part]
        hidden = torch.baddbmm(nets.bias, nets.weight, x).relu_()
        out = torch.baddbmm(nets.offset, nets.second, hidden)
        if self.objective.propagated:
            # The Jacobian (N, n, B) is weight^T through, with through = active times second (N, hidden, B).
            active = (hidden > 0).to(hidden)
            through = active * nets.second.mT
            slopes = torch.bmm(nets.weight.mT, through)
            gain = slopes.square().sum(1, keepdim=True)
            scale = nets.log_variance.exp()
            in_out, in_variance = _likelihood(out - y, scale * gain + VARIANCE_FLOOR)
            torch.sum(in_variance * scale * gain, 2, keepdim=True, out=into.log_variance)
            in_slopes = slopes.mul_(2 * scale * in_variance)
        else:
            in_out = self.objective.gradient(out, y, levels)
        torch.bmm(in_out, hidden.mT, out=into.second)
        torch.sum(in_out, 2, keepdim=True, out=into.offset)
        back = torch.ops.aten.threshold_backward(torch.bmm(nets.second.mT, in_out), hidden, 0)
        torch.bmm(back, x.mT, out=into.weight)
        torch.sum(back, 2, keepdim=True, out=into.bias)
        if self.objective.propagated:
            into.weight.baddbmm_(through, in_slopes.mT)
            in_through = torch.bmm(nets.weight, in_slopes)
            into.second.add_(in_through.mul_(active).sum(2).unsqueeze(1))

    def _adam(self) -> None:
        self.steps += 1
        fast, slow = _BETAS
        for name, values in self.nets.tensors.items():
            gradient, momentum, square = (
                getattr(nets, name) for nets in (self._gradient, self._momentum, self._square)
            )
            if name != "log_variance":  # not a weight: shrinking it to 0 would not simplify the model
                gradient.addcmul_(values, self._decay)
            momentum.lerp_(gradient, 1 - fast)
            square.mul_(slow).addcmul_(gradient, gradient, value=1 - slow)
            root = torch.sqrt(square, out=gradient)
            root.mul_(1 / math.sqrt(1 - slow**self.steps)).add_(_EPSILON)
            update = torch.div(momentum, root, out=root)
            values.addcmul_(update, self._rate, value=-1 / (1 - fast**self.steps))


VERSION = 1
"""Raise it with every change that changes what is trained: nets are trained again, and scored again."""

Report = Callable[[int, int], None]
"""Callback (epochs done, epochs in total)."""


def get_nets(
    name: str,
    problem: Problem,
    objective: Objective,
    settings: Sequence[Setting],
    epochs: int,
    report: Report | None = None,
) -> Nets:
    """Return the nets of an objective for all seeds and settings, from the cache or newly trained.

    An interrupted training resumes from its last checkpoint and gives the same weights. `name` is that of
    the data set, for the file name. The result is ordered by seed, then by setting. A RunFailedError is
    raised if the training of every net diverges or the cache cannot be written.
    """

    def steps(trainer: Trainer) -> Iterator[int]:
        for done in trainer.run(epochs):
            if report is not None:
                report(done, epochs)
            yield done
        # Nets that diverged have no coverage, so they are never selected.
        finite = [tensor.isfinite().flatten(1).all(1) for tensor in trainer.nets.tensors.values()]
        if not bool(torch.stack(finite).all(0).any()):
            raise RunFailedError(f"training on {name} diverged ({objective.name})")

    path = _path(name, problem, objective, settings, epochs)
    return storage.trained(path, lambda: Trainer(problem, objective, settings), steps).nets


def _path(
    name: str, problem: Problem, objective: Objective, settings: Sequence[Setting], epochs: int
) -> Path:
    grid = [(setting.learning_rate, setting.weight_decay) for setting in settings]
    identity = digest(
        *(problem.features, problem.targets, list(problem.seeds), objective.name, grid, epochs),
        *(problem.member, VERSION),
    )
    return storage.cache_folder() / f"intervals-{name}-{objective.name}-{identity[:12]}.safetensors"
