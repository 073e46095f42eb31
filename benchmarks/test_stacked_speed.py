"""Nets trained together against one by one: `pytest benchmarks/test_stacked_speed.py --benchmark-enable -s`.

Both sides run by turns in one process and every ratio is the median of ratios of neighbours, on one thread
of CPU time, on two of the clock's. The plain side is the loop that one writes: a module, autograd and
torch.optim.Adam for each net, minibatches by index. Nothing is asserted about time.
"""

import statistics

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from sdp_bench.bench.methods.uci.intervals import GRID
from sdp_bench.bench.methods.uci.scores import LEVELS
from sdp_bench.bench.methods.uci.stacked import BATCH, OBJECTIVES, Problem, Trainer
from sdp_bench.bench.runtime.timing import clock

ROUNDS, SEEDS, ROWS, FEATURES = 7, 20, 364, 13  # boston
EPOCHS = 3
PLAIN_NETS = 3


def problem() -> Problem:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(SEEDS, ROWS, FEATURES, generator=generator)
    return Problem(x, x[..., 0].tanh(), tuple(range(SEEDS)))


def together(trainer: Trainer) -> int:
    """Steps of single nets that were taken."""
    before = trainer.steps
    for _ in trainer.run(trainer.epochs + EPOCHS):
        pass
    return (trainer.steps - before) * SEEDS * len(GRID)


def alone(name: str, x: torch.Tensor, y: torch.Tensor) -> int:
    """The same by torch's own means, for a few nets."""
    objective = OBJECTIVES[name]
    steps = 0
    for _ in range(PLAIN_NETS):
        net = nn.Sequential(
            nn.Linear(FEATURES + objective.levels, 64), nn.ReLU(), nn.Linear(64, objective.outputs)
        )
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=1e-3)
        for _ in range(EPOCHS):
            for rows in torch.randperm(ROWS).split(BATCH):
                optimizer.zero_grad()
                plain_loss(name, net, x[rows], y[rows]).backward()
                optimizer.step()
                steps += 1
    return steps


def pinball(net: nn.Module, x: torch.Tensor, y: torch.Tensor, levels: torch.Tensor) -> torch.Tensor:
    error = y - net(torch.cat([x, 12 * (levels - 0.5).unsqueeze(1)], 1))[:, 0]
    return torch.maximum(levels * error, (levels - 1) * error).mean()


def plain_loss(name: str, net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if name == "squared_error":
        return F.mse_loss(net(x)[:, 0], y)
    if name == "pnn":
        out = net(x)
        variance = F.softplus(out[:, 1]) + 1e-3
        return (variance.log() / 2 + (y - out[:, 0]).square() / (2 * variance)).mean()
    if name == "sqr":
        return pinball(net, x, y, torch.rand(len(x)))
    if name == "sqr_ends":
        low, high = (pinball(net, x, y, torch.full_like(y, level)) for level in LEVELS)
        return low + high
    x = x.clone().requires_grad_()
    out = net(x)
    (slopes,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    variance = 0.01 * slopes.square().sum(1) + 1e-3
    return (variance.log() / 2 + (y - out[:, 0]).square() / (2 * variance)).mean()


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("name", OBJECTIVES)
def test_together_against_one_by_one(name: str, benchmark, capsys: pytest.CaptureFixture[str]) -> None:
    """Nets trained in a second of CPU time, all 300 of a set together against each by itself."""
    data = problem()
    trainer = Trainer(data, OBJECTIVES[name], GRID)
    sides = {
        "together": lambda: together(trainer),
        "alone": lambda: alone(name, data.features[0], data.targets[0]),
    }
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for work in sides.values():
        work()
    for _ in range(ROUNDS):
        for side, work in sides.items():
            start = clock()
            steps = work()
            rates[side].append(steps / (clock() - start))
    ratios = sorted(a / b for a, b in zip(rates["together"], rates["alone"], strict=True))
    with capsys.disabled():
        print(
            f"\n{name}, {torch.get_num_threads()} thread(s): "
            f"{statistics.median(rates['together']):.0f} steps a second together, "
            f"{statistics.median(rates['alone']):.0f} alone: {statistics.median(ratios):.1f} times "
            f"({ratios[0]:.1f} to {ratios[-1]:.1f} over {ROUNDS} rounds)"
        )
    benchmark.pedantic(together, (trainer,), rounds=3)
