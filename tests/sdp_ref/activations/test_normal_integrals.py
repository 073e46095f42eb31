import pytest
import torch

from sdp_ref.activations.numerics.normal import repeated_integrals


@pytest.mark.parametrize("order", [1, 2])
def test_repeated_integrals_differentiate_twice(order):
    h = torch.tensor([-6.0, -3.0, -1.0, 0.0, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: repeated_integrals(x)[order], h)
    assert torch.autograd.gradgradcheck(lambda x: repeated_integrals(x)[order], h)
