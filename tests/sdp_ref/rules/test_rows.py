"""Rules that evaluate a net at points refuse nets that do not map each row by itself."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sdp_ref as sr
from sdp_ref.graph.recording import by_ordinary_attention

RULES = (
    "monte_carlo:samples=30",
    "control_variate:samples=30",
    "unscented",
    "cubature",
    "divided_difference",
    "split:k=5",
    "split:base=moment_matching,k=3",
    "sdp",
    "second_order",
)


def law(batch=2, dtype=torch.float64, n=4):
    generator = torch.Generator().manual_seed(batch)
    mean = torch.randn(batch, n, generator=generator, dtype=dtype)
    return sr.DiagonalGaussian(mean, torch.full_like(mean, 0.3))


def cleared(x):
    """Clear as many columns as there are rows, in place."""
    x[:, : len(x)] = 0
    return x


OTHERS = "depend on the other rows"
POSITION = "depend on its position in the batch"
SIZE = "depend on the size of the batch"

COUPLED = {
    "mean": (lambda x: x.sin() - x.mean(0, keepdim=True), OTHERS),
    "softmax": (lambda x: torch.softmax(x, 0), OTHERS),
    "order": (lambda x: 2 * x.flip([0]), OTHERS),
    "gram": (lambda x: (x @ x.T) @ x, OTHERS),
    "batch norm": (lambda x: F.batch_norm(x, None, None, training=True), OTHERS),
    "position": (lambda x: x * (1 + 0.1 * torch.arange(len(x)).to(x)[:, None]), POSITION),
    "size": (lambda x: x + 0.2 / len(x), SIZE),
    "columns": (cleared, SIZE),
    "even size": (lambda x: 2 * x if len(x) % 2 == 0 else x, SIZE),
    "odd size": (lambda x: x.sin() if len(x) % 2 else x.cos(), SIZE),
}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", COUPLED)
def test_nets_that_mix_rows_are_refused(name, batch):
    net, reason = COUPLED[name]
    for rule in RULES:
        with pytest.raises(
            sr.UnsupportedError, match=f"'.*' does not support a net that .*{reason}|batch norm"
        ):
            sr.rule(rule).prepare(net)(law(batch))


def test_a_module_that_starts_to_mix_rows_is_refused():
    net = nn.Sequential(nn.Linear(4, 3), nn.Softmax(1)).double()
    sr.propagate(net, law(), "unscented")
    net[1] = nn.Softmax(0)
    with pytest.raises(sr.UnsupportedError, match=OTHERS):
        sr.propagate(net, law(), "unscented")


class Memory(nn.Module):
    """A recurrent net, whose kernels depend on the size of the batch."""

    def __init__(self):
        super().__init__()
        self.layer = nn.LSTM(1, 16, batch_first=True)
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        return self.head(self.layer(x.unsqueeze(2))[0][:, -1])


ROWWISE = {
    "wide": lambda: nn.Sequential(nn.Linear(4, 1000), nn.Tanh(), nn.Linear(1000, 2)),
    "batch norm": lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)),
    "images": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 8, 2), nn.GELU(), nn.Flatten(), nn.Linear(8, 2)
    ),
    "memory": Memory,
    "large": lambda: nn.Sequential(nn.Linear(4, 2), nn.Hardtanh(-1e9, 1e9)),
    "constant": lambda: nn.Sequential(nn.Linear(4, 2), nn.Threshold(1e6, 7.0)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ROWWISE)
def test_nets_that_only_round_differently_in_batches_are_supported(name, dtype):
    torch.manual_seed(4)
    net = ROWWISE[name]().to(dtype).eval()
    for rule in ("monte_carlo:samples=300", "unscented", "split:k=5", "sdp"):
        assert sr.propagate(net, law(40, dtype), rule).mean.shape == (40, 2)


def test_dropout_in_training_mode_is_sampled_with_the_same_numbers_as_without_the_check():
    net = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 2)).double().train()
    x, rule = law(1), sr.rule("monte_carlo", samples=50, seed=3)
    predict = rule.prepare(net)
    means = []
    for _ in range(2):  # the first call checks
        torch.manual_seed(8)
        means.append(predict(x).mean)
    assert torch.equal(*means)


def test_the_check_leaves_statistics_of_a_net_in_training_mode():
    layer = nn.utils.spectral_norm(nn.Linear(4, 3).double())
    before = layer.weight_u.clone()
    sr.propagate(layer, law(), "unscented")
    assert torch.equal(layer.weight_u, before)


def test_a_net_is_checked_once_and_then_only_evaluated_at_the_points():
    sizes = []

    class Counted(nn.Linear):
        def forward(self, x):
            sizes.append(len(x))
            return super().forward(x)

    net = Counted(4, 2).double()
    sr.propagate(net, law(), "unscented")
    sizes.clear()
    sr.propagate(net, law(), "unscented")
    assert sizes == [2 * 9]


class Attending(nn.Module):
    """Attention with the default arguments of torch's layers; the last of three tokens may be hidden."""

    def __init__(self, kind, hidden):
        super().__init__()
        torch.manual_seed(6)
        self.kind, self.hidden = kind, hidden
        layer = nn.TransformerEncoderLayer(4, 2, 8)
        match kind:
            case "encoder":
                self.layer = nn.TransformerEncoder(layer, 2)
            case "batch first":
                self.layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
            case "layer":
                self.layer = layer
            case "attention":
                self.layer = nn.MultiheadAttention(4, 2)

    def forward(self, x):
        tokens = torch.stack([x, x.flip(1), x.square()], 1)
        mask = torch.tensor([[False, False, True]]).expand(len(x), -1) if self.hidden else None
        if self.kind == "batch first":
            return self.layer(tokens, src_key_padding_mask=mask).flatten(1)
        tokens = tokens.transpose(0, 1)
        if self.kind == "attention":
            out = self.layer(tokens, tokens, tokens, key_padding_mask=mask, need_weights=False)[0]
        else:
            out = self.layer(tokens, src_key_padding_mask=mask)
        return out.transpose(0, 1).flatten(1)


@pytest.mark.filterwarnings("ignore")  # torch's own about nested tensors
@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("kind", ["encoder", "layer", "batch first", "attention"])
def test_attention_of_a_point_is_that_of_the_net_without_the_fast_path(kind, hidden):
    net = Attending(kind, hidden).double().eval()
    x = law(3)
    point = sr.DiagonalGaussian(x.mean, torch.zeros_like(x.mean))
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    with torch.no_grad():
        right = net(x.mean)
    torch.backends.mha.set_fastpath_enabled(enabled)
    for rule in ("sdp", "unscented", "monte_carlo:samples=3", "split:k=3", "marginal_sdp", "moment_matching"):
        with torch.no_grad():
            torch.testing.assert_close(sr.rule(rule).prepare(net)(point).mean, right)
        assert torch.backends.mha.get_fastpath_enabled() == enabled


def test_overlapping_contexts_restore_the_setting_of_the_fast_path():
    enabled = torch.backends.mha.get_fastpath_enabled()
    first, second = by_ordinary_attention(), by_ordinary_attention()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)  # as in another thread
    assert not torch.backends.mha.get_fastpath_enabled()
    second.__exit__(None, None, None)
    assert torch.backends.mha.get_fastpath_enabled() == enabled
    with pytest.raises(RuntimeError, match="of the net"), by_ordinary_attention():
        raise RuntimeError("of the net")
    assert torch.backends.mha.get_fastpath_enabled() == enabled
