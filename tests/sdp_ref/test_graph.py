"""The trace: every spelling of an op becomes the module that does the same."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sdp_ref import graph


class Spelled(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        h = F.relu(self.first(x))
        h = h + self.first(h).sigmoid()
        return F.leaky_relu(self.second(h), 0.2)


def run(steps, x):
    """What the steps compute, by their own modules."""
    values = [x]
    for step in steps:
        args = [values[i] for i in step.inputs]
        values.append(args[0] + args[1] if isinstance(step.module, graph.Add) else step.module(*args))
    return values[-1]


@pytest.mark.parametrize(
    "net",
    [
        nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Sequential(nn.Linear(3, 2), nn.Tanh())),
        Spelled(),
        nn.ReLU(),
        nn.Linear(4, 2),
        torch.relu,
        F.silu,
        lambda x: torch.tanh(x) + x,
        lambda x: x + x,
        lambda x: F.gelu(torch.flatten(x, 1)),
        nn.Sequential(),
    ],
)
def test_steps_compute_what_the_net_computes(net):
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(run(graph.trace(net), x), net(x))


def test_steps_share_the_parameters_and_name_their_place():
    net = nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 2)))
    steps = graph.trace(net)
    assert [step.path for step in steps] == ["0", "1.0", "1.1"]
    assert steps[2].module is net[1][1]
    weight = nn.Parameter(torch.ones(2, 4))
    (step,) = graph.trace(lambda x: F.linear(x, weight))
    assert step.module.weight is weight
    assert step.module.bias is None


def test_ops_without_an_entry_are_kept_as_unknown_with_their_name():
    (step,) = graph.trace(lambda x: x.cumsum(1))
    assert isinstance(step.module, graph.Unknown)
    assert step.module.text == "Tensor.cumsum"
    (step,) = graph.trace(lambda x: x + 1.0)
    assert "constant" in step.module.text


def test_a_dead_branch_is_not_the_output():
    def net(x):
        y = torch.relu(x)
        torch.tanh(x)
        return y

    steps = graph.trace(net)
    assert isinstance(steps[-1].module, nn.ReLU)


@pytest.mark.parametrize(
    "net",
    [
        lambda x: x if x.sum() > 0 else -x,
        lambda x, y: x,
        lambda x: (x, x),
        lambda x: torch.ones(3),
    ],
)
def test_what_cannot_be_traced_is_said(net):
    with pytest.raises(graph.UntraceableError):
        graph.trace(net)
