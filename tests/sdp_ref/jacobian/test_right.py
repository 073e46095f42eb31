"""The derivative at a kink is the one from the right, in every rule and every form of an op."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import sdp_ref as sr
from sdp_ref.activations import ACTIVATIONS, activation
from sdp_ref.activations.pointwise import Apply, Quadrature
from sdp_ref.jacobian.jacobian import jacobian_of

RULES = ("sdp", "sdp:create_graph=True", "marginal_sdp", "split:base=sdp,k=1")


def in_place(function):
    """A function that overwrites its argument, applied to a value inside a net."""
    return lambda x: function(2 * x)


def where_negative_is_zero(x):
    y = x + 0
    y[y < 0] = 0
    return y


def number(value):
    return torch.tensor(value, dtype=torch.float64)


def zeros(*shape):
    return torch.zeros(*shape, dtype=torch.float64)


FORMS = {
    "F.relu": (F.relu, 0),
    "Tensor.relu": (lambda x: x.relu(), 0),
    "Tensor.relu_": (in_place(lambda x: x.relu_()), 0),
    "aten.relu": (torch.ops.aten.relu, 0),
    "F.leaky_relu": (lambda x: F.leaky_relu(x, 0.3), 0),
    "F.relu6": (F.relu6, 6),
    "F.relu6 in place": (in_place(lambda x: F.relu6(x, inplace=True)), 0),
    "nn.ReLU6 in place": (in_place(nn.ReLU6(inplace=True)), 3),
    "F.hardtanh": (lambda x: F.hardtanh(x, -3, 2), -3),
    "F.hardtanh by name": (lambda x: F.hardtanh(x, min_val=-3, max_val=2), 2),
    "F.hardtanh_": (in_place(lambda x: F.hardtanh_(x, -1, 4)), 2),
    "F.hardswish": (F.hardswish, 3),
    "F.hardswish on the left": (F.hardswish, -3),
    "F.hardsigmoid": (F.hardsigmoid, 3),
    "F.softshrink": (lambda x: F.softshrink(x, 1.5), 1.5),
    "F.softshrink by name": (lambda x: F.softshrink(x, lambd=1.5), -1.5),
    "torch.hardshrink": (lambda x: torch.hardshrink(x, 2), 2),
    "Tensor.hardshrink": (lambda x: x.hardshrink(2), -2),
    "F.threshold": (lambda x: F.threshold(x, 1, 1), 1),
    "F.threshold_": (in_place(lambda x: F.threshold_(x, 1, -2)), 0.5),
    "F.prelu": (lambda x: F.prelu(x, number([0.7])), 0),
    "Tensor.prelu": (lambda x: x.prelu(number([0.7])), 0),
    "F.elu": (lambda x: F.elu(x, 3), 0),
    "F.elu_": (in_place(lambda x: F.elu_(x, 3)), 0),
    "F.celu": (lambda x: F.celu(x, 3), 0),
    "torch.selu": (torch.selu, 0),
    "torch.selu_": (in_place(torch.selu_), 0),
    "F.softsign": (F.softsign, 0),
    "abs": (abs, 0),
    "torch.absolute": (torch.absolute, 0),
    "Tensor.abs": (lambda x: x.abs(), 0),
    "Tensor.abs_": (in_place(lambda x: x.abs_()), 0),
    "torch.clamp": (lambda x: torch.clamp(x, -2, 3), -2),
    "torch.clip": (lambda x: torch.clip(x, max=3), 3),
    "Tensor.clamp": (lambda x: x.clamp(min=0.5), 0.5),
    "Tensor.clamp_": (in_place(lambda x: x.clamp_(max=1)), 0.5),
    "Tensor.clamp_min": (lambda x: x.clamp_min(2), 2),
    "torch.clamp_max": (lambda x: torch.clamp_max(x, 2), 2),
    "clamp by tensors": (lambda x: x.clamp(zeros(1), 2 + zeros(1)), 2),
    "clamp by a tensor": (lambda x: torch.clamp(x, min=zeros(1)), 0),
    "maximum": (lambda x: torch.maximum(x, 1 + zeros(1)), 1),
    "maximum, constant first": (lambda x: torch.maximum(1 + zeros(1), x), 1),
    "max of two": (lambda x: torch.max(x, number(0.0)), 0),
    "Tensor.max": (lambda x: x.max(other=number(0.0)), 0),
    "minimum": (lambda x: torch.minimum(x, 1 + zeros(1)), 1),
    "Tensor.min": (lambda x: x.min(number(1.0)), 1),
    "fmax": (lambda x: torch.fmax(x, zeros(1)), 0),
    "maximum of functions of one value": (lambda x: torch.maximum(-x, 3 * x), 0),
    "minimum of functions of one value": (lambda x: torch.minimum(x / 3, x), 0),
    "where": (lambda x: torch.where(x > 2, 3 * x - 4, x), 2),
    "where, not above": (lambda x: torch.where(x <= 0, x / 5, x), 0),
    "where, below 0 after a change of sign": (lambda x: torch.where(-x < 0, x, x / 5), 0),
    "where, constant first": (lambda x: torch.where(x > 0, x, x / 5), 0),
    "where with a jump": (lambda x: torch.where(x > 0, 3 * x + 1, x), 0),
    "product with a comparison": (lambda x: x * (x > 0), 0),
    "product with a converted comparison": (lambda x: x * (x > 0).to(x), 0),
    "product with the sign": (lambda x: x * x.sign(), 0),
    "product with sgn": (lambda x: torch.sgn(x) * x, 0),
    "masked_fill": (lambda x: x.masked_fill(x < 0, 0), 0),
    "mean with its size": (lambda x: 0.5 * x + 0.5 * x.abs(), 0),
    "Apply with a kink": (Apply(lambda x: torch.where(x > 0, x, -2 * x), [0.0]), 0),
}
NO_MARGINAL = ("mean with its size",)  # it drops the correlation of a value with itself


def right_quotient(net, at):
    """Slope between two points on the right of `at`."""
    h = 2.0**-20
    with torch.no_grad():
        first = net(torch.full((1, 1), at + h, dtype=torch.float64))
        second = net(torch.full((1, 1), at + 2 * h, dtype=torch.float64))
    return float((second - first) / h)


def slope(net, at, rule, inputs=1):
    """Size of the derivative that a rule uses for each component."""
    mean = torch.full((2, inputs), float(at), dtype=torch.float64)
    mean[1] += 0.37  # another row is away from the kink
    law = sr.DiagonalGaussian(mean, torch.full_like(mean, 2.0**-60))
    variance = sr.propagate(net, law, rule).variance.detach()
    return float(variance[0, 0].sqrt()) * 2.0**30


CASES = [
    (form, rule) for form in FORMS for rule in RULES if rule != "marginal_sdp" or form not in NO_MARGINAL
]


@pytest.mark.parametrize(("form", "rule"), CASES)
def test_the_derivative_of_every_form_is_that_from_the_right(form, rule):
    net, at = FORMS[form]
    assert slope(net, at, rule) == pytest.approx(abs(right_quotient(net, at)), abs=1e-5)


def corners_of(kind):
    """Places where an activation or its derivative jumps."""
    corners = set(kind.kinks)
    if isinstance(kind, Quadrature):
        corners |= set(kind.corners)
    return sorted(corners)


KINKED = [(name, corner) for name in ACTIVATIONS for corner in corners_of(activation(name))]


@pytest.mark.parametrize(("name", "corner"), KINKED)
def test_the_derivative_of_an_activation_at_a_corner_is_that_from_the_right(name, corner):
    kind = activation(name)
    module = kind.build().double()
    right = right_quotient(module, corner)
    at = torch.full((1, 1), corner, dtype=torch.float64)
    assert float(kind.derivative(at)) == pytest.approx(right, abs=1e-5)
    for rule in RULES:
        assert slope(module, corner, rule) == pytest.approx(abs(right), abs=1e-5)


def test_rrelu_in_evaluation_mode_has_slope_one_at_zero():
    net = nn.RReLU(0.2, 0.4).eval()
    assert slope(net, 0, "sdp") == pytest.approx(1, abs=1e-9)
    assert slope(net, 0, "marginal_sdp:fallback=linearise") == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("form", ["F.elu", "F.relu6", "torch.clamp", "abs", "maximum", "where", "F.prelu"])
def test_forward_mode_takes_the_derivative_from_the_right(form):
    """A net with fewer inputs than outputs is differentiated column by column."""
    function, at = FORMS[form]
    weight = torch.tensor([[1.0, -2.0, 3.0]], dtype=torch.float64)
    net = lambda x: function(x.expand(-1, 2))[:, :1] @ weight  # noqa: E731
    _, jacobian = jacobian_of(net, torch.full((2, 1), float(at), dtype=torch.float64))
    expected = right_quotient(lambda x: function(x.expand(-1, 2))[:, :1], at) * weight[0]
    assert jacobian[0, :, 0].numpy() == pytest.approx(expected.numpy(), abs=1e-5)


@pytest.mark.parametrize("form", ["F.elu", "abs", "torch.clamp", "maximum", "where"])
def test_second_order_has_the_same_slope(form):
    function, at = FORMS[form]
    assert slope(function, at, "second_order") == pytest.approx(abs(right_quotient(function, at)), abs=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_derivatives_from_the_right_exist_in_other_dtypes(dtype):
    x = torch.tensor([[0.0, 6.0, -3.0]], dtype=dtype)
    _, jacobian = jacobian_of(lambda v: F.relu6(v) + F.hardtanh(v, -3, 9), x)
    assert jacobian[0].diagonal().tolist() == [2, 1, 1]


@pytest.mark.parametrize(
    "layer", [nn.ReLU6(), nn.Hardtanh(0, 9), nn.ELU(), nn.Threshold(0, 0), Apply(torch.relu)]
)
def test_a_net_without_biases_keeps_its_scale_at_0(layer):
    torch.manual_seed(5)
    first, last = nn.Linear(3, 16, bias=False), nn.Linear(16, 2)
    x = sr.DiagonalGaussian(torch.zeros(1, 3), torch.tensor([[0.04, 0.01, 0.09]]))
    with torch.no_grad():
        matrix = (last.weight @ first.weight).double()
    expected = matrix @ torch.diag(x.variance[0].double()) @ matrix.mT
    covariance = sr.propagate(nn.Sequential(first, layer, last), x, "sdp").covariance[0]
    assert covariance.numpy() == pytest.approx(expected.numpy(), rel=1e-5)


def test_values_at_jumps_do_not_change():
    net = lambda x: torch.cat([torch.where(x > 0, x + 1, x), x.sign(), x * (x >= 0)], 1)  # noqa: E731
    x = torch.zeros(1, 2, dtype=torch.float64)
    value, _ = jacobian_of(net, x)
    assert torch.equal(value, net(x))


class Surrogate(torch.autograd.Function):
    """A step with the slope of a line, as in spiking nets."""

    @staticmethod
    def forward(context, x):
        return (x > 0).to(x)

    @staticmethod
    def backward(context, gradient):
        return 0.3 * gradient


class LeftRelu(torch.autograd.Function):
    """ReLU, with derivative 0 at 0."""

    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(context, gradient):
        return gradient * (context.saved_tensors[0] > 0)


def test_a_custom_function_follows_its_own_derivative():
    x = torch.zeros(1, 2, dtype=torch.float64)
    for function, expected in ((Surrogate, 0.3), (LeftRelu, 0.0)):
        _, jacobian = jacobian_of(lambda v, function=function: function.apply(v), x)
        assert jacobian[0].diagonal().tolist() == [expected] * 2
    # also next to a comparison in the net
    _, jacobian = jacobian_of(lambda v: LeftRelu.apply(v) + torch.where(v > 0, v, 0 * v), x)
    assert jacobian[0].diagonal().tolist() == [0, 0]


def test_a_straight_through_estimator_keeps_its_slope():
    _, jacobian = jacobian_of(lambda v: v + (v.sign() - v).detach(), torch.zeros(1, 2))
    assert torch.equal(jacobian[0], torch.eye(2))


def test_of_tied_values_the_first_is_the_larger_one():
    """The first value moves to the right: it is the larger one in a tie."""
    x = torch.tensor([[0.7, 0.7]], dtype=torch.float64)
    first, second = (lambda v: v[:, :1]), (lambda v: v[:, 1:])
    for net, expected in (
        (lambda v: torch.maximum(first(v), second(v)), [1, 0]),
        (lambda v: torch.max(second(v), first(v)), [0, 1]),
        (lambda v: torch.minimum(first(v), second(v)), [0, 1]),
        (lambda v: F.max_pool1d(v.unsqueeze(1), 2).flatten(1), [1, 0]),
    ):
        _, jacobian = jacobian_of(net, x)
        assert jacobian[0, 0].tolist() == expected
        law = sr.DiagonalGaussian(x, torch.tensor([[0.04, 0.09]], dtype=torch.float64))
        variance = [0.04, 0.09][expected.index(1)]
        for rule in ("sdp", "marginal_sdp"):
            assert float(sr.propagate(net, law, rule).variance) == pytest.approx(variance)


def test_gradients_of_weights_are_those_of_torch():
    """Only functions of the input are changed, not those of weights with exact zeros."""
    weight = torch.tensor([[0.0, 2.0]], dtype=torch.float64, requires_grad=True)
    x = sr.DiagonalGaussian(*torch.ones(2, 1, 2, dtype=torch.float64))
    law = sr.propagate(lambda v: F.linear(v, weight.abs()), x, sr.rule("sdp", create_graph=True))
    law.location.sum().backward()
    assert weight.grad.tolist() == [[0, 1]]


def test_gradients_pass_a_kink():
    """The variance at a kink is differentiable with respect to the weights before and after it."""
    scale = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    x = sr.DiagonalGaussian(zeros(1, 1), 0.25 + zeros(1, 1))
    for function in (F.relu6, abs, lambda v: torch.where(v > 0, v, v / 2)):
        law = sr.propagate(lambda v, f=function: f(scale * v), x, sr.rule("sdp", create_graph=True))
        (gradient,) = torch.autograd.grad(law.variance.sum(), scale)
        assert float(law.variance.detach()) == pytest.approx(0.25 * 9)
        assert float(gradient) == pytest.approx(0.25 * 2 * 3)


def test_an_untraceable_net_has_derivatives_from_the_right_of_its_functions():
    def net(x):
        return F.hardtanh(x, 0, 5) if float(x.detach().sum()) < 9 else x

    _, jacobian = jacobian_of(net, zeros(1, 2))
    assert jacobian[0].diagonal().tolist() == [1, 1]


def test_infinite_values_do_not_spread():
    mask = torch.tensor([[0.0, -math.inf]], dtype=torch.float64)
    _, jacobian = jacobian_of(lambda x: F.relu6(x + mask), torch.zeros(1, 2, dtype=torch.float64))
    assert jacobian[0].tolist() == [[1, 0], [0, 0]]


@pytest.mark.parametrize(
    "function", [F.relu, F.relu6, F.hardswish, lambda x: F.leaky_relu(x, 0.1), torch.tanh]
)
def test_a_checkpoint_has_the_derivative_of_the_function(function):
    """torch.utils.checkpoint runs its function again while the derivative is computed."""
    torch.manual_seed(2)
    first, last = nn.Linear(3, 8, dtype=torch.float64), nn.Linear(8, 2, dtype=torch.float64)
    x = sr.DiagonalGaussian(
        torch.randn(2, 3, dtype=torch.float64), torch.full((2, 3), 0.1, dtype=torch.float64)
    )

    def plain(v):
        return last(function(first(v)))

    def with_checkpoint(v):
        return last(checkpoint(function, first(v), use_reentrant=False))

    for rule in ("sdp", "control_variate:samples=64,coefficient=jacobian", "split:base=sdp,k=3"):
        law = sr.propagate(with_checkpoint, x, rule)
        right = sr.propagate(plain, x, rule)
        torch.testing.assert_close(law.variance, right.variance, rtol=1e-12, atol=0)


def test_a_relu_in_a_checkpoint_keeps_the_scale_at_zero_only():
    x = sr.DiagonalGaussian(torch.tensor([[-1.0, 0.0, 0.5]]), torch.ones(1, 3))
    law = sr.propagate(lambda v: checkpoint(F.relu, v, use_reentrant=False), x, "sdp")
    assert law.variance.tolist() == [[0, 1, 1]]
