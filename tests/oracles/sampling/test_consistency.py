import pytest
import torch
from torch import nn

import sdp_ref as sr
from sdp_bench import oracles

TOKENS, WIDTH = 3, 4


class Tokens(nn.Module):
    """An attention layer over tokens, with masks of the user."""

    def __init__(self, padding=None, mask=None, **options):
        super().__init__()
        torch.manual_seed(5)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 6, dropout=0.0, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 3, **options)
        self.head = nn.Linear(WIDTH * TOKENS, 2)
        self.register_buffer("padding", padding)
        self.register_buffer("mask", mask)

    def forward(self, x):
        padding = None if self.padding is None else self.padding.expand(len(x), -1)
        return self.head(self.encoder(x, mask=self.mask, src_key_padding_mask=padding).flatten(1))


LAST = torch.tensor([[False, False, True]])
BIAS = torch.tensor([[0.3, -1.0, 0.0]])


def law(sigma=0.0):
    torch.manual_seed(2)
    mean = torch.randn(1, TOKENS, WIDTH)
    return sr.DiagonalGaussian(mean, torch.full_like(mean, sigma**2))


@pytest.mark.filterwarnings("ignore")  # torch's own about nested tensors
@pytest.mark.parametrize(
    "net", [Tokens(LAST), Tokens(BIAS), Tokens(mask=BIAS.expand(TOKENS, -1))], ids=["hidden", "bias", "mask"]
)
def test_attention_is_one_function_or_refused(net):
    net.eval()
    x = law()
    right = net(x.mean).detach()  # with gradients, as in training
    with torch.no_grad():
        for rule in ("sdp", "unscented", "monte_carlo"):
            torch.testing.assert_close(sr.propagate(net, x, rule).mean, right)
    with pytest.raises(ValueError, match=r"without gradients.*set_fastpath_enabled"):
        oracles.sample_outputs(net, x, 20, seed=0)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        samples = oracles.sample_outputs(net, x, 20, seed=0)
        assert not torch.backends.mha.get_fastpath_enabled()
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    torch.testing.assert_close(samples, right.expand(20, -1))


@pytest.mark.parametrize("location", [0.7, 1e6])
@pytest.mark.parametrize(
    "net",
    [
        lambda v: v * v.mean(0),
        lambda v: v.cumsum(0),
        lambda v: v - v.flip(0),
        lambda v: torch.softmax(v, 0),
        lambda v: v / v.norm(),
    ],
    ids=["mean", "cumsum", "flip", "softmax", "norm"],
)
def test_nets_that_couple_rows_are_refused(net, location):
    x = sr.DiagonalGaussian(
        torch.full((1, 2), location, dtype=torch.float64), torch.ones(1, 2, dtype=torch.float64)
    )
    with pytest.raises(ValueError, match="depends on the other rows"):
        oracles.sample_outputs(net, x, 100, seed=0)


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_functions_of_the_mode_of_gradients_are_refused(scale):
    net = lambda v: scale * v * (2.0 if torch.is_grad_enabled() else 3.0)  # noqa: E731
    x = sr.Cauchy(torch.ones(1, 2), torch.ones(1, 2))
    with pytest.raises(ValueError, match="without gradients"):
        oracles.sample_outputs(net, x, 100, seed=0)


def test_chaotic_nets_whose_rounding_depends_on_the_batch_are_served():
    torch.manual_seed(3)
    layers = [nn.Linear(50, 50) for _ in range(15)]
    for layer in layers:
        nn.init.normal_(layer.weight, 0, 6 / 50**0.5)
    net = nn.Sequential(*[part for layer in layers for part in (layer, nn.Tanh())], nn.Linear(50, 3))
    for sigma in (1e-6, 0.1):
        mean = torch.linspace(-1, 1, 50)[None]
        samples = oracles.sample_outputs(
            net, sr.DiagonalGaussian(mean, torch.full_like(mean, sigma**2)), 50, seed=0
        )
        assert samples.isfinite().all()
