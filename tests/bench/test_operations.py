import pytest
import torch
from torch import nn

import sdp_ref as sr
from sdp_bench.bench.experiments.predict import predict
from sdp_bench.bench.identity import OracleKey
from sdp_bench.bench.operations import operations
from sdp_ref.errors import UndefinedError


def test_operations_are_counted_by_their_formulas():
    layer, x = nn.Linear(7, 5, bias=False), torch.ones(3, 7, requires_grad=True)
    forward = 2 * 3 * 7 * 5
    assert operations(lambda: layer(x)) == forward
    assert operations(lambda: torch.relu(layer(x))) == forward + 15
    assert operations(lambda: torch.autograd.grad(layer(x), x, torch.ones(3, 5))) == 2 * forward
    convolution, image = nn.Conv2d(2, 3, 3, padding=1, bias=False), torch.ones(1, 2, 8, 8)
    assert operations(lambda: convolution(image)) == 2 * (3 * 3 * 2) * (3 * 8 * 8)
    square = 2 * torch.eye(6)
    assert operations(lambda: torch.linalg.cholesky(square)) == pytest.approx(6**3 / 3, abs=36)
    matrix = torch.ones(4, 6)
    assert operations(lambda: matrix.T.reshape(3, 8).clone()) == 0  # views and copies are free
    assert operations(lambda: matrix.sum()) == 24


@pytest.mark.parametrize(("width", "passes"), [(64, 11), (512, 11)])
def test_sdp_takes_a_backward_pass_for_each_output(width, passes):
    """One forward pass and ten backward ones for ten outputs, and products that matter less in wide nets."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(49, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )
    net = net.double()
    x = sr.DiagonalGaussian(torch.zeros(1, 49).double(), torch.ones(1, 49).double())
    propagate = sr.rule("sdp").prepare(net)
    propagate(x)  # the first call also compares differences with the Jacobian
    counted = operations(lambda: propagate(x)) / operations(lambda: net(x.mean))
    assert counted == pytest.approx(passes, rel=0.2 if width == 64 else 0.03)


def counted(net, inputs):
    x = sr.DiagonalGaussian(torch.zeros(inputs, 3), torch.ones(inputs, 3))
    keys = [OracleKey("net", f"input {i}", "gaussian:sigma=1.0", "mc", 100) for i in range(inputs)]
    return predict(sr.rule("unscented"), net, x, keys)[2]


def test_a_count_is_that_of_one_input():
    """Six points take six passes; the moments of three outputs take as many operations for each input."""
    net = nn.Sequential(nn.Linear(3, 200), nn.ReLU(), nn.Linear(200, 3))
    assert counted(net, 1)() == pytest.approx(6, rel=0.2)
    assert counted(net, 8)() == pytest.approx(counted(net, 1)(), rel=0.05)


def test_a_net_without_operations_in_torch_is_no_unit_of_them():
    with pytest.raises(UndefinedError, match="no operations in PyTorch"):
        counted(nn.Identity(), 1)()
