import functools
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import sdp_ref as sr
from sdp_bench import oracles
from sdp_bench.oracles.exact.stable import stable
from sdp_bench.oracles.sampling import forward
from sdp_ref.activations import activation
from sdp_ref.laws import Cauchy, DiagonalGaussian, Gaussian, SymmetricStable
from tests.sdp_ref.common import mlp, seeded

MEAN = torch.tensor([[0.3, -1.2, 0.8]])


network = functools.partial(mlp, seed=3, dtype=torch.float32)


def diagonal(dtype=torch.float32):
    return DiagonalGaussian(MEAN.to(dtype), torch.tensor([[0.5, 2.0, 0.0]], dtype=dtype))


@pytest.mark.parametrize("sampler", ["mc", "sobol"])
def test_the_seed_alone_decides_the_normals(sampler):
    first = oracles.standard_normals(150_000, 4, seed=5, sampler=sampler)
    assert first.dtype == torch.float32
    again = oracles.standard_normals(150_000, 4, seed=np.random.SeedSequence(5), sampler=sampler)
    assert torch.equal(first, again)
    other = oracles.standard_normals(150_000, 4, seed=6, sampler=sampler)
    assert float((first == other).float().mean()) < 1e-3


def test_a_seed_sequence_is_not_changed():
    root = np.random.SeedSequence(5)
    first = oracles.standard_normals(100, 2, seed=root)
    assert torch.equal(oracles.standard_normals(100, 2, seed=root), first)
    assert not torch.equal(oracles.standard_normals(100, 2, seed=root.spawn(1)[0]), first)


@pytest.mark.rounding
@pytest.mark.parametrize(
    "law", [diagonal(), Cauchy(MEAN, MEAN.abs()), SymmetricStable(MEAN, MEAN.abs(), 1.5)]
)
def test_a_shorter_draw_begins_a_longer_one(law):
    longer = oracles.sample_outputs(nn.Identity(), law, 150_000, seed=1)
    shorter = oracles.sample_outputs(nn.Identity(), law, 99_999, seed=1)
    assert torch.equal(longer[:99_999], shorter)


@pytest.mark.parametrize("sampler", ["mc", "sobol"])
def test_normals_are_standard_and_blocks_independent(sampler):
    rows = 2**16  # one block of four columns
    z = oracles.standard_normals(4 * rows, 4, seed=7, sampler=sampler).double()
    tolerance = 4 / np.sqrt(len(z))
    assert z.mean(0).abs().max() < tolerance
    assert (z.T @ z / len(z) - torch.eye(4)).abs().max() < tolerance * np.sqrt(2)
    if sampler == "mc":  # scrambles are independent of each other, but the points within one are not
        between = z[:rows].T @ z[rows : 2 * rows] / rows
        assert between.abs().max() < 4.5 / np.sqrt(rows)
    assert stats.kstest(z[:, 0].numpy(), "norm").pvalue > 1e-3


@pytest.mark.parametrize("net", [network(3, 40, 40, 2), lambda inputs: inputs.tanh()], ids=["chain", "any"])
@pytest.mark.parametrize("sampler", ["mc", "sobol"])
def test_threads_do_not_change_the_samples(net, sampler):
    threads = torch.get_num_threads()
    draws = []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            draws.append(oracles.sample_outputs(net, diagonal(), 300_000, seed=2, sampler=sampler))
            assert torch.get_num_threads() == number
    finally:
        torch.set_num_threads(threads)
    for draw in draws[1:]:
        torch.testing.assert_close(draw, draws[0], rtol=1e-5, atol=1e-5)


INNER = nn.Sequential(nn.ReLU(), nn.Linear(3, 9, bias=False), nn.Identity(), nn.Tanh(), nn.Sigmoid())
ODD = seeded(nn.Sequential(nn.Flatten(), INNER, nn.Linear(9, 2), nn.ReLU())).float()
ACTIVATIONS = nn.ReLU(inplace=True), nn.Tanh(), nn.GELU(), nn.Hardtanh()
CHAINS = [network(3, 30, 7, 2, activation=lambda layer=layer: layer) for layer in ACTIVATIONS]


@pytest.mark.parametrize("net", [*CHAINS, ODD])
def test_the_fast_path_gives_what_the_network_gives(net):
    assert isinstance(forward.chunked_forward(net, torch.Size([3])), forward.Chain)
    inputs = oracles.sample_outputs(nn.Identity(), diagonal(), 5000, seed=4)
    found = oracles.sample_outputs(net, diagonal(), 5000, seed=4)
    torch.testing.assert_close(found, net(inputs.clone()).detach(), rtol=1e-5, atol=1e-5)


def test_hooks_are_called():
    net = network(3, 8, 2)
    plain = oracles.sample_outputs(net, diagonal(), 100, seed=1)
    net[2].register_forward_hook(lambda module, inputs, output: output + 10)
    torch.testing.assert_close(oracles.sample_outputs(net, diagonal(), 100, seed=1), plain + 10)


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_of_the_network_is_kept_and_used(training):
    net = nn.Sequential(network(3, 8), nn.Dropout(0.5)).train(training)
    outputs = oracles.sample_outputs(net, diagonal(), 2000, seed=1)
    assert net.training is training
    assert (outputs == 0).any().item() is training
    assert not outputs.requires_grad


@pytest.mark.parametrize(
    ("net_dtype", "law_dtype", "expected"),
    [
        (torch.float32, torch.float32, torch.float32),
        (torch.float64, torch.float32, torch.float64),
        (torch.float32, torch.float64, torch.float32),
        (None, torch.float64, torch.float64),
    ],
)
def test_outputs_have_the_precision_of_the_network(net_dtype, law_dtype, expected):
    net = nn.Identity() if net_dtype is None else network(3, 8, 2).to(net_dtype)
    assert oracles.sample_outputs(net, diagonal(law_dtype), 10, seed=1).dtype == expected


@pytest.mark.rounding
def test_the_stream_is_the_sample_in_pieces():
    net = network(3, 8, 2)
    pieces = list(oracles.stream_outputs(net, diagonal(), 200_000, seed=9))
    assert len(pieces) > 1
    assert torch.equal(torch.cat(pieces), oracles.sample_outputs(net, diagonal(), 200_000, seed=9))


def test_a_stream_may_be_left_early():
    threads = torch.get_num_threads()
    stream = oracles.stream_outputs(network(3, 8, 2), diagonal(), 10**9, seed=9)
    assert len(next(stream)) > 0
    stream.close()  # type: ignore[attr-defined]
    assert torch.get_num_threads() == threads


# VmHWM, since ru_maxrss of a child starts at what its parent used.
PEAK = """
import re
from pathlib import Path
import torch
from sdp_bench import oracles
from sdp_ref import DiagonalGaussian
from torch import nn
net = nn.Sequential(nn.Linear(4, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 3))
x = DiagonalGaussian(torch.zeros(1, 4), torch.ones(1, 4))
bins = oracles.AxisBins.from_samples(oracles.sample_outputs(net, x, 2**16, seed=1))
total = sum(bins.counts(outputs).sum() for outputs in oracles.stream_outputs(net, x, {samples}, seed=2))
assert total == {samples}
print(int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 2**10)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_memory_is_flat_in_the_number_of_samples():
    peaks = []
    for samples in (2**18, 2**21):
        command = [sys.executable, "-c", PEAK.format(samples=samples)]
        peaks.append(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    assert max(peaks) < 1000  # MB; of 2^21 samples, one layer's activations alone would be 840 MB
    assert peaks[1] - peaks[0] < 20


def test_gaussians_have_their_mean_and_covariance():
    factor = torch.tensor([[1.0, 0.0], [0.5, 0.2], [-2.0, 1.0]])  # of rank two: one direction is null
    x = Gaussian(MEAN, (factor @ factor.T)[None])
    draws = oracles.sample_outputs(nn.Identity(), x, 200_000, seed=8).double()
    sds = x.variance.double().sqrt()
    assert ((draws.mean(0) - x.mean[0]).abs() < 4 * sds[0] / len(draws) ** 0.5).all()
    errors = (torch.cov(draws.T) - x.covariance[0]).abs() / (sds.T @ sds)
    assert errors.max() < 4 * np.sqrt(2 / len(draws))
    normal = torch.linalg.cross(factor[:, 0], factor[:, 1]).double()
    assert ((draws - x.mean[0]) @ normal).abs().max() < 1e-4


def test_a_component_without_variance_is_a_point_mass():
    draws = oracles.sample_outputs(nn.Identity(), diagonal(), 1000, seed=8)
    assert (draws[:, 2] == MEAN[0, 2]).all()


def test_cauchy_draws_are_cauchy():
    x = Cauchy(torch.tensor([[1.0, -3.0]]), torch.tensor([[0.5, 4.0]]))
    draws = oracles.sample_outputs(nn.Identity(), x, 50_000, seed=1).numpy()
    assert stats.kstest(draws[:, 0], "cauchy", args=(1.0, 0.5)).pvalue > 1e-3
    assert stats.kstest(draws[:, 1], "cauchy", args=(-3.0, 4.0)).pvalue > 1e-3


@pytest.mark.parametrize("alpha", [0.6, 1.5, 1.9])
def test_stable_draws_have_the_tails_of_their_law(alpha):
    """At fixed points and in the tails, by another computation of the law and by scipy's."""
    x = SymmetricStable(torch.tensor([[1.0]]), torch.tensor([[2.0]]), alpha)
    draws = (oracles.sample_outputs(nn.Identity(), x, 200_000, seed=3).double().numpy() - 1.0) / 2.0
    points = np.array([-20.0, -3.0, -0.5, 0.0, 0.5, 3.0, 20.0, 100.0])
    exact = stable(alpha).survival(points)
    near = points[1:6]
    np.testing.assert_allclose(exact[1:6], stats.levy_stable.sf(near, alpha, 0.0), atol=1e-6)
    observed = (draws > points).mean(0)
    assert (np.abs(observed - exact) < 4 * np.sqrt(exact * (1 - exact) / len(draws))).all()


def test_a_million_cauchy_draws_go_through_a_deep_float32_net():
    """The largest is beyond 10^5 scales, and neither the noise nor a layer overflows."""
    x = Cauchy(MEAN, torch.full_like(MEAN, 100.0))
    largest = oracles.sample_outputs(nn.Identity(), x, 10**6, seed=1).abs().max()
    assert 1e7 < largest < 1e12
    net = network(3, 20, 20, 20, 20, 20, 20, 3)
    outputs = oracles.sample_outputs(net, x, 10**6, seed=1)
    assert outputs.dtype == torch.float32
    assert torch.isfinite(outputs).all()
    double = oracles.sample_outputs(net.double(), x, 10**6, seed=1)
    assert ((outputs - double).norm(dim=1) <= 1e-4 * double.norm(dim=1)).all()


def test_sobol_points_make_cauchy_draws():
    x = Cauchy(torch.tensor([[1.0, -3.0]]), torch.tensor([[0.5, 4.0]]))
    draws = oracles.sample_outputs(nn.Identity(), x, 2**16, seed=1, sampler="sobol").double()
    for column, law in ((0, stats.cauchy(1.0, 0.5)), (1, stats.cauchy(-3.0, 4.0))):
        points = law.ppf([0.001, 0.1, 0.5, 0.7, 0.999])
        observed = (draws[:, column].numpy()[:, None] <= points).mean(0)
        # 16 scrambles of 4096 points, which are even to one point each
        assert np.abs(observed - law.cdf(points)).max() <= 1 / 4096
    assert torch.isfinite(draws).all()


@pytest.mark.parametrize("sampler", ["mc", "sobol"])
def test_the_oracle_has_the_exact_moments_of_one_hidden_layer(sampler):
    net = network(3, 6, 2)
    covariance = torch.tensor([[1.0, 0.4, 0.0], [0.4, 0.5, -0.3], [0.0, -0.3, 2.0]], dtype=torch.float64)
    x = Gaussian(MEAN.double(), covariance[None])
    weight, bias, top, shift = net.parameters()
    weight = weight.detach().double().numpy()
    bias = bias.detach().double().numpy()
    top = top.detach().double().numpy()
    shift = shift.detach().double().numpy()
    hidden_mean = weight @ MEAN[0].double().numpy() + bias
    hidden_covariance = weight @ covariance.numpy() @ weight.T
    relu_mean, relu_covariance = activation("relu").mean_covariance(
        torch.from_numpy(hidden_mean)[None], torch.from_numpy(hidden_covariance)[None]
    )
    mean = top @ relu_mean[0].numpy() + shift
    spread = top @ relu_covariance[0].numpy() @ top.T

    outputs = oracles.sample_outputs(net.double(), x, 2**18, seed=3, sampler=sampler).numpy()
    deviations = outputs - mean
    products = deviations[:, :, None] * deviations[:, None, :]
    error = np.abs(outputs.mean(0) - mean) / (outputs.std(0) / np.sqrt(len(outputs)))
    assert error.max() < 4
    error = np.abs(products.mean(0) - spread) / (products.std(0) / np.sqrt(len(outputs)))
    assert error.max() < 4
    if sampler == "sobol":  # several times nearer than the standard error of plain Monte Carlo
        assert error.max() < 0.5


def test_the_spread_of_scrambles_is_the_standard_error_of_a_sobol_draw():
    net = network(3, 20, 1)
    draws = [
        oracles.sample_outputs(net, diagonal(), 2**13, seed=seed, sampler="sobol").double()
        for seed in range(40)
    ]
    observed = np.var([draw.mean() for draw in draws], ddof=1)
    scrambles = [[part.mean() for part in draw.tensor_split(16)] for draw in draws]
    predicted = np.mean([np.var(means, ddof=1) / 16 for means in scrambles])
    assert abs(observed / predicted - 1) < 3 * np.sqrt(2 / 39)


@pytest.mark.parametrize("samples", [1, 15, 100, pytest.param(2**16 * 16 + 40, marks=pytest.mark.slow)])
def test_any_number_of_sobol_points_can_be_drawn(samples):
    z = oracles.standard_normals(samples, 4, seed=1, sampler="sobol")
    assert z.shape == (samples, 4)
    assert torch.isfinite(z).all()
    assert len(z.unique(dim=0)) == samples


QUANTILES_ONLY = "laws with quantiles only, not a stable law with alpha 1.5"


def constant(value):
    return lambda inputs: torch.full((len(inputs), 2), value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": 10.5}, "samples must be a positive integer"),
        ({"seed": -1}, "seed must be a non-negative integer"),
        ({"sampler": "halton"}, "sampler must be one of mc, sobol"),
        ({"device": "nowhere"}, "device 'nowhere' cannot be used"),
        ({"device": "meta"}, "the network is on cpu and is to run on meta"),
        ({"x": torch.ones(1, 3)}, "x must be a law"),
        ({"x": DiagonalGaussian(torch.ones(2, 3), torch.ones(2, 3))}, "batch 1"),
        ({"x": DiagonalGaussian(torch.ones(1, 5), torch.ones(1, 5))}, "is given 5 inputs"),
        ({"x": SymmetricStable(MEAN, MEAN.abs(), 1.5), "sampler": "sobol"}, QUANTILES_ONLY),
        ({"x": SymmetricStable(MEAN, MEAN.abs(), 0.05)}, "draws too large"),
        ({"net": constant(float("nan"))}, "non-finite outputs"),
        ({"net": lambda inputs: inputs[:, 0]}, r"outputs of shape \(rows, m\)"),
        ({"net": lambda inputs: inputs.argmax(1, keepdim=True)}, "floating-point outputs"),
        ({"net": lambda inputs: (inputs, inputs)}, "must return a tensor, got tuple"),
    ],
)
def test_bad_input_is_named(change, message):
    arguments = {"net": network(3, 8, 2), "x": diagonal(), "samples": 100, "seed": 1} | change
    with pytest.raises(ValueError, match=message):
        oracles.sample_outputs(arguments.pop("net"), arguments.pop("x"), **arguments)


def test_a_stream_checks_its_arguments_before_the_first_piece():
    with pytest.raises(ValueError, match="samples"):
        oracles.stream_outputs(network(3, 8, 2), diagonal(), 0, seed=1)


def test_importing_oracles_does_not_import_the_solvers():
    script = "import sys, oracles; print([m for m in ('ot', 'scipy.stats', 'sklearn') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


TOKENS, WIDTH = 3, 4


class Tokens(nn.Module):
    """An attention layer over tokens, with masks of the user."""

    def __init__(self, padding=None, mask=None, **options):
        super().__init__()
        torch.manual_seed(5)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 6, dropout=0.0, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 3, **options)
        self.head = nn.Linear(WIDTH * TOKENS, 2)
        self.register_buffer("padding", padding)
        self.register_buffer("mask", mask)

    def forward(self, x):
        padding = None if self.padding is None else self.padding.expand(len(x), -1)
        return self.head(self.encoder(x, mask=self.mask, src_key_padding_mask=padding).flatten(1))


LAST = torch.tensor([[False, False, True]])
BIAS = torch.tensor([[0.3, -1.0, 0.0]])


def law(sigma=0.0):
    torch.manual_seed(2)
    mean = torch.randn(1, TOKENS, WIDTH)
    return sr.DiagonalGaussian(mean, torch.full_like(mean, sigma**2))


@pytest.mark.filterwarnings("ignore")  # torch's own about nested tensors
@pytest.mark.parametrize(
    "net", [Tokens(LAST), Tokens(BIAS), Tokens(mask=BIAS.expand(TOKENS, -1))], ids=["hidden", "bias", "mask"]
)
@pytest.mark.parametrize("enabled", [True, False])
def test_attention_is_one_function_whatever_the_setting_of_torch(net, enabled):
    net.eval()
    x = law()
    right = net(x.mean).detach()  # with gradients, as in training
    torch.backends.mha.set_fastpath_enabled(enabled)
    try:
        with torch.no_grad():
            for rule in ("sdp", "unscented", "monte_carlo"):
                torch.testing.assert_close(sr.rule(rule).prepare(net)(x).mean, right)
        samples = oracles.sample_outputs(net, x, 20, seed=0)
        assert torch.backends.mha.get_fastpath_enabled() == enabled
        with pytest.raises(ValueError, match="shape"):
            oracles.sample_outputs(lambda v: net(v)[0], x, 20, seed=0)
        assert torch.backends.mha.get_fastpath_enabled() == enabled
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    torch.testing.assert_close(samples, right.expand(20, -1))


@pytest.mark.parametrize("location", [0.7, 1e6])
@pytest.mark.parametrize(
    "net",
    [
        lambda v: v * v.mean(0),
        lambda v: v.cumsum(0),
        lambda v: v - v.flip(0),
        lambda v: torch.softmax(v, 0),
        lambda v: v / v.norm(),
    ],
    ids=["mean", "cumsum", "flip", "softmax", "norm"],
)
def test_nets_that_couple_rows_are_refused(net, location):
    x = sr.DiagonalGaussian(
        torch.full((1, 2), location, dtype=torch.float64), torch.ones(1, 2, dtype=torch.float64)
    )
    with pytest.raises(ValueError, match="depend on the other rows"):
        oracles.sample_outputs(net, x, 100, seed=0)


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_functions_of_the_mode_of_gradients_are_refused(scale):
    net = lambda v: scale * v * (2.0 if torch.is_grad_enabled() else 3.0)  # noqa: E731
    x = sr.Cauchy(torch.ones(1, 2), torch.ones(1, 2))
    with pytest.raises(ValueError, match="without gradients"):
        oracles.sample_outputs(net, x, 100, seed=0)


def test_chaotic_nets_whose_rounding_depends_on_the_batch_are_served():
    torch.manual_seed(3)
    layers = [nn.Linear(50, 50) for _ in range(15)]
    for layer in layers:
        nn.init.normal_(layer.weight, 0, 6 / 50**0.5)
    net = nn.Sequential(*[part for layer in layers for part in (layer, nn.Tanh())], nn.Linear(50, 3))
    for sigma in (1e-6, 0.1):
        mean = torch.linspace(-1, 1, 50)[None]
        samples = oracles.sample_outputs(
            net, sr.DiagonalGaussian(mean, torch.full_like(mean, sigma**2)), 50, seed=0
        )
        assert samples.isfinite().all()


@pytest.mark.parametrize(
    ("alpha", "law"), [(1.0, stats.cauchy(1.0, 2.0)), (2.0, stats.norm(1.0, 2.0 * math.sqrt(2)))]
)
def test_stable_draws_of_index_one_and_two_are_cauchy_and_normal(alpha, law):
    x = SymmetricStable(torch.tensor([[1.0]]), torch.tensor([[2.0]]), alpha)
    draws = oracles.sample_outputs(nn.Identity(), x, 50_000, seed=1)[:, 0].numpy()
    assert stats.kstest(draws, law.cdf).pvalue > 1e-3


def test_a_network_with_nan_weights_is_refused():
    net = network(3, 8, 2)
    with torch.no_grad():
        net[0].weight[0, 0] = float("nan")
    with pytest.raises(ValueError, match="non-finite outputs"):
        oracles.sample_outputs(net, diagonal(), 100, seed=1)


@pytest.mark.parametrize("law", [diagonal(), Gaussian(MEAN, torch.eye(3)[None])], ids=["diagonal", "full"])
def test_independent_blocks_continue_where_they_stopped(law):
    net = network((3, 5, 2))
    stream = oracles.independent_blocks(net, law, 700, seed=4)
    first, second, third = (next(stream) for _ in range(3))
    assert first.shape == (700, 3)
    assert not torch.equal(first, second)
    later = oracles.independent_blocks(net, law, 700, seed=4, first=2)
    assert torch.equal(next(later), third)
    alone = oracles.sample_outputs(net, law, 700, seed=np.random.SeedSequence(4, spawn_key=(1,)))
    torch.testing.assert_close(second, alone)


def test_independent_blocks_check_their_arguments_at_once():
    with pytest.raises(ValueError, match="rows must be a positive integer"):
        oracles.independent_blocks(nn.Identity(), diagonal(), 0, seed=1)
    law = DiagonalGaussian(torch.zeros(2, 3), torch.ones(2, 3))
    with pytest.raises(ValueError, match="must hold one law"):
        oracles.independent_blocks(nn.Identity(), law, 10, seed=1)
