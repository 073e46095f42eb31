"""How long a trace of a net takes, beside a symbolic trace of torch.fx.

A symbolic trace notes no op. Both sides run by turns in one process and every ratio is the median of ratios
of neighbours. Nothing is asserted.

    pytest -s benchmarks/test_trace_speed.py
"""

from __future__ import annotations

import statistics
import time

import pytest
import torch
from torch import fx, nn

from sdp_ref.graph.trace import trace

ROUNDS = 40


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(20, 20), nn.Linear(20, 20)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.relu(self.outer(torch.tanh(self.inner(x))))


def chain(depth: int) -> nn.Sequential:
    return nn.Sequential(*[layer for _ in range(depth) for layer in (nn.Linear(100, 100), nn.ReLU())])


CNN = nn.Sequential(
    nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4608, 10)
)
NETS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "4 layers of 100": (chain(4), (1, 100)),
    "24 layers of 100": (chain(24), (1, 100)),
    "two residual blocks": (nn.Sequential(Residual(), Residual(), nn.Linear(20, 3)), (1, 20)),
    "CNN on 28 x 28": (CNN, (1, 1, 28, 28)),
    "transformer layer": (nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval(), (1, 8, 32)),
}


def seconds(function, *args) -> float:  # type: ignore[no-untyped-def]
    start = time.process_time()
    function(*args)
    return time.process_time() - start


@pytest.mark.parametrize("name", NETS)
def test_trace(name: str, threads: int, capsys: pytest.CaptureFixture[str]) -> None:
    net, shape = NETS[name]
    x = torch.zeros(shape)
    sides = [(seconds(trace, net, x), seconds(fx.symbolic_trace, net)) for _ in range(ROUNDS)]
    ratio = statistics.median(ours / theirs for ours, theirs in sides)
    ours = statistics.median(ours for ours, _ in sides)
    with capsys.disabled():
        print(f"\n{name}, {threads} threads: {1e3 * ours:.2f} ms, {ratio:.2f} of a symbolic trace")
