import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import sdp_ref as sr
from sdp_bench.bench.experiments.predict import predict
from sdp_bench.bench.identity import OracleKey
from sdp_bench.bench.operations import operations
from sdp_ref.errors import UndefinedError


def test_a_linear_layer_counts_two_operations_for_each_weight_and_example():
    layer = nn.Linear(7, 5, bias=False)
    x = torch.ones(3, 7)
    assert operations(lambda: layer(x)) == 2 * 3 * 7 * 5
    assert operations(lambda: torch.relu(layer(x))) == 2 * 3 * 7 * 5 + 15


def test_the_backward_pass_of_a_linear_layer_is_counted():
    layer = nn.Linear(7, 5, bias=False)
    x = torch.ones(3, 7, requires_grad=True)
    forward = 2 * 3 * 7 * 5
    assert operations(lambda: torch.autograd.grad(layer(x), x, torch.ones(3, 5))) == 2 * forward


def test_a_convolution_counts_its_products():
    convolution = nn.Conv2d(2, 3, 3, padding=1, bias=False)
    image = torch.ones(1, 2, 8, 8)
    assert operations(lambda: convolution(image)) == 2 * (3 * 3 * 2) * (3 * 8 * 8)


def test_a_factorisation_counts_a_third_of_the_cube():
    square = 2 * torch.eye(6)
    assert operations(lambda: torch.linalg.cholesky(square)) == pytest.approx(6**3 / 3, abs=36)


def test_views_and_copies_are_free_and_reductions_count_their_input():
    matrix = torch.ones(4, 6)
    assert operations(lambda: matrix.T.reshape(3, 8).clone()) == 0
    assert operations(lambda: matrix.sum()) == 24


def symmetric(n):
    return torch.eye(n) + torch.ones(n, n)


LINEAR_ALGEBRA = {  # leading terms for n x n matrices and k right sides
    "solve": (lambda a, b: torch.linalg.solve(a, b), lambda n, k: 2 / 3 * n**3 + 2 * n**2 * k),
    "inv": (lambda a, _: torch.linalg.inv(a), lambda n, _: 2 * n**3),
    "det": (lambda a, _: torch.linalg.det(a), lambda n, _: 2 / 3 * n**3),
    "slogdet": (lambda a, _: torch.linalg.slogdet(a), lambda n, _: 2 / 3 * n**3),
    "lu_factor": (lambda a, _: torch.linalg.lu_factor(a), lambda n, _: 2 / 3 * n**3),
    "cholesky": (lambda a, _: torch.linalg.cholesky(a), lambda n, _: n**3 / 3),
    "ldl_factor": (lambda a, _: torch.linalg.ldl_factor(a), lambda n, _: n**3 / 3),
    "cholesky_inverse": (lambda a, _: torch.cholesky_inverse(a), lambda n, _: 2 / 3 * n**3),
    "cholesky_solve": (lambda a, b: torch.cholesky_solve(b, a), lambda n, k: 2 * n**2 * k),
    "solve_triangular": (
        lambda a, b: torch.linalg.solve_triangular(a, b, upper=False),
        lambda n, k: n**2 * k,
    ),
    "geqrf": (lambda a, _: torch.geqrf(a), lambda n, _: 4 / 3 * n**3),
    "lstsq": (lambda a, b: torch.linalg.lstsq(a, b), lambda n, k: 4 / 3 * n**3 + 3 * n**2 * k),
    "svd": (lambda a, _: torch.linalg.svd(a), lambda n, _: 21 * n**3),
    "pinv": (lambda a, _: torch.linalg.pinv(a), lambda n, _: 23 * n**3),
    "pinv, hermitian": (lambda a, _: torch.linalg.pinv(a, hermitian=True), lambda n, _: 11 * n**3),
    "eigh": (lambda a, _: torch.linalg.eigh(a), lambda n, _: 9 * n**3),
    "eig": (lambda a, _: torch.linalg.eig(a), lambda n, _: 25 * n**3),
    "matrix_exp": (lambda a, _: torch.linalg.matrix_exp(a / a.norm()), lambda n, _: 10 * n**3),
    "matrix_power": (lambda a, _: torch.linalg.matrix_power(a, 4), lambda n, _: 4 * n**3),
}


@pytest.mark.parametrize("name", LINEAR_ALGEBRA)
def test_solvers_and_factorisations_count_the_leading_terms(name):
    function, formula = LINEAR_ALGEBRA[name]
    n, k = 40, 7
    counted = operations(lambda: function(symmetric(n), torch.ones(n, k)))
    assert counted == pytest.approx(formula(n, k), abs=8 * n**2)  # a few elementwise operations
    batch = symmetric(n).expand(3, n, n)
    counted = operations(lambda: function(batch, torch.ones(3, n, k)))
    assert counted == pytest.approx(3 * formula(n, k), abs=24 * n**2)


TALL = {  # leading terms for 60 x 5 matrices
    "svd, reduced": (lambda a: torch.linalg.svd(a, full_matrices=False), 6 * 60 * 5**2 + 20 * 5**3),
    "svd": (torch.linalg.svd, 4 * 60**2 * 5 + 22 * 5**3),
    "lu": (torch.linalg.lu, 60 * 5**2 - 5**3 / 3),
    "pinv": (torch.linalg.pinv, 6 * 60 * 5**2 + 20 * 5**3 + 2 * 60 * 5**2),
    "geqrf": (torch.geqrf, 2 * 60 * 5**2 - 2 / 3 * 5**3),
}


@pytest.mark.parametrize("name", TALL)
def test_wide_matrices_count_as_tall_ones(name):
    function, expected = TALL[name]
    tall = torch.randn(60, 5, generator=torch.Generator().manual_seed(0))
    assert operations(lambda: function(tall)) == pytest.approx(expected, abs=60)
    assert operations(lambda: function(tall.mT)) == pytest.approx(expected, abs=60)


PRODUCTS = {
    "mv": (lambda a, b, v, w: a @ v, lambda a, b, v, w: a @ v[:, None]),
    "dot": (lambda a, b, v, w: v @ v, lambda a, b, v, w: v[None] @ v[:, None]),
    "vdot": (lambda a, b, v, w: torch.vdot(v, v), lambda a, b, v, w: v[None] @ v[:, None]),
    "inner": (lambda a, b, v, w: torch.inner(a, v), lambda a, b, v, w: a @ v[:, None]),
    "addmv": (lambda a, b, v, w: torch.addmv(w, a, v), lambda a, b, v, w: a @ v[:, None]),
    "in place": (
        lambda a, b, v, w: torch.zeros(9, 4).addmm_(a, b),
        lambda a, b, v, w: torch.addmm(torch.zeros(9, 4), a, b),
    ),
    "out": (lambda a, b, v, w: torch.mm(a, b, out=torch.empty(9, 4)), lambda a, b, v, w: a @ b),
    "mv, out": (lambda a, b, v, w: torch.mv(a, v, out=torch.empty(9)), lambda a, b, v, w: a @ v),
    "addbmm": (
        lambda a, b, v, w: torch.addbmm(torch.zeros(9, 4), a.expand(3, 9, 6), b.expand(3, 6, 4)),
        lambda a, b, v, w: a.expand(3, 9, 6) @ b.expand(3, 6, 4),
    ),
    "addr": (lambda a, b, v, w: torch.addr(a, w, v), lambda a, b, v, w: a + torch.outer(w, v)),
    "einsum": (lambda a, b, v, w: torch.einsum("ij,jk->ik", a, b), lambda a, b, v, w: a @ b),
    "tensordot": (lambda a, b, v, w: torch.tensordot(a, b, 1), lambda a, b, v, w: a @ b),
    "cdist": (
        lambda a, b, v, w: torch.cdist(a, a),
        lambda a, b, v, w: (a[:, None] - a).norm(dim=-1),
    ),
    "cdist of many": (
        lambda a, b, v, w: torch.cdist(a.repeat(5, 1), a.repeat(5, 1)),
        lambda a, b, v, w: (a.repeat(5, 1)[:, None] - a.repeat(5, 1)).norm(dim=-1),
    ),
    "embedding_bag": (
        lambda a, b, v, w: F.embedding_bag(torch.arange(4)[None], torch.ones(999, 6)),
        lambda a, b, v, w: torch.ones(4, 6).mean(0),
    ),
    "avg_pool2d": (
        lambda a, b, v, w: F.avg_pool2d(a[None, None], 3, 1),
        lambda a, b, v, w: F.unfold(a[None, None], 3).mean(1),
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_function_written_in_two_ways_counts_alike(name):
    first, second = PRODUCTS[name]
    values = torch.ones(9, 6), torch.ones(6, 4), torch.ones(6), torch.ones(9)
    counted = operations(lambda: second(*values))
    copies = {"avg_pool2d": 9 * 4 * 7, "cdist of many": 600}.get(name, 0)  # by unfold, repeat, arange
    assert operations(lambda: first(*values)) == pytest.approx(counted, abs=max(copies, 10))


@pytest.mark.parametrize("name", ["bilinear", "conv_tbc", "fft", "rfft", "embedding"])
def test_other_products_count_the_leading_term(name):
    x = torch.ones(5, 8)
    table = torch.ones(3, 8, 8)
    work, expected = {
        "bilinear": (lambda: F.bilinear(x, x, table), 2 * 5 * 3 * 8 * 8),
        "conv_tbc": (lambda: torch.conv_tbc(x[None], table[:1], torch.ones(8)), 2 * 5 * 8 * 8),
        "fft": (lambda: torch.fft.fft(x.cfloat()), 5 * 40 * math.log2(8)),
        "rfft": (lambda: torch.fft.rfft(x), 2.5 * 40 * math.log2(8)),
        "embedding": (lambda: F.embedding(torch.ones(2).long(), torch.ones(1000, 8)), 16),
    }[name]
    assert operations(work) == pytest.approx(expected, abs=45)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("kind", [nn.Conv1d, nn.ConvTranspose1d])
def test_grouped_and_transposed_convolutions(kind, groups):
    layer = kind(4, 8, 3, groups=groups, bias=False)
    positions = 10 if kind is nn.ConvTranspose1d else 8
    assert operations(lambda: layer(torch.ones(1, 4, 10))) == 2 * 4 * 8 * 3 * positions / groups


def explicit(q, k, v):
    return ((q / math.sqrt(q.shape[-1])) @ k.mT).softmax(-1) @ v


@pytest.mark.parametrize("width", [1, 4, 32])
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("inference", [False, True])
def test_fused_attention_counts_as_products_and_softmax(width, gradient, inference):
    if gradient and inference:
        return
    values = [torch.ones(2, 3, 40, width, requires_grad=gradient) for _ in range(3)]

    def counted(attention):
        def work():
            out = attention(*values)
            if gradient:
                torch.autograd.grad(out, values, out)

        with torch.inference_mode(inference):
            return operations(work)

    assert counted(F.scaled_dot_product_attention) == pytest.approx(counted(explicit), rel=0.1)


def test_attention_that_insists_on_a_fused_kernel():
    values = [torch.ones(2, 3, 40, 32, requires_grad=True) for _ in range(3)]

    def fused():
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            out = F.scaled_dot_product_attention(*values)
        torch.autograd.grad(out, values, out)

    product = 2 * 2 * 3 * 40 * 40 * 32
    assert operations(fused) == pytest.approx((2 + 5) * product, rel=0.1)  # it repeats a product


def test_multi_head_attention_counts_alike_with_and_without_gradients():
    layer, x = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), torch.ones(2, 9, 8)
    with_gradients = operations(lambda: layer(x))
    with torch.no_grad():
        assert operations(lambda: layer(x)) == pytest.approx(with_gradients, rel=0.02)
    assert torch.backends.mha.get_fastpath_enabled()
    products = 2 * 18 * (8 * 24 + 8 * 8 + 2 * 8 * 16) + 2 * 2 * 2 * 9 * 9 * 8
    assert with_gradients == pytest.approx(products, rel=0.3)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}, {"bias": False}])
def test_recurrent_layers_count_their_products(kind, options):
    """Gradients and precision decide whether torch computes an LSTM by a fused kernel."""
    layer, x = kind(6, 10, batch_first=True, **options), torch.ones(3, 5, 6)
    matrices = sum(weight.numel() for name, weight in layer.named_parameters() if name.startswith("weight"))
    counts = [operations(lambda: layer(x))]
    with torch.no_grad():
        counts.append(operations(lambda: layer(x)))
        double = layer.double()
        counts.append(operations(lambda: double(x.double())))
    assert counts == pytest.approx([counts[2]] * 3, rel=0.03)
    assert counts[2] == pytest.approx(2 * 3 * 5 * matrices, rel=0.25)


def test_the_gradient_of_an_lstm_counts_alike_in_both_precisions():
    counts = []
    for dtype in (torch.float32, torch.float64):
        layer, x = nn.LSTM(6, 10).to(dtype), torch.ones(5, 3, 6, dtype=dtype, requires_grad=True)
        counts.append(operations(lambda: layer(x)[0].sum().backward()))  # noqa: B023
    assert counts[0] == pytest.approx(counts[1], rel=0.1)


class Attention(nn.Module):
    def __init__(self, fused):
        super().__init__()
        torch.manual_seed(0)
        self.values, self.out, self.fused = nn.Linear(6, 24), nn.Linear(8, 3), fused

    def forward(self, x):
        q, k, v = self.values(x).chunk(3, -1)
        if self.fused:
            # torch takes a fused kernel only for values with a dimension of heads
            attended = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
        else:
            attended = explicit(q, k, v)
        return self.out(attended.mean(1))


@pytest.mark.parametrize("rule", ["sdp", "unscented", "monte_carlo:samples=50", "divided_difference"])
def test_rules_for_any_net_take_as_many_operations_for_fused_attention(rule):
    x = sr.DiagonalGaussian(torch.ones(1, 12, 6), torch.full((1, 12, 6), 0.01))
    keys = [OracleKey("net", "input", "gaussian:sigma=0.1", "mc", 100)]
    fused = predict(sr.rule(rule), Attention(fused=True), x, keys)[2]()
    products = predict(sr.rule(rule), Attention(fused=False), x, keys)[2]()
    assert fused == pytest.approx(products, rel=0.1)


@torch.library.custom_op("test_operations::mv", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


def test_a_custom_op_counts_its_elements():
    """Its name is that of an op with a formula."""
    assert operations(lambda: doubled(torch.ones(5))) == 5


def test_operations_in_inference_mode():
    layer = nn.Linear(7, 5)
    with torch.inference_mode():
        assert operations(lambda: layer(torch.ones(3, 7))) == 2 * 3 * 7 * 5


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
