import pytest
import torch
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

import sdp_ref as sr


@pytest.mark.parametrize("offset", [0.0, 2.0**24, -3e6])
def test_moments_do_not_depend_on_the_offset(offset):
    places = torch.tensor([[0.0, 2.0], [4.0, 0.0], [6.0, -8.0]])
    weights = torch.tensor([[0.5, 0.25, 0.25]])
    # by hand: means 2.5 and -1; squares 13 and 18; product -12
    covariance = torch.tensor([[6.75, -9.5], [-9.5, 17.0]])
    points = sr.Empirical((offset + places)[None], weights)
    mixture = sr.Mixture(weights, sr.DiagonalGaussian(offset + places, torch.zeros(3, 2)))
    for law in (points, mixture):
        assert torch.equal(law.covariance[0], covariance)
        assert torch.equal(law.variance[0], covariance.diagonal())
    assert sr.Empirical((offset + places)[None]).variance[0].tolist() == pytest.approx([56 / 9, 56 / 3])


@pytest.mark.parametrize("far", [1e25, 3e38])
def test_components_without_weight_do_not_count(far):
    means = torch.tensor([[1.0], [far], [3.0]])
    law = sr.Mixture(
        torch.tensor([[0.5, 0.0, 0.5]]), sr.DiagonalGaussian(means, torch.tensor([[1.0], [far], [1.0]]))
    )
    assert law.mean.item() == 2
    assert law.variance.item() == law.covariance.item() == 2


def test_weights_of_another_precision_are_converted():
    weights = Categorical(torch.tensor([[0.25, 0.75]], dtype=torch.float64))
    given = MixtureSameFamily(
        weights, Independent(Normal(torch.tensor([[[0.0], [4.0]]]), torch.ones(1, 2, 1)), 1)
    )
    law = sr.law_of(given)
    assert law.weights.dtype == torch.float32
    assert law.mean.item() == 3
    assert law.variance.item() == 4
