import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sdp_ref.errors import NoFormulaError
from sdp_ref.jacobian.jacobian import hessian_of
from tests.sdp_ref.common import seeded

SMOOTH = (nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softplus)


class Pixels(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(1, 2, 3, padding=1), nn.LayerNorm(8)
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        x = F.avg_pool2d(F.silu(self.convolution(x)).add_(1.0), 2)
        return self.last(self.norm(x.flatten(1))).softmax(1)


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        return (x * self.attention(x, x, x)[0]).sum(1)


def dense(kind, inputs, outputs):
    layers = (nn.Linear(inputs, 6), kind(), nn.Linear(6, 6), kind(), nn.Linear(6, outputs))
    return nn.Sequential(*layers), (inputs,)


NETS = {
    **{f"{kind.__name__}, {n} to {m}": dense(kind, n, m) for kind in SMOOTH for n, m in ((4, 2), (2, 4))},
    "image": (Pixels(), (1, 4, 4)),
    "attention": (Attends(), (3, 4)),
    "elementwise": (torch.sin, (3,)),
    "products": (lambda v: torch.einsum("bi,bj->bij", v, v), (3,)),
    "affine": (nn.Linear(3, 2), (3,)),
    "constant": (lambda v: v.new_ones(len(v), 2), (3,)),
}


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("name", NETS)
def test_products_are_those_of_the_hessians(name, gradients):
    net, shape = NETS[name]
    net = seeded(net) if isinstance(net, nn.Module) else net
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, *shape, generator=generator, dtype=torch.float64)
    vectors = torch.randn(2, x[0].numel(), generator=generator, dtype=torch.float64)

    def one(row):
        return net(row.reshape(1, *shape))[0].flatten()

    with torch.set_grad_enabled(gradients):
        value, jacobian, product = hessian_of(net, x)
        found = product(vectors)
    rows = x.flatten(1)
    slopes = torch.stack([torch.func.jacrev(one)(row) for row in rows])
    hessians = torch.stack([torch.func.jacrev(torch.func.jacrev(one))(row) for row in rows])
    assert torch.equal(value, net(x))
    assert torch.allclose(jacobian, slopes, rtol=1e-12, atol=1e-13)
    assert torch.allclose(found, (hessians @ vectors[:, None, :, None]).squeeze(3), rtol=1e-10, atol=1e-13)
    assert not any(each.requires_grad for each in (value, jacobian, found))
    assert torch.equal(product(vectors), found)  # and may be asked again


KINKED = (
    nn.ReLU(),
    nn.ReLU(inplace=True),
    nn.ReLU6(),
    nn.LeakyReLU(),
    nn.PReLU(),
    nn.SELU(),
    nn.Hardtanh(),
    nn.Threshold(0.1, 0.0),
    nn.AdaptiveMaxPool1d(2),
    nn.MaxPool1d(2),
    nn.MaxPool1d(2, return_indices=True),
    torch.relu,
    torch.Tensor.relu,
    lambda v: v.clone().relu_(),
)


@pytest.mark.parametrize("op", KINKED, ids=[str(place) for place in range(len(KINKED))])
def test_a_net_whose_slope_jumps_is_refused(op):
    linear = nn.Linear(4, 4)
    with pytest.raises(NoFormulaError, match=r"kink"):
        hessian_of(lambda v: op(linear(v)), torch.zeros(2, 4))
