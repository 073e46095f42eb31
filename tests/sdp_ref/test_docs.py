from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import sdp_ref as sr
from sdp_ref.activations import ACTIVATIONS, activation
from tests.sdp_ref.common import draw

PAGE = (Path(__file__).parents[2] / "docs" / "rules.md").read_text()
RULES = ("marginal_sdp", "marginal_moment_matching", "moment_matching", "dvia")


def table():
    _, _, section = PAGE.partition("## Supported ops")
    section, _, _ = section.partition("\n## ")
    rows = [line for line in section.splitlines() if line.startswith("|")]
    cells = [[c.strip() for c in row.strip("|").split("|")] for row in rows]
    assert [c.strip("`") for c in cells[0][1:]] == list(RULES)
    return {row[0]: row[1:] for row in cells[2:]}


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 1, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


NETS = {
    "Linear, x @": [nn.Linear(4, 2), nn.Conv1d(4, 2, 2)],
    "BatchNorm1d": [nn.BatchNorm1d(4)],
    "ConvTranspose1d": [nn.ConvTranspose1d(4, 2, 2), nn.CircularPad1d(1), nn.ChannelShuffle(2)],
    "AvgPool1d/2d": [nn.AvgPool1d(2), nn.AdaptiveAvgPool1d(2), lambda x: x.mean(1, keepdim=True)],
    "x + c": [lambda x: 1 - x, lambda x: -x * 3 / 2],
    "Flatten": [nn.Flatten(), nn.Unflatten(1, (2, -1)), lambda x: F.pad(x[:, 1:], (1, 1))],
    "Identity": [nn.Identity(), nn.Dropout(), lambda x: x.contiguous().clone()],
    "x + y": [lambda x: x + 2 * x, lambda x: torch.cat([x, x - 2 * x], 1)],
    "ReLU": [nn.ReLU()],
    "LeakyReLU": [
        activation(name).build()
        for name, kind in ACTIVATIONS.items()
        if kind.moments and name not in ("relu", "power")
    ],
    "MaxPool1d/2d": [nn.MaxPool1d(2), nn.AdaptiveMaxPool1d(2)],
    "Softmax": [nn.Softmax(1), nn.LogSoftmax(1)],
    "LayerNorm": [nn.LayerNorm(4), nn.RMSNorm(4), nn.GroupNorm(2, 4), nn.InstanceNorm1d(4)],
    "x * y": [lambda x: x * x, lambda x: x * x.relu(), lambda x: x.unsqueeze(1) @ x.unsqueeze(2)],
    "x / y": [lambda x: x / (x.relu() + 1), Attending()],
    "max(x, y)": [lambda x: torch.maximum(x, x.flip(1)), lambda x: torch.minimum(x, x.flip(1))],
    "maxima": [lambda x: x.amax(1, keepdim=True), lambda x: x.min(1, keepdim=True).values],
    "`vector_norm`": [lambda x: x.norm(dim=1, keepdim=True), lambda x: F.normalize(x, dim=1)],
    "comparisons": [
        lambda x: torch.where(x > 0, x, x.exp() - 1),
        lambda x: x.masked_fill(x < 0.1, 0.0),
        lambda x: x * (x > 0.5),
        lambda x: torch.maximum(x, -2 * x),
    ],
    "training-mode": [
        nn.BatchNorm1d(4).train(),
        nn.Dropout().train(),
        lambda x: x + torch.rand(4),
        lambda x: x + x.mean(0),
    ],
}


def event_of(net):
    pools = nn.AvgPool1d | nn.AdaptiveAvgPool1d | nn.MaxPool1d | nn.AdaptiveMaxPool1d | nn.CircularPad1d
    others = nn.Conv1d | nn.ConvTranspose1d | nn.InstanceNorm1d | nn.ChannelShuffle | Attending
    return (4, 4) if isinstance(net, pools | others) else (4,)


@pytest.mark.parametrize("start", NETS)
@pytest.mark.parametrize("rule", RULES)
def test_the_table_tells_the_truth(start, rule):
    (row,) = (cells for op, cells in table().items() if op.startswith(start))
    refused = row[RULES.index(rule)] == "-"
    for net in NETS[start]:
        if isinstance(net, nn.Module) and start != "training-mode":
            net = net.eval()
        event = event_of(net)
        mean = draw(2, *event, dtype=torch.float32)
        x = sr.DiagonalGaussian(mean, torch.ones_like(mean))
        if refused:
            with pytest.raises(sr.UnsupportedError):
                sr.propagate(net, x, rule)
        else:
            assert bool(sr.propagate(net, x, rule).variance.isfinite().all())


def test_the_table_says_which_laws_are_taken():
    row = table()["input laws"]
    mean = torch.zeros(1, 4)
    laws = {
        "Gaussian": sr.DiagonalGaussian(mean, mean + 1),
        "Cauchy": sr.Cauchy(mean, mean + 1),
        "stable": sr.SymmetricStable(mean, mean + 1, 1.5),
    }
    for rule, taken in zip(RULES, row, strict=True):
        for name, law in laws.items():
            if name in taken.split(", "):
                sr.propagate(nn.Linear(4, 2), law, rule)
            else:
                with pytest.raises(sr.UnsupportedError):
                    sr.propagate(nn.Linear(4, 2), law, rule)
