import math

import hypothesis.strategies as st
import mpmath
import numpy as np
import pytest
import torch
from hypothesis import assume, given

import sdp_ref as sr
from sdp_ref import losses
from sdp_ref.laws import unchecked

LOG_HALF = -math.log(2)


def rows(*values, dtype=torch.float64):
    return torch.tensor([list(values)], dtype=dtype)


def gaussian_reference(gap, variance):
    """log Phi(z) and its derivatives by gap and variance, to 50 digits."""
    with mpmath.workdps(50):
        gap, variance = mpmath.mpf(gap), mpmath.mpf(variance)
        z = gap / mpmath.sqrt(variance)
        log = mpmath.log(mpmath.erfc(-z / mpmath.sqrt(2)) / 2)
        ratio = mpmath.npdf(z) / mpmath.exp(log)
        return float(log), float(ratio / mpmath.sqrt(variance)), float(-ratio * z / (2 * variance))


def cauchy_reference(gap, width):
    with mpmath.workdps(50):
        gap, width = mpmath.mpf(gap), mpmath.mpf(width)
        p = mpmath.atan2(width, -gap) / mpmath.pi
        slope = 1 / (mpmath.pi * (gap**2 + width**2)) / p
        return float(mpmath.log(p)), float(slope * width), float(-slope * gap)


def compared(law_of, reference, gap, spread, dtype, rtol):
    """log P(X_0 > X_1) and its gradient for spreads `spread` and 0 against the reference."""
    location = rows(gap, 0.0, dtype=dtype).requires_grad_()
    width = rows(spread, 0.0, dtype=dtype).requires_grad_()
    value = losses.pairwise_log_probabilities(law_of(location, width))[0, 0, 1]
    value.backward()
    bound = torch.finfo(dtype).max * 2.0**-32  # where gradients saturate
    exact = np.clip(reference(location[0, 0].item(), width[0, 0].item()), -bound, bound)
    assert (value.item(), location.grad[0, 0].item(), width.grad[0, 0].item()) == pytest.approx(
        exact.tolist(), rel=rtol, abs=1e-300 if dtype == torch.float64 else 1e-44
    )
    assert location.grad[0, 1].item() == -location.grad[0, 0].item()
    return value.item()


GAPS = (-1e4, -300.0, -40.0, -8.0, -1.0, -1e-6, 0.0, 1e-6, 1.0, 5.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spread", [1e-30, 1e-9, 1.0, 1e9, 1e30])
def test_log_probabilities_and_gradients_are_exact_to_1e_6(spread, dtype):
    for z in GAPS:
        compared(sr.DiagonalGaussian, gaussian_reference, z * math.sqrt(spread), spread, dtype, 1e-6)
        compared(sr.Cauchy, cauchy_reference, z * spread, spread, dtype, 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", [sr.Gaussian, sr.DiagonalGaussian, sr.Cauchy])
def test_point_masses_have_the_limit_and_finite_gradients(family, dtype):
    location = rows(1.0, 0.0, 0.0, dtype=dtype).requires_grad_()
    shape = (1, 3, 3) if family is sr.Gaussian else (1, 3)
    spread = torch.zeros(shape, dtype=dtype, requires_grad=True)
    law = family(location, spread)
    logs = losses.pairwise_log_probabilities(law)
    probabilities = losses.pairwise_probabilities(law)[0]
    expected = [[0.5, 1.0, 1.0], [0.0, 0.5, 0.5], [0.0, 0.5, 0.5]]
    assert torch.allclose(probabilities, torch.tensor(expected, dtype=dtype), atol=1e-12)
    assert logs[0, 0, 1].item() == pytest.approx(0.0, abs=1e-12)
    assert logs[0, 1, 2].item() == pytest.approx(LOG_HALF, rel=1e-6)
    assert logs[0, 1, 0].item() < -300
    if dtype == torch.float32:
        assert logs[0, 1, 0].item() >= -8e28
    for label in range(3):
        location.grad = spread.grad = None
        loss = losses.pairwise_loss(law, torch.tensor([label]))
        loss.backward(retain_graph=True)
        assert torch.isfinite(loss)
        assert torch.isfinite(location.grad).all()
        assert torch.isfinite(spread.grad).all()
    losses.pairwise_log_probabilities(law).sum().backward()
    assert torch.isfinite(location.grad).all()


@pytest.mark.parametrize("family", [sr.DiagonalGaussian, sr.Cauchy])
def test_a_saturated_loss_still_says_where_to_go(family):
    location = rows(0.0, 1.0, dtype=torch.float32).requires_grad_()
    law = family(location, torch.zeros(1, 2))
    losses.pairwise_loss(law, torch.tensor([0])).backward()
    assert location.grad[0, 0] < 0 < location.grad[0, 1]


def test_a_gradient_that_float32_cannot_hold_saturates_and_the_value_is_exact():
    mean = rows(-1e-11, 0.0, dtype=torch.float32).requires_grad_()
    variance = rows(1e-30, 0.0, dtype=torch.float32).requires_grad_()
    loss = losses.pairwise_loss(sr.DiagonalGaussian(mean, variance), torch.tensor([0]))
    loss.backward()
    exact = [-x for x in gaussian_reference(mean[0, 0].item(), variance[0, 0].item())]
    assert loss.item() == pytest.approx(exact[0], rel=1e-6)
    assert mean.grad[0, 0].item() == pytest.approx(exact[1], rel=1e-6)
    assert exact[2] < -1e37
    assert variance.grad[0, 0].item() == pytest.approx(-(2.0**96), rel=1e-6)


def test_a_difference_without_variance_counts_as_one_of_rounding_size():
    for dtype in (torch.float32, torch.float64):
        eps = torch.finfo(dtype).eps
        covariance = torch.ones(1, 2, 2, dtype=dtype).requires_grad_()
        mean = rows(0.0, 1.0, dtype=dtype)
        log = losses.pairwise_log_probabilities(sr.Gaussian(mean, covariance))[0, 0, 1]
        assert log.item() == pytest.approx(gaussian_reference(-1.0, 2 * eps)[0], rel=1e-6)
        log.backward()
        assert torch.isfinite(covariance.grad).all()
        above = torch.ones(1, 2, 2, dtype=dtype)
        above[0, 0, 1] = above[0, 1, 0] = 1 + eps  # a variance of the difference that is negative by rounding
        law = unchecked(sr.Gaussian, mean, above)
        assert losses.pairwise_log_probabilities(law)[0, 0, 1].item() == log.item()


number = st.floats(-5, 5, allow_nan=False).map(lambda x: round(x, 4))


@st.composite
def laws(draw, families=("gaussian", "diagonal", "cauchy"), equal=False):
    m = draw(st.integers(2, 5))
    location = torch.tensor([draw(st.lists(number, min_size=m, max_size=m))], dtype=torch.float64)
    width = st.floats(0.1, 3.0).map(lambda x: round(x, 4))
    spread = [draw(width)] * m if equal else draw(st.lists(width, min_size=m, max_size=m))
    spread = torch.tensor([spread], dtype=torch.float64)
    family = draw(st.sampled_from(families))
    if family == "cauchy":
        return sr.Cauchy(location, spread)
    if family == "diagonal":
        return sr.DiagonalGaussian(location, spread)
    factor = draw(st.lists(number, min_size=m * m, max_size=m * m))
    factor = torch.tensor(factor, dtype=torch.float64).reshape(1, m, m)
    return sr.Gaussian(location, factor @ factor.mT + torch.diag_embed(spread))


def changed(law, location=lambda x: x, spread=lambda x: x, covariance=lambda x: x):
    if isinstance(law, sr.Gaussian):
        return sr.Gaussian(location(law.mean), covariance(law.covariance))
    if isinstance(law, sr.DiagonalGaussian):
        return sr.DiagonalGaussian(location(law.mean), covariance(law.variance))
    return sr.Cauchy(location(law.location), spread(law.scale))


@given(laws())
def test_the_probabilities_of_a_pair_sum_to_one(law):
    p = losses.pairwise_probabilities(law)
    assert torch.allclose(p + p.mT, torch.ones_like(p), atol=1e-14)
    assert (p.diagonal(dim1=1, dim2=2) == 0.5).all()
    logs = losses.pairwise_log_probabilities(law)
    assert torch.allclose(logs.exp(), p, rtol=1e-14, atol=1e-14)
    assert (logs <= 0).all()


@given(laws(), st.floats(-100, 100))
def test_a_common_shift_changes_nothing(law, shift):
    moved = changed(law, location=lambda x: x + shift)
    before = losses.pairwise_log_probabilities(law)
    after = losses.pairwise_log_probabilities(moved)
    assert torch.allclose(before, after, rtol=1e-9, atol=1e-11)


@given(laws(), st.integers(-60, 60))
def test_a_common_scale_changes_nothing(law, exponent):
    k = 2.0**exponent
    scaled = changed(law, lambda x: k * x, lambda x: k * x, lambda x: k * k * x)
    before = losses.pairwise_log_probabilities(law)
    after = losses.pairwise_log_probabilities(scaled)
    assert torch.allclose(before, after, rtol=1e-13, atol=1e-15)


@given(laws(), st.randoms(use_true_random=False))
def test_classes_can_be_permuted(law, random):
    order = list(range(law.dimension))
    random.shuffle(order)

    def square(c):
        return c[:, order][:, :, order] if c.ndim == 3 else c[:, order]

    permuted = changed(law, lambda x: x[:, order], lambda x: x[:, order], square)
    assert torch.allclose(
        losses.pairwise_probabilities(permuted), square(losses.pairwise_probabilities(law)), rtol=1e-12
    )
    for combine in ("mean", "geometric", "minimum"):
        scores = losses.pairwise_scores(law, combine)[:, order]
        assert torch.allclose(losses.pairwise_scores(permuted, combine), scores, rtol=1e-9)
    labels = torch.tensor([0])
    moved = losses.pairwise_loss(law, torch.tensor([order[0]]))
    assert losses.pairwise_loss(permuted, labels).item() == pytest.approx(moved.item(), rel=1e-12)


@given(laws())
def test_the_loss_is_the_mean_of_the_true_row(law):
    logs = losses.pairwise_log_probabilities(law)[0]
    m = law.dimension
    for y in range(m):
        expected = -sum(logs[y, j].item() for j in range(m) if j != y) / (m - 1)
        loss = losses.pairwise_loss(law, torch.tensor([y]))
        assert loss.item() == pytest.approx(expected, rel=1e-12)


@given(laws())
def test_scores_are_probabilities_and_their_entropy_is_bounded(law):
    for combine in ("mean", "geometric", "minimum"):
        scores = losses.pairwise_scores(law, combine)
        assert scores.sum().item() == pytest.approx(1, abs=1e-12)
        assert (scores >= 0).all()
        assert -1e-12 <= losses.entropy(scores).item() <= math.log(law.dimension) + 1e-12
    mean = losses.pairwise_scores(law)
    assert mean.max().item() <= 2 / law.dimension + 1e-12


def clear(law):
    first, second = law.location[0].topk(2).values
    return first - second > 1e-3


def winner(law):
    """The class that beats all others, where the largest location is not nearly a tie."""
    top = law.location[0].topk(2)
    beats = losses.pairwise_probabilities(law)[0] > 0.5
    (found,) = (i for i in range(law.dimension) if all(beats[i, j] for j in range(law.dimension) if j != i))
    assert found == top.indices[0]
    return found


@given(laws())
def test_the_minimum_ranks_the_class_first_that_beats_all_others(law):
    assume(clear(law))
    assert losses.pairwise_scores(law, "minimum").argmax().item() == winner(law)


@given(laws())
def test_two_classes_are_scored_by_their_probability(law):

    def first_two(x):
        return x[:, :2]

    def covariance_of_first_two(covariance):
        return covariance[:, :2, :2] if covariance.ndim == 3 else covariance[:, :2]

    two = changed(law, first_two, first_two, covariance_of_first_two)
    p = losses.pairwise_probabilities(two)[0]
    for combine in ("mean", "geometric", "minimum"):
        assert losses.pairwise_scores(two, combine)[0].tolist() == pytest.approx(
            [p[0, 1].item(), p[1, 0].item()], rel=1e-12
        )


def test_the_mean_can_rank_a_surer_class_above_the_one_that_beats_all_others():
    law = sr.DiagonalGaussian(rows(0.1, 0.0, -5.0, -5.0), rows(1e4, 1e-2, 1e-2, 1e-2))
    assert winner(law) == 0
    assert losses.pairwise_scores(law, "mean").argmax().item() == 1
    assert losses.pairwise_scores(law, "geometric").argmax().item() == 1
    assert losses.pairwise_scores(law, "minimum").argmax().item() == 0


def inputs(family):
    generator = torch.Generator().manual_seed(1)
    location = torch.randn(2, 4, generator=generator, dtype=torch.float64)
    other = torch.randn(2, 4, 4, generator=generator, dtype=torch.float64)
    width = other[:, 0].square() + 0.1

    def law(location, parameter):
        return family(location, parameter @ parameter.mT if family is sr.Gaussian else parameter)

    return law, (location.requires_grad_(), (other if family is sr.Gaussian else width).requires_grad_())


@pytest.mark.parametrize("family", [sr.Gaussian, sr.DiagonalGaussian, sr.Cauchy])
def test_gradients_of_pairwise_losses_match_finite_differences(family):
    law, at = inputs(family)
    labels = torch.tensor([1, 3])
    for reduction in ("mean", "sum", "none"):
        assert torch.autograd.gradcheck(lambda *p, r=reduction: losses.pairwise_loss(law(*p), labels, r), at)
    assert torch.autograd.gradgradcheck(lambda *p: losses.pairwise_loss(law(*p), labels), at)
    assert torch.autograd.gradcheck(lambda *p: losses.pairwise_log_probabilities(law(*p)), at)
    for combine in ("mean", "geometric", "minimum"):
        assert torch.autograd.gradcheck(lambda *p, c=combine: losses.pairwise_scores(law(*p), c), at)


def test_the_covariance_of_two_scores_counts():
    """The variance of the difference is 2 + 1 - 2 * 0.5 with it, and 2 + 1 without."""
    covariance = torch.tensor([[[2.0, 0.5], [0.5, 1.0]]], dtype=torch.float64)
    law = sr.Gaussian(rows(-1.0, 0.5), covariance)
    log = losses.pairwise_log_probabilities(law)[0, 0, 1].item()
    assert log == pytest.approx(gaussian_reference(-1.5, 2.0)[0], rel=1e-12)
    independent = sr.DiagonalGaussian(law.mean, law.variance)
    log = losses.pairwise_log_probabilities(independent)[0, 0, 1].item()
    assert log == pytest.approx(gaussian_reference(-1.5, 3.0)[0], rel=1e-12)


@given(laws())
def test_a_probability_is_above_one_half_for_the_larger_location(law):
    logs, location = losses.pairwise_log_probabilities(law), law.location
    gap = location.unsqueeze(2) - location.unsqueeze(1)
    assert ((logs > LOG_HALF + 1e-12) == (gap > 0))[gap.abs() > 1e-5].all()


@given(laws(), st.floats(0.01, 10))
def test_the_loss_falls_as_the_true_class_moves_up(law, step):
    up = torch.zeros_like(law.location)
    up[0, 0] = step
    label = torch.tensor([0])
    after = losses.pairwise_loss(changed(law, lambda x: x + up), label)
    assert after < losses.pairwise_loss(law, label)


def test_certain_classes_are_ranked_and_tied_ones_share_the_score():
    certain = sr.DiagonalGaussian(rows(3.0, 2.0, 1.0), rows(0.0, 0.0, 0.0))
    assert losses.pairwise_scores(certain)[0].tolist() == pytest.approx([2 / 3, 1 / 3, 0.0])
    for combine in ("geometric", "minimum"):
        assert losses.pairwise_scores(certain, combine)[0].tolist() == pytest.approx([1.0, 0.0, 0.0])
    tied = sr.Cauchy(rows(1.0, 1.0, 1.0), rows(1.0, 2.0, 3.0))
    for combine in ("mean", "geometric", "minimum"):
        assert losses.pairwise_scores(tied, combine)[0].tolist() == pytest.approx([1 / 3] * 3)
