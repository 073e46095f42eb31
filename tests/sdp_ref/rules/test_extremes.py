import pytest
import torch
from torch import nn

import sdp_ref as sr
from tests.sdp_ref.common import mlp


@pytest.mark.parametrize("alpha", [0.05, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1.0, 1e150, 1e300])
@pytest.mark.parametrize("rule", ["sdp", "marginal_sdp"])
@pytest.mark.parametrize("factor", [1.0, 1e100])
def test_scales_pass_linear_layers_or_are_refused(alpha, scale, rule, factor):
    """Two layers, an input without noise, weights that take the scale beyond the largest float."""
    net = mlp(3, 4, 2, activation=nn.Identity)
    for layer in net[::2]:
        layer.weight.data *= factor
    scales = torch.tensor([[scale, scale, 0.0]], dtype=torch.float64)
    x = sr.SymmetricStable(torch.ones_like(scales), scales, alpha)
    try:
        law = sr.propagate(net, x, rule)
    except ValueError as error:
        refusal = str(error)
        assert "beyond the largest number of torch.float64" in refusal
        assert scale * factor**2 > 1e280
    else:
        assert torch.isfinite(law.scale).all()
        assert (law.scale > 0).all()
