import pytest
import torch
from torch import nn
from torch.nn import functional as F

import sdp_ref as sr
from sdp_ref.activations import activation_of
from sdp_ref.activations.base import Activation
from sdp_ref.activations.pointwise import Apply
from sdp_ref.graph import ops
from sdp_ref.graph.trace import Step
from sdp_ref.rules import LowRank, MarginalSDP, MomentMatching, marginal
from tests.sdp_ref.common import draw, jacobians, run

DOUBLE = torch.float64
HINT = "; fallback=linearise takes it for its derivative at the mean"


def independent(*event, batch=2):
    return sr.DiagonalGaussian(draw(batch, *event), (0.15 + 0.3 * draw(batch, *event, seed=1).abs()).square())


def one(module, count=1):
    return [Step(module, (0,) * count, "op")]


class Bend(nn.Module):
    """An op of one value or two, for handlers of a user's."""

    def forward(self, x, y=0.0):
        return torch.sin(x) + 2 * y


class ForSmall(MarginalSDP):
    """Of a user: its handler takes Gaussian laws alone, and says so by the error that rules raise."""

    name = "for_small"


@ForSmall.handles(Bend)
def _for_small(rule, module, law):
    if not isinstance(law, sr.DiagonalGaussian):
        raise sr.UnsupportedError(rule.name, f"{type(law).__name__} input")
    return law


class Mine(MomentMatching):
    """Of a user: a handler of several values, which is none for a full rule, and no mean derivative."""

    name = "mine"


class Low(LowRank):
    """The same with covariances of low rank, which have no handlers of laws."""

    name = "low"


class Without(MomentMatching):
    name = "without"


@Mine.handles(Bend)
@Low.handles(Bend)
def _mine(rule, module, law):
    return sr.Gaussian(module(law.mean), law.covariance)


@Without.handles(Bend)
def _without(rule, module, law):
    return sr.DiagonalGaussian(law.mean, law.covariance.diagonal(dim1=1, dim2=2))


def residual():
    return [Step(Bend(), (0,), "op"), Step(ops.Add(), (0, 1), "sum")]


def jumping(x):
    return (7 * x).floor() / 7 + x


def rootlike(x):
    return torch.where(x > 0, x.log(), 0.0)


CUMSUM = ops.LinearFunction("cumsum", lambda v: v.cumsum(1))


def running():
    norm = nn.InstanceNorm1d(3, track_running_stats=True).double().eval()
    norm.running_mean += 0.3
    norm.running_var *= 2
    return norm


FAR = sr.DiagonalGaussian(torch.full((1, 1), -1.8).double(), torch.full((1, 1), 1.86).double())
REFUSED = [
    ("marginal_moment_matching", lambda: one(Apply(jumping, text="steps")), (3,), "moments of steps"),
    ("moment_matching", lambda: one(Apply(jumping, text="steps")), (3,), "moments of steps"),
    ("low_rank", lambda: one(Apply(rootlike, (0.0,), "where")), FAR, "the mean derivative of where"),
    ("moment_matching", lambda: one(nn.Tanh()), (3,), "covariances of"),
    (Mine, residual, (3,), "next to a residual branch"),
    (Mine, lambda: one(Bend(), 2), (3,), "Bend of several values"),
    (Low, lambda: one(Bend()), (3,), "a handler of the law of one value"),
    (Without, lambda: one(Bend()), (3,), "returns a DiagonalGaussian"),
    ("low_rank", lambda: one(ops.MatrixProduct(), 2), (2, 2), "matrices of a value with itself"),
    ("marginal_sdp", lambda: one(ops.Interpolate(lambda v: v.mT.cumsum(-1))), (1, 3, 3), "one by one"),
    ("marginal_moment_matching", lambda: one(CUMSUM), (9,), "a matrix of 9 by 9 components"),
    ("marginal_sdp", lambda: one(nn.Softmax(1)), (9,), "a Jacobian of 9 by 9"),
    ("marginal_sdp", lambda: one(running()), (3, 4), "running statistics"),
    ("dvia", lambda: one(running()), (3, 4), "running statistics"),
    ("marginal_moment_matching", lambda: one(ops.Folded(nn.Softplus())), (2, 3), "Softplus"),
    ("moment_matching", lambda: one(nn.MaxPool1d(2)), (4,), "on an event of"),
]


@pytest.mark.parametrize(("kind", "make", "x", "message"), REFUSED)
def test_the_fallback_linearises_what_a_handler_refuses(kind, make, x, message, monkeypatch):
    x = x if isinstance(x, sr.Law) else independent(*x)
    monkeypatch.setattr("sdp_ref.graph.affine._DENSE", 80)
    monkeypatch.setattr(marginal, "_MOST", 80)
    monkeypatch.setattr(type(activation_of(nn.Tanh())), "_covariance", Activation._covariance)

    def rule(**options):
        return sr.rule(kind, **options) if isinstance(kind, str) else kind(**options)

    steps = make()
    with pytest.raises(sr.UnsupportedError, match=message) as caught:
        rule().prepare_steps(steps)(x)
    assert "at 'op' in the net" in str(caught.value)
    assert str(caught.value).endswith(HINT)

    y = rule(fallback="linearise").prepare_steps(steps)(x)
    assert sum("linearised at 'op'" in note for note in y.notes) == (not rule().linear)

    assert torch.allclose(y.mean, run(steps, x.mean), rtol=1e-10, atol=1e-12)
    jacobian = jacobians(lambda v: run(steps, v), x.mean)
    if rule().marginal:
        expected = jacobian.square() @ x.variance.flatten(1).unsqueeze(2)
        assert torch.allclose(y.variance.flatten(1), expected.squeeze(2), rtol=1e-9)
    else:
        expected = jacobian @ x.covariance @ jacobian.mT
        assert torch.allclose(y.covariance, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("steps", "event", "message"),
    [
        (one(nn.Softmax(0)), (3,), "a Softmax over the batch dimension"),
        (one(nn.BatchNorm1d(3).double()), (3,), "batch statistics"),
        (one(nn.InstanceNorm1d(3, track_running_stats=True).double()), (3, 4), "running statistics"),
        (one(nn.Dropout()), (3,), "Dropout in training mode"),
        (one(ops.Unknown("randn_like, which draws random numbers")), (3,), "draws random numbers"),
    ],
)
@pytest.mark.parametrize("rule", ["moment_matching", "marginal_moment_matching", "low_rank"])
def test_what_no_derivative_stands_for_is_refused_whatever_the_fallback(rule, steps, event, message):
    for fallback in ("none", "linearise"):
        for batch in (1, 2):
            with pytest.raises(sr.UnsupportedError, match=message) as caught:
                sr.rule(rule, fallback=fallback).prepare_steps(steps)(independent(*event, batch=batch))
            assert "fallback" not in str(caught.value)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda v: v.sum(0), "a row for each row"),
        (lambda v: v - v.mean(0), "couples the rows of a batch"),
        (lambda v: F.dropout(v, 0.5, True), "dropout in training mode"),
    ],
)
@pytest.mark.parametrize("rule", ["moment_matching", "marginal_sdp"])
def test_unknown_functions_without_a_jacobian_by_rows_are_refused(rule, function, message):
    rule = sr.rule(rule, fallback="linearise")
    with pytest.raises(sr.UnsupportedError, match=message):
        rule.prepare_steps(one(ops.Unknown("unknown", function)))(independent(3))


def test_a_users_handler_that_refuses_a_law_gives_way_to_the_derivative():
    x = sr.Cauchy(draw(1, 3), torch.rand(1, 3, dtype=DOUBLE))
    with pytest.raises(sr.UnsupportedError, match=f"'for_small' does not support Cauchy input{HINT}"):
        sr.propagate(Bend(), x, ForSmall())
    y = ForSmall(fallback="linearise").prepare_steps(one(Bend()))(x)
    assert torch.allclose(y.scale, x.scale * x.location.cos().abs(), rtol=1e-12)


@pytest.mark.parametrize("rule", ["moment_matching", "marginal_moment_matching", "low_rank"])
def test_of_a_batch_only_the_laws_are_linearised_that_have_to_be(rule):
    x = sr.DiagonalGaussian(torch.tensor([[0.51], [0.0], [-0.4]]).double(), torch.full((3, 1), 1e-6).double())
    steps = one(Apply(lambda v: (7 * v).round() / 7 + torch.sin(v), text="steps"))
    wide = sr.DiagonalGaussian(x.mean, torch.tensor([[1e-6], [0.5], [1e-6]]).double())
    rule = sr.rule(rule, fallback="linearise").prepare_steps(steps)
    whole, alone = rule(wide), [rule(wide[row]) for row in range(3)]
    said = "steps linearised at 'op'"
    assert [said in each.notes for each in alone] == [False, True, False]
    for row, each in enumerate(alone):
        assert torch.equal(whole.mean[row : row + 1], each.mean)
        assert torch.equal(whole.variance[row : row + 1], each.variance)
    assert said in whole.notes


def test_several_refusals_of_one_net_are_all_linearised_and_the_others_are_not():
    steps = [
        Step(nn.ReLU(), (0,), "first"),
        Step(Apply(jumping, text="steps"), (1,), "second"),
        Step(nn.Sigmoid(), (2,), "third"),
        Step(Apply(jumping, text="steps"), (3,), "fourth"),
    ]
    x = independent(2)
    y = sr.rule("marginal_moment_matching:fallback=linearise").prepare_steps(steps)(x)
    assert y.notes == ("steps linearised at 'second'", "steps linearised at 'fourth'")
    first = sr.rule("marginal_moment_matching").prepare_steps(steps[:1])(x)
    second = sr.DiagonalGaussian(jumping(first.mean), first.variance)
    third = sr.rule("marginal_moment_matching").prepare_steps(one(nn.Sigmoid()))(second)
    assert torch.allclose(y.variance, third.variance, rtol=1e-12)
    again = sr.rule("marginal_moment_matching:fallback=linearise").prepare_steps(steps)
    assert torch.equal(again(x).variance, y.variance)
