import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import sdp_ref as sr
from sdp_ref.graph import ops
from sdp_ref.graph.trace import Step
from sdp_ref.rules import MomentMatching
from tests.sdp_ref.common import draw, full_law, seeded

FULL = ("moment_matching", "dvia")
MARGINAL = ("marginal_sdp", "marginal_moment_matching")


def location(event, batch=2, seed=1):
    return draw(batch, *event, seed=seed)


def scales(event, batch=2, seed=1):
    return location(event, batch, seed + 2).abs() + 0.05


def dense(net, event):
    """Matrix A (m, n) of an affine net, column by column, and its outputs' shape."""
    n = math.prod(event)
    with torch.no_grad():
        at_zero = net(torch.zeros(1, *event, dtype=torch.float64))
        columns = net(torch.eye(n, dtype=torch.float64).reshape(n, *event)) - at_zero
    return columns.flatten(1).mT, at_zero.shape[1:]


def predict(net, x, rule):
    return sr.rule(rule).prepare_steps(net)(x) if isinstance(net, list) else sr.propagate(net, x, rule)


def value(net, x):
    return net[0].module(x) if isinstance(net, list) else net(x)


def assert_affine_op_is_exact(net, event):
    """Every rule and every family against the dense matrix, relative to the largest entry."""
    matrix, out = dense(lambda x: value(net, x), event)

    def close(actual, expected):
        expected = expected.reshape(actual.shape)
        return bool(((actual - expected).abs() <= 1e-12 * (1 + expected.abs().max())).all())

    x, s = full_law(event, batch=2), scales(event)
    independent = sr.DiagonalGaussian(x.mean, s.square())
    with torch.no_grad():
        for rule in FULL:
            y = predict(net, x, rule)
            assert close(y.mean, value(net, x.mean))
            assert close(y.covariance, matrix @ x.covariance @ matrix.mT)
            y = predict(net, independent, rule)
            assert close(y.mean, value(net, x.mean))
            assert close(y.covariance, (matrix * s.square().flatten(1).unsqueeze(1)) @ matrix.mT)
        for rule in MARGINAL:
            y = predict(net, independent, rule)
            assert y.variance.shape == (2, *out)
            assert close(y.mean, value(net, x.mean))
            assert close(y.variance, s.square().flatten(1) @ matrix.square().mT)
        y = predict(net, sr.Cauchy(x.mean, s), "marginal_sdp")
        assert close(y.scale, s.flatten(1) @ matrix.abs().mT)
        for alpha in (0.5, 1.5, 2.0):
            y = predict(net, sr.SymmetricStable(x.mean, s, alpha), "marginal_sdp")
            assert close(y.location, value(net, x.mean))
            powers = (s.flatten(1) ** alpha) @ (matrix.abs() ** alpha).mT
            assert close(y.scale, powers ** (1 / alpha))


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@settings(max_examples=25)
@given(st.data())
def test_convolutions_are_exact(data):
    """Stride, padding, dilation and groups at random, one and two dimensions."""
    dims = data.draw(st.sampled_from([1, 2]))
    groups = data.draw(st.integers(1, 2))
    kernel = tuple(data.draw(st.integers(1, 3)) for _ in range(dims))
    stride = tuple(data.draw(st.integers(1, 2)) for _ in range(dims))
    dilation = tuple(data.draw(st.integers(1, 2)) for _ in range(dims))
    padding = data.draw(
        st.one_of(
            st.tuples(*[st.integers(0, 2)] * dims), st.sampled_from(["valid"] + ["same"] * (max(stride) == 1))
        )
    )
    event = (groups * data.draw(st.integers(1, 2)), *(data.draw(st.integers(5, 6)) for _ in range(dims)))
    kind = nn.Conv1d if dims == 1 else nn.Conv2d
    layer = kind(
        event[0],
        groups * data.draw(st.integers(1, 2)),
        kernel,
        stride,
        padding,
        dilation,
        groups,
        bias=data.draw(st.booleans()),
    )
    assert_affine_op_is_exact(seeded(layer), event)


@settings(max_examples=15)
@given(st.data())
def test_average_pools_are_exact(data):
    dims = data.draw(st.sampled_from([1, 2]))
    event = (2, *(data.draw(st.integers(4, 6)) for _ in range(dims)))
    kind = nn.AvgPool1d if dims == 1 else nn.AvgPool2d
    kernel = data.draw(st.integers(1, 3))
    options = {
        "stride": data.draw(st.integers(1, 3)),
        "padding": data.draw(st.integers(0, kernel // 2)),
        "ceil_mode": data.draw(st.booleans()),
        "count_include_pad": data.draw(st.booleans()),
    }
    if dims == 2 and data.draw(st.booleans()):
        options["divisor_override"] = 5
    assert_affine_op_is_exact(kind(kernel, **options), event)
    adaptive = nn.AdaptiveAvgPool1d if dims == 1 else nn.AdaptiveAvgPool2d
    assert_affine_op_is_exact(adaptive(data.draw(st.integers(1, 5))), event)


@settings(max_examples=15)
@given(st.data())
def test_transposed_convolutions_are_exact(data):
    dims = data.draw(st.integers(1, 3))
    groups = data.draw(st.integers(1, 2))
    stride = data.draw(st.integers(1, 2))
    kind = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[dims - 1]
    event = (
        groups * data.draw(st.integers(1, 2)),
        *(data.draw(st.integers(2, 4 - dims // 2)) for _ in range(dims)),
    )
    layer = kind(
        event[0],
        groups * data.draw(st.integers(1, 2)),
        data.draw(st.integers(2, 3)),
        stride,
        data.draw(st.integers(0, 1)),
        data.draw(st.integers(0, stride - 1)),
        groups,
        bias=data.draw(st.booleans()),
    )
    assert_affine_op_is_exact(seeded(layer), event)


@pytest.mark.parametrize(
    ("net", "event"),
    [
        (nn.Linear(4, 3), (4,)),
        (nn.Linear(4, 3), (2, 4)),
        (nn.BatchNorm1d(4), (4,)),
        (nn.BatchNorm1d(4), (4, 3)),
        (nn.BatchNorm2d(3), (3, 2, 2)),
        (nn.BatchNorm2d(3, affine=False), (3, 2, 2)),
        (nn.AdaptiveAvgPool2d((None, 2)), (2, 3, 5)),
        (nn.Flatten(), (2, 3, 2)),
        (nn.Flatten(2), (2, 3, 2)),
        (nn.Unflatten(1, (2, 3)), (6, 2)),
        (nn.Sequential(nn.Identity(), nn.Dropout(), nn.Dropout2d()), (2, 2, 2)),
        (lambda x: F.pad(x.permute(0, 2, 1)[:, 1:, ::2].transpose(1, 2), (1, 0)), (3, 5)),
        (lambda x: x.unsqueeze(2) + torch.ones(3, 1) + torch.arange(3), (2, 3)),  # copies of components
        (lambda x: x.mean((1, 3)), (2, 3, 4)),
        (lambda x: x.mean(-1, keepdim=True), (2, 3)),
        (lambda x: 2 - x / 3, (4,)),
        (lambda x: x * torch.tensor([1.0, -2.0, 0.0]).double(), (2, 3)),
        (lambda x: -(x + 1) / torch.tensor([[2.0], [4.0]]).double(), (2, 3)),
        (lambda x: x.view(x.size(0), -1), (2, 3)),
        (lambda x: x @ torch.arange(6.0).double().view(2, 3), (4, 2)),
        (lambda x: torch.stack([x, x], -1), (3,)),
    ],
)
def test_affine_ops_are_exact(net, event):
    assert_affine_op_is_exact(seeded(net) if isinstance(net, nn.Module) else net, event)


def one_step(module):
    return [Step(module, (0,), "op")]


def resized(**options):
    return ops.Interpolate(lambda x: F.interpolate(x, **options))


@pytest.mark.parametrize(
    ("module", "event"),
    [
        (nn.Conv3d(2, 4, (2, 1, 2), (1, 2, 1), 1, groups=2), (2, 2, 3, 2)),
        (nn.BatchNorm3d(2), (2, 2, 1, 2)),
        (nn.AvgPool3d(2, 1, 1, count_include_pad=False), (2, 2, 2, 3)),
        (nn.AvgPool3d(2, ceil_mode=True, divisor_override=3), (1, 3, 2, 3)),
        (nn.AdaptiveAvgPool3d((1, 2, None)), (2, 3, 3, 2)),
        (ops.Sum((1, -1)), (2, 3, 2)),
        (ops.Sum((-1,), keepdim=True), (2, 3)),
        (nn.ConstantPad1d((1, -1), 3.0), (2, 3)),
        (nn.ConstantPad2d((1, 0, 2, 1), -2.0), (2, 3, 2)),
        (nn.ZeroPad1d(2), (2, 3)),
        (nn.ReflectionPad2d(1), (2, 3, 2)),
        (nn.ReplicationPad3d(1), (1, 2, 1, 2)),
        (nn.CircularPad2d((1, 0, 1, 1)), (1, 3, 2)),
        (nn.PixelShuffle(2), (4, 2, 1)),
        (nn.PixelUnshuffle(2), (1, 2, 4)),
        (nn.ChannelShuffle(2), (4, 2)),
        (nn.Dropout3d().eval(), (2, 1, 2, 2)),
        (nn.Upsample(scale_factor=2, mode="bilinear"), (2, 2, 3)),
        (resized(size=(5, 4), mode="bilinear", align_corners=True), (2, 3, 3)),
        (resized(size=(3, 7), mode="bicubic"), (1, 5, 4)),
        (resized(size=(2, 2), mode="bilinear", antialias=True), (1, 5, 4)),
        (resized(scale_factor=1.5, mode="linear"), (2, 4)),
        (resized(size=(2, 3, 2), mode="trilinear"), (1, 3, 2, 4)),
        (resized(size=(2, 5), mode="nearest"), (1, 3, 2)),
        (resized(size=(2, 2), mode="area"), (1, 3, 5)),
        (ops.LinearFunction("cumsum", lambda x: x.cumsum(1) + 1), (3, 2)),
        (ops.LinearFunction("fft", lambda x: torch.fft.rfft(x).real), (5,)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else str(value),
)
def test_affine_modules_are_exact(module, event):
    net = module if "ops" in type(module).__module__ else seeded(module)
    assert_affine_op_is_exact(one_step(net), event)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_full_rules_are_exact_for_convolutions_with_other_padding(mode):
    """Full rules are exact; marginal ones take the copies that padding makes for independent."""
    layer, event = seeded(nn.Conv2d(2, 3, 3, stride=2, padding=(1, 2), padding_mode=mode)), (2, 4, 4)
    bare = nn.Conv2d(2, 3, 3, stride=2).double()
    bare.load_state_dict(layer.state_dict())
    pad = ops.Rearrange("pad", lambda x: F.pad(x, (2, 2, 1, 1), mode))
    apart = [Step(pad, (0,), "pad"), Step(bare, (1,), "convolution")]
    matrix, x = dense(layer, event)[0], full_law(event, batch=2)
    for rule in FULL:
        y = sr.propagate(layer, x, rule)
        assert torch.allclose(y.covariance, matrix @ x.covariance @ matrix.mT, rtol=1e-11, atol=1e-12)
    for rule in MARGINAL:
        x = sr.DiagonalGaussian(x.mean, scales(event))
        y, expected = sr.propagate(layer, x, rule), predict(apart, x, rule)
        assert torch.allclose(y.mean, layer(x.mean), rtol=1e-12)
        assert torch.allclose(y.variance, expected.variance, rtol=1e-12)


def test_weights_behind_a_parametrization_are_used():
    layer = nn.utils.parametrizations.weight_norm(seeded(nn.Linear(4, 3)))
    assert_affine_op_is_exact(layer, (4,))


def test_stable_sums_agree_with_gaussian_and_cauchy_ones():
    def net(v):
        return torch.cat([torch.relu(v) + 2 * v, v], 1)

    x, s = location((3,)), scales((3,))
    normal = sr.propagate(net, sr.DiagonalGaussian(x, 2 * s.square()), "marginal_sdp")
    two = sr.propagate(net, sr.SymmetricStable(x, s, 2.0), "marginal_sdp")
    assert torch.allclose(2 * two.scale.square(), normal.variance, rtol=1e-13)
    cauchy = sr.propagate(net, sr.Cauchy(x, s), "marginal_sdp")
    one = sr.propagate(net, sr.SymmetricStable(x, s, 1.0), "marginal_sdp")
    assert torch.allclose(one.scale, cauchy.scale, rtol=1e-13)
    expected = torch.cat([torch.where(x < 0, 0.0, s) + 2 * s, s], 1)
    assert torch.allclose(cauchy.scale, expected, rtol=1e-13)


POOLS = [
    (nn.MaxPool1d(2), (3, 6)),
    (nn.MaxPool2d(3, 2, 1, ceil_mode=True), (2, 5, 6)),
    (nn.MaxPool2d(2, 1, dilation=2), (2, 5, 5)),
    (nn.AdaptiveMaxPool1d(2), (3, 5)),
    (nn.AdaptiveMaxPool2d((2, 3)), (2, 5, 5)),
    (nn.MaxPool3d(2, 1, 1), (2, 3, 2, 2)),
    (nn.AdaptiveMaxPool3d((1, 2, 2)), (2, 3, 2, 3)),
]


@pytest.mark.rounding
@pytest.mark.parametrize(("pool", "event"), POOLS)
def test_max_pools_take_the_component_with_the_largest_mean(pool, event):
    """(mu, sigma) -> (max mu, sigma at the arg max), as the paper's MaxPool section has it."""
    x, s = full_law(event, batch=2), scales(event)
    means, n = x.mean.flatten(1), math.prod(event)
    # Where each output comes from: the place of its value, and no two values are equal.
    places = (pool(x.mean).flatten(1).unsqueeze(2) == means.unsqueeze(1)).double()
    assert bool((places.sum(-1) == 1).all())
    assert places.shape[2] == n
    for rule in FULL:
        y = sr.propagate(pool, x, rule)
        assert torch.equal(y.mean, pool(x.mean))
        assert torch.allclose(y.covariance, places @ x.covariance @ places.mT, rtol=1e-14)
    for rule in MARGINAL:
        y = sr.propagate(pool, sr.DiagonalGaussian(x.mean, s), rule)
        assert torch.equal(y.mean, pool(x.mean))
        assert torch.equal(y.variance.flatten(1), (places @ s.flatten(1).unsqueeze(2)).squeeze(2))
    for law in (sr.Cauchy(x.mean, s), sr.SymmetricStable(x.mean, s, 0.7)):
        y = sr.propagate(pool, law, "marginal_sdp")
        assert torch.equal(y.scale.flatten(1), (places @ s.flatten(1).unsqueeze(2)).squeeze(2))


class Block(nn.Module):
    """A residual block with a shortcut of its own, and ops in place."""

    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride) if (inputs, 1) != (outputs, stride) else None

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += x if self.shortcut is None else self.shortcut(x)
        return F.relu(y)


@pytest.mark.parametrize("rule", [*FULL, *MARGINAL])
def test_gradients_through_a_residual_net_match_finite_differences(rule):
    net = seeded(nn.Sequential(Block(1, 1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1, 2)))
    x, s = location((1, 2, 2), 1).requires_grad_(), scales((1, 2, 2), 1).requires_grad_()

    def outputs(mean, variance, *_):
        y = sr.propagate(net, sr.DiagonalGaussian(mean, variance), rule)
        return y.mean, y.variance

    assert torch.autograd.gradcheck(outputs, (x, s, net[0].conv1.weight))


def test_stable_gradients_are_finite_where_a_scale_is_zero():
    net = seeded(nn.Sequential(nn.Conv1d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(6, 2)))
    s = torch.tensor([[[0.0, 1.0, 0.0, 2.0]]]).double().requires_grad_()
    y = sr.propagate(net, sr.SymmetricStable(location((1, 4), 1), s, 0.6), "marginal_sdp")
    y.scale.sum().backward()
    assert bool(s.grad.isfinite().all())
    assert all(bool(p.grad.isfinite().all()) for p in net.parameters() if p.grad is not None)


@pytest.mark.parametrize(
    ("rule", "net", "event", "words"),
    [
        ("marginal_sdp", nn.BatchNorm2d(2).train(), (2, 3, 3), ["BatchNorm2d", "couple the rows", "eval"]),
        ("dvia", nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.Tanh())), (4,), ["Tanh", "1.0"]),
        ("dvia", nn.BatchNorm1d(4, track_running_stats=False), (4,), ["BatchNorm1d", "batch statistics"]),
        ("marginal_sdp", lambda x: F.batch_norm(x, None, None, training=True), (4,), ["batch statistics"]),
        ("marginal_sdp", nn.AvgPool2d(2), (4, 4), ["AvgPool2d", "3 dimensions"]),
        ("dvia", nn.MaxPool1d(2, return_indices=True), (2, 4), ["does not return one tensor"]),
        ("marginal_sdp", nn.Softmax(), (4,), ["Softmax without a dimension"]),
        ("moment_matching", lambda x: x.permute(1, 0), (2,), ["does not keep the batch"]),
        ("marginal_sdp", lambda x: x + torch.ones(2, 4), (4,), ["batch of 3"]),
        ("dvia", lambda x: x.unsqueeze(1) + x, (4,), ["batches in different places"]),
        ("marginal_sdp", nn.Flatten(-2), (4,), ["batch dimension"]),
    ],
)
def test_what_a_rule_cannot_do_is_named(rule, net, event, words):
    net = net.double() if isinstance(net, nn.Module) else net
    with pytest.raises(sr.UnsupportedError) as caught:
        sr.propagate(net, sr.DiagonalGaussian(location(event), scales(event)), rule)
    for word in (f"rule '{rule}' does not support", *words):
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_users_full_handler_is_used_in_a_chain_and_next_to_a_residual_branch():
    class Mine(MomentMatching):
        name = "mine"

    def slope_of(module, mean):
        return torch.where(mean >= 0, torch.ones_like(mean), (module.lower + module.upper) / 2)

    @Mine.handles(nn.RReLU)
    def rrelu(rule, module, law):
        slope = slope_of(module, law.mean)
        return sr.Gaussian(module(law.mean), slope.unsqueeze(2) * law.covariance * slope.unsqueeze(1))

    x = full_law((4,), batch=2)
    x = sr.Gaussian(x.mean, x.covariance * 1e-18)
    net = nn.Sequential(seeded(nn.Linear(4, 4)), nn.RReLU()).eval()
    y, expected = sr.propagate(net, x, Mine()), sr.propagate(net, x, "sdp")
    assert torch.allclose(y.covariance, expected.covariance, rtol=1e-9, atol=1e-30)

    branch = nn.RReLU().eval()

    def residual(x):
        return x + branch(x)

    with pytest.raises(sr.UnsupportedError, match=r"RReLU next to a residual branch.*mean_derivatives"):
        sr.propagate(residual, x, Mine())

    @Mine.mean_derivatives(nn.RReLU)
    def slope(module, mean, variance):
        return slope_of(module, mean)

    y, expected = sr.propagate(residual, x, Mine()), sr.propagate(residual, x, "sdp")
    assert torch.allclose(y.covariance, expected.covariance, rtol=1e-9, atol=1e-30)


@pytest.mark.parametrize(
    "net",
    [
        lambda x: torch.stack([x[:, 0], x[:, 1] * 2], 1),
        lambda x: torch.relu(x[:, 0]).unsqueeze(1),
        lambda x: x.mean(1).reshape(x.shape[0], 1),
    ],
)
def test_a_value_of_one_number_a_row_is_taken_by_marginal_rules_and_refused_by_full_ones(net):
    x = sr.DiagonalGaussian(torch.tensor([[2.0, 1.0, 3.0, 4.0]]), torch.tensor([[0.5, 0.25, 1.0, 2.0]]))
    truth = sr.propagate(net, x, rule="sdp")
    got = sr.propagate(net, x, rule="marginal_sdp")
    assert torch.allclose(got.mean, truth.mean)
    assert torch.allclose(got.variance, truth.variance)
    with pytest.raises(sr.UnsupportedError, match="one number a row"):
        sr.propagate(net, x, rule="moment_matching")


@pytest.mark.parametrize("padding", [(0, 0, 1, -1), (0, 0, -1, 1)])
def test_padding_that_shifts_the_batch_is_refused(padding):
    net = nn.Sequential(nn.ConstantPad2d(padding, 0.0), nn.Linear(3, 2)).double()
    with pytest.raises(sr.UnsupportedError, match="padding of the batch dimension"):
        sr.propagate(net, full_law((3,), batch=2), rule="moment_matching")


def test_keys_and_values_may_have_different_numbers_of_heads():
    def attend(x):
        return F.scaled_dot_product_attention(x, x[:, :2], 2 * x[:, :1], enable_gqa=True)

    def repeated(x):
        k, v = x[:, :2].repeat_interleave(2, 1), 2 * x[:, :1].repeat_interleave(4, 1)
        return F.scaled_dot_product_attention(x, k, v)

    x = full_law((4, 3, 2), batch=2)
    one = sr.propagate(attend, x, rule="moment_matching")
    two = sr.propagate(repeated, x, rule="moment_matching")
    assert torch.allclose(one.mean, two.mean)
    assert torch.allclose(one.covariance, two.covariance)
