import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import sdp_ref as sr
from sdp_ref.activations import ELEMENTWISE, activation_of
from sdp_ref.graph.ops import MatrixProduct, Multiply
from sdp_ref.rules import MomentMatching
from sdp_ref.rules.joint import elementwise_input
from sdp_ref.rules.joint_ops import product_step

DOUBLE = torch.float64
PLENTY = 4096


class FirstOrder(MomentMatching):
    """Moment matching whose covariances through a non-linearity are E[f'(X)] E[f'(Y)] Cov(X, Y)."""

    name = "first_order"


@FirstOrder.prepares(*ELEMENTWISE)
def _first_order(_rule, module):
    activation = activation_of(module)

    def propagate(law):
        mean, covariance = elementwise_input(law)
        variance = covariance.diagonal(dim1=1, dim2=2)
        out, own = activation.mean_variance(mean, variance)
        slope = activation.mean_derivative(mean, variance)
        covariance = slope.unsqueeze(2) * covariance * slope.unsqueeze(1)
        covariance = covariance + torch.diag_embed(own - covariance.diagonal(dim1=1, dim2=2))
        return sr.Gaussian(out.reshape(law.mean.shape), covariance)

    return propagate


@FirstOrder.prepares(Multiply, MatrixProduct)
def _first_order_product(_rule, module):
    step = product_step(module)
    exact = step.corrected_moments

    def completed(joint, inputs, mean, covariance):
        mean, full = exact(joint, inputs, mean, covariance)
        return mean, covariance + torch.diag_embed((full - covariance).diagonal(dim1=1, dim2=2))

    step.corrected_moments = completed
    return step


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.down = nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(3, 4, 3, stride=2)
        self.norm, self.conv = nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = self.down(torch.relu(self.stem(x)))
        x = torch.relu(x + self.conv(F.gelu(self.norm(x))))
        return self.head(F.max_pool2d(x, 2, 1).mean((2, 3)))


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.gate, self.last = nn.Linear(4, 6), nn.Linear(4, 6), nn.Linear(12, 3)

    def forward(self, x):
        y = self.first(x) * torch.sigmoid(self.gate(x))
        z = torch.cat([y, y * y], 1)
        left, right = z[:, :6].reshape(-1, 2, 3), z[:, 6:].reshape(-1, 3, 2)
        return self.last(z) + (left @ right).flatten(1)[:, :3]


def mlp():
    return nn.Sequential(nn.Linear(4, 20), nn.ReLU(), nn.Linear(20, 15), nn.GELU(), nn.Linear(15, 3))


NETS = {
    "mlp": (mlp, (4,)),
    "residual": (Residual, (2, 6, 6)),
    "gated": (Gated, (4,)),
    "norms": (
        lambda: nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 3), nn.Softmax(1)),
        (4,),
    ),
    "pools": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 2), nn.ReLU(), nn.AvgPool2d(2, 1), nn.Flatten(), nn.Linear(18, 3)
        ),
        (1, 5, 5),
    ),
}


def net_and_law(name, *, batch=2, seed=0, dtype=DOUBLE):
    torch.manual_seed(seed)
    make, event = NETS[name]
    net = make().to(dtype).eval()
    mean, variance = torch.randn(batch, *event, dtype=dtype), 0.3 * torch.rand(batch, *event, dtype=dtype)
    return net, sr.DiagonalGaussian(mean, variance)


def low_rank(net, law, columns=PLENTY, **options):
    return sr.propagate(net, law, sr.rule("low_rank", columns=columns, **options))


def relative(a, b):
    return ((a - b).norm() / b.norm()).item()


@pytest.mark.parametrize("name", NETS)
def test_with_columns_enough_it_is_moment_matching_with_that_covariance_of_non_linearities(name):
    net, law = net_and_law(name)
    for x in (law, sr.Gaussian(law.mean, law.covariance + 0.01)):
        exact, found = sr.propagate(net, x, FirstOrder()), low_rank(net, x)
        assert torch.allclose(found.mean, exact.mean, rtol=1e-11, atol=1e-12)
        assert relative(found.covariance, exact.covariance) < 1e-10
        assert found.dropped.max() < 1e-12


@given(st.integers(1, 30), st.integers(0, 9))
@settings(max_examples=15)
def test_variances_of_an_affine_map_are_exact_with_any_number_of_columns(columns, seed):
    torch.manual_seed(seed)
    net = nn.Conv2d(2, 3, 3, padding=1).double()
    law = sr.DiagonalGaussian(torch.randn(2, 2, 4, 4, dtype=DOUBLE), torch.rand(2, 2, 4, 4, dtype=DOUBLE))
    exact = sr.propagate(net, law, "marginal_moment_matching")
    found = low_rank(net, law, columns)
    assert torch.allclose(found.variance, exact.variance, rtol=1e-12)


@pytest.mark.parametrize("columns", [1, 2, 4])
def test_what_one_compression_dropped_is_the_error_of_the_covariance(columns):
    torch.manual_seed(0)
    net = nn.Linear(9, 7).double()
    law = sr.DiagonalGaussian(torch.zeros(3, 9, dtype=DOUBLE), torch.rand(3, 9, dtype=DOUBLE))
    exact, found = sr.propagate(net, law, "sdp").covariance, low_rank(net, law, columns)
    error = (found.covariance - exact).flatten(1).norm(dim=1) / exact.flatten(1).norm(dim=1)
    assert torch.allclose(found.dropped, error, rtol=1e-9)
    assert error.min() > 0.05


def test_of_many_components_it_is_estimated():
    torch.manual_seed(0)
    net = nn.Linear(60, 50).double()
    law = sr.DiagonalGaussian(torch.zeros(4, 60, dtype=DOUBLE), torch.rand(4, 60, dtype=DOUBLE))
    exact, found = sr.propagate(net, law, "sdp").covariance, low_rank(net, law, 5)
    error = (found.covariance - exact).flatten(1).norm(dim=1) / exact.flatten(1).norm(dim=1)
    assert torch.allclose(found.dropped, error, rtol=0.3)


def test_rows_of_a_batch_and_batches_cut_by_memory_do_not_matter():
    net, law = net_and_law("residual", batch=4)
    whole = low_rank(net, law, 20)
    alone = low_rank(net, law[2], 20)
    assert torch.allclose(whole.covariance[2:3], alone.covariance, rtol=1e-9, atol=1e-14)
    assert torch.allclose(whole.dropped[2:3], alone.dropped, rtol=1e-9)
    cut = low_rank(net, law, 20, max_bytes=300_000)
    assert torch.allclose(cut.covariance, whole.covariance, rtol=1e-9, atol=1e-14)
    assert cut.notes == whole.notes
    assert cut.notes[0] == "covariances compressed to 20 columns"


def test_a_computation_beyond_the_memory_limit_is_refused_with_a_remedy():
    net, law = net_and_law("residual", batch=1)
    with pytest.raises(sr.CovarianceSizeError, match=r"'stem' in the net.*fewer columns") as error:
        low_rank(net, law, max_bytes=1000)
    assert error.value.bytes > 1000
    with pytest.raises(sr.CovarianceSizeError, match="'low_rank' carries covariances as factors"):
        sr.propagate(net, law, sr.rule("moment_matching", max_bytes=1000))


@pytest.mark.parametrize(
    "net",
    [
        lambda x: 1 / x,
        lambda x: torch.where(x.flip(1) > 0, x, -x),  # one of the two values has no derivative
        lambda x: (3 * x).floor(),
    ],
)
def test_ops_on_independent_components_are_linearised_as_by_moment_matching(net):
    law = sr.DiagonalGaussian(torch.tensor([[1.1, -2.1, 0.7]]).double(), torch.full((1, 3), 0.01).double())
    exact = sr.propagate(net, law, sr.rule("moment_matching", fallback="linearise"))
    got = low_rank(net, law, fallback="linearise")
    assert torch.allclose(got.mean, exact.mean, rtol=1e-12)
    assert torch.allclose(got.covariance, exact.covariance, rtol=1e-12, atol=1e-15)


class Ending(nn.Module):
    def __init__(self, op):
        super().__init__()
        self.left, self.right, self.op = nn.Linear(5, 12), nn.Linear(5, 12), op

    def forward(self, x):
        return self.op(self.left(x), self.right(x))


OPS = {
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "maximum, one for all": lambda a, b: torch.maximum(a, b[:, :1]),
    "maximum of halves": lambda a, _: torch.maximum(a[:, :6], a[:, 6:]),
    "lengths": lambda a, _: torch.linalg.vector_norm(a.reshape(-1, 3, 4), dim=-1),
    "lengths across": lambda a, _: torch.linalg.vector_norm(a.reshape(-1, 3, 4), dim=1, keepdim=True),
}


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
@pytest.mark.parametrize("columns", [2, PLENTY])
def test_of_a_last_op_means_and_variances_are_those_of_moment_matching(op, columns):
    torch.manual_seed(0)
    net = Ending(op).to(DOUBLE)
    factor = torch.randn(3, 5, 2, dtype=DOUBLE)  # of rank two, which two columns hold
    x = sr.Gaussian(torch.randn(3, 5, dtype=DOUBLE), factor @ factor.mT)
    own = sr.rule(f"low_rank:columns={columns}").propagate(net, x)
    full = sr.rule("moment_matching").propagate(net, x)
    torch.testing.assert_close(own.mean, full.mean, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(own.variance, full.variance, rtol=1e-8, atol=1e-9)


EVEN = {
    "abs": (torch.abs, 1.1),
    "square": (torch.square, 1 + 1e-9),
    "product": (lambda x: x * x, 1 + 1e-9),
    "cos": (torch.cos, 1.1),
    "relu": (torch.relu, 1.2),
}


class Hidden(nn.Module):
    def __init__(self, function, units=32):
        super().__init__()
        self.layer, self.function = nn.Linear(8, units, bias=False), function

    def forward(self, x):
        return self.function(self.layer(x))


def hidden_law(function, units=32, at=0.0, columns=128):
    torch.manual_seed(0)
    net = Hidden(function, units).to(DOUBLE)
    x = sr.DiagonalGaussian(torch.full((2, 8), at, dtype=DOUBLE), torch.ones(2, 8, dtype=DOUBLE))
    return low_rank(net, x, columns), sr.propagate(net, x, "moment_matching")


@pytest.mark.parametrize("at", [0.0, 1.0])
@pytest.mark.parametrize("name", EVEN)
def test_the_remainder_beyond_first_order_is_reported(name, at):
    function, most = EVEN[name]
    found, exact = hidden_law(function, at=at)
    missing = (found.covariance - exact.covariance).flatten(1).norm(dim=1)
    share = missing / exact.covariance.flatten(1).norm(dim=1)
    assert found.beyond.min() > 0.1
    if at == 0.0:  # beside the first order there is nothing that could cancel
        assert bool((share <= found.beyond * (1 + 1e-9)).all())
        assert bool((found.beyond <= most * share).all())
    assert torch.allclose(found.beyond, share, rtol=0.25)
    assert torch.allclose(found.variance, exact.variance, rtol=1e-9)
    assert [n.split(" at ")[0].split(" ", 1)[1] for n in found.notes] == ["with covariances of first order"]


def test_the_remainder_beyond_first_order_is_estimated_for_many_units():
    found, exact = hidden_law(torch.abs, units=600, columns=1000)
    missing = (found.covariance - exact.covariance).flatten(1).norm(dim=1)
    share = missing / exact.covariance.flatten(1).norm(dim=1)
    assert torch.allclose(found.beyond, share, rtol=0.05)


def test_nothing_lies_beyond_the_first_order_of_independent_units_or_affine_nets():
    x = sr.DiagonalGaussian(torch.zeros(2, 3, dtype=DOUBLE), torch.ones(2, 3, dtype=DOUBLE))
    assert low_rank(torch.abs, x).beyond.abs().max() == 0
    assert low_rank(nn.Linear(3, 4).double(), x).beyond.abs().max() == 0


@pytest.mark.parametrize("variance", [1e-200, 1e-40, 1e40, 1e160])
def test_the_remainder_beyond_first_order_has_no_unit(variance):
    net = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU()).double()

    def share(scale):
        x = sr.DiagonalGaussian(torch.zeros(1, 4).double(), torch.full((1, 4), scale, dtype=torch.float64))
        return sr.propagate(net, x, "low_rank").beyond

    assert share(1.0) > 0.1
    assert torch.allclose(share(variance), share(1.0))


@pytest.mark.parametrize("mode", ["replicate", "reflect", "circular"])
@pytest.mark.parametrize(
    ("kind", "options", "event"),
    [
        (torch.nn.Conv1d, {"kernel_size": 5, "padding": 2}, (2, 3)),
        (torch.nn.Conv2d, {"kernel_size": 3, "padding": 1, "stride": 2, "groups": 2}, (2, 4, 5)),
        (torch.nn.Conv2d, {"kernel_size": 3, "padding": 2, "dilation": 2}, (2, 3, 4)),
        (torch.nn.Conv3d, {"kernel_size": 2, "padding": 1}, (2, 2, 2, 3)),
    ],
)
def test_copies_by_padding_are_one_component(mode, kind, options, event):
    """Against A diag(v) A^T, with A from the images of a basis."""
    torch.manual_seed(6)
    net = torch.nn.Sequential(kind(2, 4, padding_mode=mode, **options), torch.nn.Flatten()).double()
    basis = torch.eye(torch.Size(event).numel(), dtype=torch.float64).reshape(-1, *event)
    matrix = (net(basis) - net(0 * basis)).detach().mT
    variance = torch.rand(1, *event, dtype=torch.float64) * torch.logspace(
        -6, 6, event[-1], dtype=torch.float64
    )
    x = sr.DiagonalGaussian(torch.randn(1, *event, dtype=torch.float64), variance)
    expected = matrix @ torch.diag(variance.flatten()) @ matrix.mT
    for columns in (1, 7, 500):
        law = sr.propagate(net, x, f"low_rank:columns={columns}")
        torch.testing.assert_close(law.variance[0], expected.diagonal(), rtol=1e-10, atol=0)
    torch.testing.assert_close(law.covariance[0], expected, rtol=1e-9, atol=1e-9 * expected.max().item())
