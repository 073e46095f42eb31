"""Nets that are not modules of one tensor: they work with the line of Python that the error shows."""

import numpy as np
import pytest
import torch
from torch import nn

import sdp_ref as sr
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.nets.own import net as own
from sdp_bench.bench.nets.own.inputs import Ports

FILE = """
import numpy as np
import torch
from torch import nn


def predict(x):
    return np.tanh(x @ np.ones((4, 2), np.float32))


class Predict(torch.nn.Module): forward = lambda self, x: torch.as_tensor(predict(x.detach().numpy()))


class Array(nn.Module):
    def forward(self, x):
        return predict(x.numpy())


class Single(nn.Module):
    def forward(self, x):
        return x.reshape(1, 4)[:, :2]


net = Single()
class Rows(torch.nn.Module): forward = lambda self, x: torch.cat([net(row) for row in x.split(1)])


class Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.state = nn.GRUCell(4, 8), None

    def forward(self, x):
        self.state = self.cell(x, self.state)
        return self.state


class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2).half()

    def forward(self, x):
        return self.layer(x.half())


class SameType(Half):
    def forward(self, x):
        return self.layer(x.to(self.layer.weight.dtype))


class Nested(nn.Module):
    def forward(self, x):
        return {"a": (x, {"b": 2 * x}), "c": x.sum(1)}


def second():
    return nn.LSTM(3, 5)


def first():
    return nn.LSTM(3, 5, batch_first=True)


class Squeezed(nn.Linear):
    def __init__(self):
        super().__init__(4, 1)

    def forward(self, x):
        return super().forward(x).squeeze()


class Unsqueezed(Squeezed):
    def forward(self, x):
        output = super().forward(x)
        return output.reshape(len(x), -1)


class State(nn.LSTM):
    def __init__(self):
        super().__init__(3, 5, batch_first=True)

    def forward(self, x):
        return super().forward(x)[1][0].transpose(0, 1)
"""
TABLE = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
SEQUENCES = np.random.default_rng(0).normal(size=(2, 6, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    path = tmp_path_factory.mktemp("forms") / "n.py"
    path.write_text(FILE)
    return lambda name, inputs, output=None: own.find(f"{path}:{name}", {"0": inputs}, output=output)


@pytest.mark.parametrize(
    ("name", "inputs", "output", "line"),
    [
        ("predict", TABLE, None, r"torch\.as_tensor\(predict\(x\.detach\(\)\.numpy\(\)\)\)"),
        ("Array", TABLE, None, r"write `return torch\.as_tensor"),
        ("Single", TABLE, None, r"torch\.cat\(\[net\(row\) for row in x\.split\(1\)\]\)"),
        ("Stateful", TABLE, None, "Begin each forward"),
        ("Half", TABLE, None, r"x\.to\(self\.weight\.dtype\)"),
        ("Nested", TABLE, None, r"dict of a \(tuple\), c \(6,\) .*: --net-output a$"),
        ("first", SEQUENCES, None, "--net-output 0"),
        ("Squeezed", TABLE, None, r"1 input, got shape \(\); write `return output\.reshape\(len\(x\), -1\)`"),
        ("Predict", TABLE, "2", r"no output '2': there are 0, 1 in a tensor of shape"),
        ("second", SEQUENCES, "0", "construct it with batch_first=True"),
        ("first", SEQUENCES, "1.0", r"return output\.transpose\(0, 1\)"),
    ],
)
def test_an_error_shows_the_line_to_write(found, name, inputs, output, line):
    with pytest.raises(UserError, match=line) as caught:
        found(name, inputs, output)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "inputs", "output", "shape"),
    [
        ("Predict", TABLE, None, (2,)),
        ("Rows", TABLE, None, (2,)),
        ("SameType", TABLE, None, (2,)),
        ("Nested", TABLE, "a.1.b", (4,)),
        ("Nested", TABLE, "c", ()),
        ("Nested", TABLE, "a.0.3", (1,)),
        ("Predict", TABLE, "1", (1,)),
        ("first", SEQUENCES, "0", (6, 5)),
        ("Unsqueezed", TABLE, None, (1,)),
        ("State", SEQUENCES, None, (1, 5)),
    ],
)
def test_with_this_line_the_net_is_found(found, name, inputs, output, shape):
    assert found(name, inputs, output).architecture.output_shape == shape


@pytest.mark.parametrize("rule", ["sdp", "marginal_sdp", "moment_matching", "unscented", "dvia"])
def test_a_column_has_the_marginal_law_of_all_outputs(rule):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    law = sr.DiagonalGaussian(torch.randn(2, 4), torch.full((2, 4), 0.09))
    everything = sr.propagate(net, law, rule)
    column = sr.propagate(Ports(output="1").wrap(net).eval(), law, rule)
    torch.testing.assert_close(column.mean, everything.mean[:, 1:2])
    torch.testing.assert_close(column.variance, everything.variance[:, 1:2])
