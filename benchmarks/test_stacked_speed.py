"""Nets trained together against one by one: `pytest benchmarks/test_stacked_speed.py --benchmark-enable -s`.

The plain side is the loop that one writes: a module, autograd and torch.optim.Adam for each net, minibatches
by index. Times are for one step of one net. Nothing is asserted about time.
"""

from math import ceil

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from sdp_bench.bench.studies.uci.group import GRID, LEVELS
from sdp_bench.bench.studies.uci.stacked import BATCH, OBJECTIVES, Problem, Trainer

SEEDS, ROWS, FEATURES = 20, 364, 13  # boston
EPOCHS = 3
PLAIN_NETS = 3


def alone(name: str, x: torch.Tensor, y: torch.Tensor) -> None:
    """The same by torch's own means, for a few nets."""
    objective = OBJECTIVES[name]
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
def test_together_against_one_by_one(name: str, compare) -> None:
    """All 300 nets of a set together, and each by itself."""
    x = torch.randn(SEEDS, ROWS, FEATURES, generator=torch.Generator().manual_seed(0))
    data = Problem(x, x[..., 0].tanh(), tuple(range(SEEDS)))
    trainer = Trainer(data, OBJECTIVES[name], GRID)
    sides = {
        "together": lambda: list(trainer.run(trainer.epochs + EPOCHS)),
        "alone": lambda: alone(name, data.features[0], data.targets[0]),
    }
    steps = EPOCHS * ceil(ROWS / BATCH)
    compare(name, sides, 7, work={"together": steps * SEEDS * len(GRID), "alone": steps * PLAIN_NETS})
