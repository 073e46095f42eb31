"""Messages about nets that are not finite or not differentiable at an input."""

import pytest
import torch

import sdp_ref as sr

DERIVATIVE = "where the derivative of the net is not finite"
LINEARISING = ("sdp", "marginal_sdp", "second_order", "control_variate:coefficient=jacobian")


def law(mean):
    mean = torch.tensor(mean, dtype=torch.float64)
    return sr.DiagonalGaussian(mean, torch.full_like(mean, 0.01))


def message(net, mean, rule):
    with pytest.raises(ValueError, match="gives no law: its ") as caught:
        sr.propagate(net, law(mean), rule)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("rule", LINEARISING)
@pytest.mark.parametrize(
    ("net", "output"),
    [
        (lambda x: torch.cat([x, (x * x).sum(1, keepdim=True).sqrt()], 1), 2),
        (lambda x: torch.cat([x, x[:, 1:].clamp_min(-1).sqrt()], 1), 2),
        (lambda x: torch.cat([x, x[:, :1] ** 0.25], 1), 2),
        (lambda x: torch.cat([x[:, :1], torch.special.xlogy(x, x)], 1), 1),
    ],
)
def test_an_infinite_derivative_is_named_with_row_and_output(net, output, rule):
    try:
        text = message(net, [[1.0, 2.0], [3.0, 1.0], [0.0, 0.0]], rule)
    except sr.UnsupportedError:
        assert rule == "marginal_sdp"
        return
    assert f"at output {output} of input row 2, {DERIVATIVE}" in text
    assert text.endswith("or use a rule that only calls the net, such as 'unscented'")


@pytest.mark.parametrize("rule", LINEARISING)
def test_a_net_that_gives_nan_is_not_blamed_on_its_derivative(rule):
    text = message(lambda x: (x / x.norm(dim=1, keepdim=True))[:, :, None], [[1.0, 2.0], [0.0, 0.0]], "sdp")
    assert text.endswith("at output 0, 0 of input row 1, where the net itself is not finite")
    text = message(lambda x: torch.cat([x, x.log()], 1), [[1.0, 0.0]], rule)
    assert text.endswith("at output 3 of input row 0, where the net itself is not finite")


def test_a_second_derivative_that_is_not_finite():
    text = message(lambda x: torch.cat([x[:, :1], x[:, 1:] ** 1.25], 1), [[1.0, 0.0]], "second_order")
    assert text.endswith("of input row 0, though the net is finite at the mean")


@pytest.mark.parametrize(
    ("net", "op", "rule"),
    [
        (
            lambda x: torch.cdist(x, torch.eye(2, dtype=x.dtype), p=1),
            "cdist, whose second derivative",
            "second_order",
        ),
        (lambda x: torch.igamma(x, x), "igamma, whose derivative", "sdp"),
    ],
)
def test_an_op_without_a_derivative_is_named(net, op, rule):
    with pytest.raises(
        sr.UnsupportedError, match=f"does not support {op} torch does not have; rules that only call"
    ):
        sr.propagate(net, law([[1.0, 2.0]]), rule)
    assert sr.propagate(net, law([[1.0, 2.0]]), "unscented").mean.isfinite().all()


@pytest.mark.parametrize(
    "spec",
    [
        "unscented:kappa=1e300",
        "unscented:kappa=2e6",
        "unscented:kappa=inf",
        "unscented:kappa=True",
        "unscented:alpha=1e-300",
        "unscented:alpha=0",
        "unscented:alpha=nan",
        "unscented:beta=1e300",
        "divided_difference:step=1e300",
        "divided_difference:step=" + "9" * 30,
        "divided_difference:step=nan",
        "sdp:max_bytes=-1",
        "sdp:max_bytes=much",
        "sdp:max_bytes=nan",
        "sdp:create_graph=2",
        "moment_matching:max_bytes=0",
        "low_rank:max_bytes=True",
        "monte_carlo:samples=" + "9" * 30,
        "control_variate:samples=1e300",
    ],
)
def test_absurd_parameters_are_refused(spec):
    name, _, parameter = spec.partition(":")
    with pytest.raises(ValueError, match=parameter.partition("=")[0]) as caught:
        sr.rule(spec)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "spec",
    [
        "unscented:kappa=1e6",
        "unscented:alpha=1e-6",
        "unscented:alpha=1e-6,beta=1000",
        "divided_difference:step=1000",
    ],
)
def test_extreme_parameters_are_exact_for_an_affine_net(spec):
    net = torch.nn.Linear(2, 2).double()
    x = law([[1.0, -2.0]])
    predicted = sr.propagate(net, x, spec)
    weight = net.weight.detach()
    torch.testing.assert_close(predicted.mean, net(x.mean).detach(), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(predicted.covariance[0], 0.01 * weight @ weight.T, rtol=5e-3, atol=1e-5)
