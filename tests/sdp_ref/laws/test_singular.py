import pytest
import torch

import sdp_ref as sr
from sdp_bench import oracles

DTYPES = [torch.float32, torch.float64]


def singular(scales, rank, dtype):
    """Covariance of rank `rank` with these standard deviations, and loadings A with covariance A A^T."""
    angles = 0.3 + 1.1 * torch.arange(len(scales), dtype=torch.float64)
    loadings = torch.stack([angles.cos(), angles.sin()], 1)[:, :rank]
    loadings = (
        loadings / loadings.norm(dim=1, keepdim=True) * torch.tensor(scales, dtype=torch.float64)[:, None]
    )
    return (loadings @ loadings.mT)[None].to(dtype), loadings


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize(
    "scales", [[1, 1, 1, 1], [3e-9, 2.0, 5e7, 1e-3], [1e12, 1e-6, 1e-6, 1e12], [1e-15, 1e-15, 2e-15, 1e-15]]
)
def test_draws_keep_the_relations_between_components(scales, rank, dtype):
    covariance, loadings = singular(scales, rank, dtype)
    law = sr.Gaussian(torch.zeros(1, 4, dtype=dtype), covariance)
    factor = law.factor()[0]
    size = torch.tensor(scales, dtype=torch.float64)
    digits = 100 * torch.finfo(dtype).eps
    assert ((factor @ factor.mT - loadings @ loadings.mT).abs() <= digits * size * size[:, None]).all()
    # components in units of their standard deviations lie in the span of the loadings
    span = torch.linalg.svd(loadings / size[:, None])[0][:, :rank]
    units = factor / size[:, None]
    assert (units - span @ (span.mT @ units)).abs().max() < digits
    assert torch.linalg.matrix_rank(units, atol=digits) == rank
    with pytest.raises(sr.UndefinedError, match="singular"):
        law.log_prob(torch.zeros(1, 4))


def test_thin_directions_that_can_be_stored_are_kept():
    for dtype, thin in ((torch.float32, 3e-3), (torch.float64, 1e-6)):
        turn = torch.linalg.qr(
            torch.randn(3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        )[0]
        covariance = ((turn * torch.tensor([1.0, 0.1, thin]) ** 2) @ turn.mT)[None].to(dtype)
        factor = sr.Gaussian(torch.zeros(1, 3, dtype=dtype), covariance).factor()[0]
        assert torch.linalg.svdvals(factor)[-1].item() == pytest.approx(thin, rel=1e-2)


def test_a_batch_of_regular_and_singular_covariances():
    regular = torch.tensor([[4.0, 1.0], [1.0, 9.0]], dtype=torch.float64)
    line = torch.tensor([[1.0, 2e9], [2e9, 4e18]], dtype=torch.float64)
    factor = sr.Gaussian(torch.zeros(3, 2).double(), torch.stack([regular, line, regular])).factor()
    assert torch.equal(factor[0], torch.linalg.cholesky(regular))
    assert torch.equal(factor[2], factor[0])
    ratio = factor[1, 1, factor[1].any(0)] / factor[1, 0, factor[1].any(0)]
    assert ratio.numpy() == pytest.approx(2e9, rel=1e-14)


@pytest.mark.parametrize("value", [0.1, -7e11, 1 / 3, 1e-200])
@pytest.mark.parametrize("samples", [1001, 50_000])
def test_constant_outputs_have_no_spread(value, samples):
    constant = torch.full((samples, 1), value, dtype=torch.float64)
    law = sr.DiagonalGaussian(constant[:1], torch.zeros(1, 1).double())
    moments = oracles.Moments.from_samples(constant)
    assert moments.mean.item() == value
    assert moments.covariance.item() == 0
    assert oracles.std_ratio(constant, law)[0].value == 1
    assert oracles.gaussian_kl(constant, law).value == 0


@pytest.mark.parametrize(
    "rule", ["unscented", "second_order", "low_rank", "exact", "cubature", "monte_carlo:samples=4000"]
)
@pytest.mark.parametrize("big", [1e6, 3e9, 1e13])
def test_rules_with_a_singular_input_of_several_scales(rule, big):
    """x2 = 3 x0, so that x0 - x2 / 6 has half the standard deviation of x0; x1 is much larger."""
    deviations = torch.tensor([2.0, big, 6.0], dtype=torch.float64)
    correlation = torch.tensor([[1, -0.3, 1], [-0.3, 1, -0.3], [1, -0.3, 1]], dtype=torch.float64)
    x = sr.Gaussian(torch.zeros(1, 3).double(), (deviations[:, None] * correlation * deviations)[None])
    net = torch.nn.Linear(3, 1, bias=False).double()
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.0, 0.0, -1 / 6]], dtype=torch.float64))
    rough = 0.05 if rule.startswith("monte") else 1e-9  # 4000 draws: standard error .011
    assert sr.propagate(net, x, rule).variance.sqrt().item() == pytest.approx(1, rel=rough)
    assert oracles.sample_outputs(net, x, 20_000, seed=1).std().item() == pytest.approx(1, rel=0.02)
