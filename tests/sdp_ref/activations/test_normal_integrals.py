import pytest
import torch

from sdp_ref.activations.numerics.normal import (
    by_correlation,
    price_integral,
    repeated_integrals,
)


@pytest.mark.parametrize("order", [1, 2])
def test_repeated_integrals_differentiate_twice(order):
    h = torch.tensor([-6.0, -3.0, -1.0, 0.0, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: repeated_integrals(x)[order], h)
    assert torch.autograd.gradgradcheck(lambda x: repeated_integrals(x)[order], h)


def test_pairs_do_not_depend_on_how_they_are_chunked():
    generator = torch.Generator().manual_seed(0)
    h, k, u = torch.randn(3, 8000, generator=generator, dtype=torch.float64)
    rho = torch.tanh(2 * u)
    rho[3] = torch.nan
    whole = by_correlation(price_integral, rho, h, k, rho)
    parts = [by_correlation(price_integral, *(v[i::50] for v in (rho, h, k, rho))) for i in range(50)]
    for i, part in enumerate(parts):
        torch.testing.assert_close(part, whole[i::50], rtol=1e-13, atol=1e-17)
    assert whole[3] == 0
    assert (whole[rho.nan_to_num() != 0] > 0).all()
