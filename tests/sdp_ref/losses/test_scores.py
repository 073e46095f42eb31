import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis.extra import numpy as arrays
from scipy import optimize, special, stats
from sklearn.metrics import mean_pinball_loss

import sdp_ref as sr
from sdp_ref import losses
from tests.sdp_ref.common import draw as random


def concentrations_by_hand(mean, variance, c1, c2):
    p = special.softmax(mean, 1)
    deviation = np.sqrt((p**2 * variance).sum(1, keepdims=True))
    return p / (1e-4 + c1 + c2 * deviation)


def test_concentrations_are_those_of_the_published_formula():
    mean, variance = random(5, 4), random(5, 4, seed=1).square()
    start = math.log1p(math.exp(-7))
    for c1, c2 in ((start, start), (0.5, 2.0)):
        expected = concentrations_by_hand(mean.numpy(), variance.numpy(), c1, c2)
        for law in (sr.DiagonalGaussian(mean, variance), sr.Gaussian(mean, torch.diag_embed(variance))):
            assert losses.dirichlet(law, c1, c2).numpy() == pytest.approx(expected, rel=1e-12)
            if c1 == start:
                assert losses.dirichlet(law).numpy() == pytest.approx(expected, rel=1e-12)


def test_the_dirichlet_loss_is_scipys_density_at_the_smoothed_label():
    mean, variance, labels = random(4, 3), random(4, 3, seed=1).square(), torch.tensor([0, 1, 2, 2])
    law = sr.DiagonalGaussian(mean, variance)
    for smoothing in (1e-4, 0.3):
        found = losses.dirichlet_nll(law, labels, 0.1, 0.2, smoothing, "none")
        alpha = concentrations_by_hand(mean.numpy(), variance.numpy(), 0.1, 0.2)
        targets = (1 - smoothing) * np.eye(3)[labels] + smoothing / 3
        expected = [-stats.dirichlet(a).logpdf(t) for a, t in zip(alpha, targets, strict=True)]
        assert found.tolist() == pytest.approx(expected, rel=1e-10)
        mean_loss = losses.dirichlet_nll(law, labels, 0.1, 0.2, smoothing)
        assert mean_loss.item() == pytest.approx(np.mean(expected), rel=1e-10)
    single = losses.dirichlet_nll(law.to(torch.float32), labels, reduction="none")
    double = losses.dirichlet_nll(law.to(torch.float32).to(torch.float64), labels, reduction="none")
    assert torch.allclose(single.double(), double, rtol=1e-6)


@pytest.mark.parametrize("gap", [0.0, 1e2, 1e4, 1e30])
@pytest.mark.parametrize("variance", [0.0, 1e-30, 1.0, 1e30])
def test_the_dirichlet_loss_is_finite_in_float32(gap, variance):
    mean = torch.tensor([[0.0, gap, -gap]], requires_grad=True)
    spread = torch.full((1, 3), variance, requires_grad=True)
    for label in range(3):
        mean.grad = spread.grad = None
        loss = losses.dirichlet_nll(sr.DiagonalGaussian(mean, spread), torch.tensor([label]))
        loss.backward()
        assert torch.isfinite(loss)
        assert torch.isfinite(mean.grad).all()
        assert torch.isfinite(spread.grad).all()


def test_the_dirichlet_constants_can_be_learnt():
    mean, variance = random(2, 3).requires_grad_(), random(2, 3, seed=1).square().requires_grad_()
    constants = torch.tensor(0.3).double().requires_grad_(), torch.tensor(0.2).double().requires_grad_()

    def loss(mean, variance, offset, slope):
        law = sr.DiagonalGaussian(mean, variance)
        return losses.dirichlet_nll(law, torch.tensor([0, 2]), offset, slope)

    assert torch.autograd.gradcheck(loss, (mean, variance, *constants))

    def concentrations(mean, variance, offset, slope):
        return losses.dirichlet(sr.DiagonalGaussian(mean, variance), offset, slope)

    assert torch.autograd.gradcheck(concentrations, (mean, variance, *constants))


weights = arrays.arrays(
    np.float64,
    st.tuples(st.integers(1, 3), st.integers(2, 6)),
    elements=st.floats(0, 1).map(lambda x: x + 1e-3),
)


@given(weights)
def test_entropies_are_scipys_and_bounded(rows):
    p = torch.from_numpy(rows / rows.sum(1, keepdims=True))
    found = losses.entropy(p)
    assert found.tolist() == pytest.approx(stats.entropy(p.numpy(), axis=1).tolist(), rel=1e-12)
    assert ((found >= 0) & (found <= math.log(p.shape[1]) + 1e-12)).all()
    assert losses.softmax_entropy(p.log()).tolist() == pytest.approx(found.tolist(), rel=1e-9)


def test_entropies_of_certain_and_extreme_scores_are_exact_with_finite_gradients():
    for dtype in (torch.float32, torch.float64):
        sure = torch.tensor([[1.0, 0.0, 0.0]], dtype=dtype, requires_grad=True)
        found = losses.entropy(sure)
        found.sum().backward()
        assert found.item() == 0
        assert torch.isfinite(sure.grad).all()
        logits = torch.tensor([[1e4, 0.0, -1e30], [3.0, 3.0, 3.0]], dtype=dtype, requires_grad=True)
        found = losses.softmax_entropy(logits)
        found.sum().backward()
        assert found.tolist() == pytest.approx([0, math.log(3)], rel=1e-6)
        assert torch.isfinite(logits.grad).all()
    # p = exp(-200) rounds to 0 in float32, its part of the entropy, about p (200 + 1), is kept in float64
    tiny = losses.softmax_entropy(torch.tensor([[0.0, -200.0]], dtype=torch.float64)).item()
    assert tiny == pytest.approx(201 * math.exp(-200), rel=1e-6)
    p = torch.softmax(random(3, 4), 1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: losses.entropy(x / x.sum(1, keepdim=True)), (p,))
    assert torch.autograd.gradcheck(losses.softmax_entropy, (random(3, 4).requires_grad_(),))


def in_a_plane(n=50):
    """Features of 5 components that vary in a plane about a point."""
    basis = torch.linalg.qr(random(5, 5, seed=2)).Q
    center = random(5, seed=3)
    return center + random(n, 2, seed=4) @ basis[:, :2].mT, center, basis


def test_certificates_are_orthonormal_and_zero_on_what_they_were_fitted_to():
    features, _, basis = in_a_plane()
    found = losses.OrthonormalCertificates.fit(features, 3)
    identity = torch.eye(3, dtype=torch.float64)
    assert torch.allclose(found.certificates.mT @ found.certificates, identity, atol=1e-12)
    assert found.score(features).max() < 1e-20
    away = features + 2 * basis[:, 3]
    assert torch.allclose(found.score(away), torch.tensor(4.0, dtype=torch.float64), rtol=1e-12, atol=1e-14)
    along = features + 100 * basis[:, 0]
    assert found.score(along).max() < 1e-20
    again = losses.OrthonormalCertificates.fit(features, 3)
    assert torch.equal(again.certificates, found.certificates)
    assert torch.allclose(found.center, features.mean(0))


@pytest.mark.parametrize("penalty", [0.3, 1.0, 30.0])
def test_no_certificates_found_by_descent_are_better(penalty):
    features = random(60, 4) * torch.tensor([2.0, 0.9, 0.4, 0.6]).double() + 1
    k = 2

    def objective(matrix, center):
        error = ((features - center) @ matrix).square().mean()
        return error + penalty * (matrix.mT @ matrix - torch.eye(k)).square().mean()

    def flat(x):
        x = torch.from_numpy(x).requires_grad_()
        loss = objective(x[:8].reshape(4, 2), x[8:])
        return loss.item(), torch.autograd.grad(loss, x)[0].numpy()

    fitted = losses.OrthonormalCertificates.fit(features, k, penalty)
    least = objective(fitted.certificates, fitted.center).item()
    runs = [
        optimize.minimize(flat, random(12, seed=s).numpy(), jac=True, method="BFGS", options={"gtol": 1e-9})
        for s in range(5)
    ]
    best = min(runs, key=lambda run: run.fun)
    assert min(run.fun for run in runs) >= least - 1e-9
    assert best.fun == pytest.approx(least, rel=1e-6)
    descended = losses.OrthonormalCertificates(
        torch.from_numpy(best.x[:8].reshape(4, 2)), torch.from_numpy(best.x[8:])
    )
    points = random(10, 4, seed=9)
    assert torch.allclose(descended.score(points), fitted.score(points), rtol=1e-3, atol=1e-3)


def test_the_pinball_loss_is_sklearns():
    prediction, target = random(50), random(50, seed=1)
    for tau in (0.025, 0.5, 0.9):
        expected = mean_pinball_loss(target, prediction, alpha=tau)
        assert losses.pinball(prediction, target, tau).item() == pytest.approx(expected, rel=1e-12)
    tau = torch.rand(50, generator=torch.Generator().manual_seed(2)).double()
    each = losses.pinball(prediction, target, tau, "none")
    alone = [
        losses.pinball(p[None], y[None], t.item()).item()
        for p, y, t in zip(prediction, target, tau, strict=True)
    ]
    assert each.tolist() == pytest.approx(alone, rel=1e-12)
    assert losses.pinball(prediction, target, tau, "sum").item() == pytest.approx(sum(alone), rel=1e-12)
    at = (prediction.requires_grad_(), target.requires_grad_())
    assert torch.autograd.gradcheck(lambda p, y: losses.pinball(p, y, tau), at)


def test_the_level_is_one_more_feature():
    x = random(3, 2).float()
    wide = losses.sqr_input(x, 0.975)
    assert wide.dtype == torch.float32
    assert torch.equal(wide[:, :2], x)
    assert wide[:, 2].tolist() == pytest.approx([5.7] * 3)
    levels = torch.tensor([0.1, 0.5, 0.9])
    for tau in (levels, levels[:, None]):
        assert losses.sqr_input(x, tau)[:, 2].tolist() == pytest.approx([-4.8, 0.0, 4.8], abs=1e-6)


def test_the_pnn_loss_is_the_normal_density_without_its_constant():
    mean, raw, targets = random(6, 1), 3 * random(6, 1, seed=1), random(6, 1, seed=2)
    for floor in (1e-3, 1e-6):
        variance = np.logaddexp(0, raw.numpy()) + floor
        assert losses.pnn_variance(raw, floor).numpy() == pytest.approx(variance, rel=1e-12)
        expected = -stats.norm.logpdf(targets, mean, np.sqrt(variance)) - math.log(2 * math.pi) / 2
        found = losses.pnn_nll(mean, raw, targets, floor, "none")
        assert found.shape == (6, 1)
        assert found.numpy() == pytest.approx(expected, rel=1e-9)
        assert losses.pnn_nll(mean, raw, targets, floor).item() == pytest.approx(expected.mean(), rel=1e-9)
    at = tuple(x.requires_grad_() for x in (mean, raw, targets))
    assert torch.autograd.gradcheck(losses.pnn_nll, at)


@pytest.mark.rounding
def test_sdp_adds_its_variance_to_that_of_a_pnn():
    torch.manual_seed(0)
    mean_net, raw_net = torch.nn.Linear(4, 2).double(), torch.nn.Linear(4, 2).double()
    x = sr.DiagonalGaussian(random(3, 4), random(3, 4, seed=1).square())
    variance = losses.pnn_variance(raw_net(x.mean), 1e-6).detach()
    law = losses.sdp_pnn(sr.propagate(mean_net, x, "sdp"), variance)
    w = mean_net.weight.detach()
    for b in range(3):
        expected = w @ torch.diag(x.variance[b]) @ w.mT + torch.diag(variance[b])
        assert torch.allclose(law.covariance[b], expected, rtol=1e-12, atol=1e-14)
    assert torch.equal(law.mean, mean_net(x.mean))
    whole = losses.sdp_pnn(sr.propagate(mean_net, x, "sdp"), torch.diag_embed(variance))
    assert torch.equal(whole.covariance, law.covariance)
    marginal = losses.sdp_pnn(sr.propagate(mean_net, x, "marginal_sdp"), variance)
    assert isinstance(marginal, sr.DiagonalGaussian)
    assert torch.allclose(marginal.variance, law.variance, rtol=1e-12, atol=1e-14)


def test_only_the_concentration_depends_on_the_variance():
    mean = random(1, 4)
    totals, entropies = [], []
    for variance in (0.0, 0.1, 10.0, 1e6):
        alpha = losses.dirichlet(sr.DiagonalGaussian(mean, torch.full_like(mean, variance)))
        p = losses.dirichlet_probabilities(alpha)
        assert torch.allclose(p, torch.softmax(mean, 1), rtol=1e-12, atol=1e-14)
        totals.append(alpha.sum().item())
        entropies.append(losses.entropy(p).item())
    assert totals == sorted(totals, reverse=True)
    assert totals[0] == pytest.approx(1 / (1e-4 + math.log1p(math.exp(-7))), rel=1e-12)
    assert entropies == pytest.approx([losses.softmax_entropy(mean).item()] * 4, rel=1e-12)


@pytest.mark.parametrize("tau", [0.025, 0.3, 0.975])
def test_the_minimiser_of_the_pinball_loss_is_the_quantile(tau):
    target = random(1001, seed=5)

    def loss(prediction):
        return losses.pinball(torch.full_like(target, prediction), target, tau).item()

    found = optimize.minimize_scalar(loss, bounds=(-4, 4), method="bounded", options={"xatol": 1e-8})
    below = (target <= found.x + 1e-6).double().mean().item()
    assert below == pytest.approx(tau, abs=2 / 1001)
