import pytest
import torch
from torch import fx

from sdp_bench.bench.nets.architectures import IMAGE_NETWORKS, ImageArchitecture


@pytest.mark.parametrize(
    ("architecture", "count"),
    [
        # by hand: sums of inputs x outputs x kernel (+ outputs), and 2 a batch-norm channel
        (ImageArchitecture("resnet18"), 11_173_962),
        (ImageArchitecture("resnet18", classes=100), 11_173_962 + 90 * 513),
        (ImageArchitecture("resnet18_max_pool"), 11_689_512 - 990 * 513),  # torchvision's
        (ImageArchitecture("cnn3"), (27 * 64 + 64) + (9 * 64 * 128 + 128) + (128 * 8 * 8 * 10 + 10)),
        (ImageArchitecture("cnn3", 1, 28), (9 * 64 + 64) + (9 * 64 * 128 + 128) + (128 * 7 * 7 * 10 + 10)),
    ],
)
def test_sizes_are_the_published_ones(architecture, count):
    assert sum(p.numel() for p in architecture.build().parameters()) == count


@pytest.mark.rounding
@pytest.mark.parametrize("name", IMAGE_NETWORKS)
@pytest.mark.parametrize(("channels", "size"), [(3, 32), (1, 28), (2, 9)])
def test_every_architecture_builds_traces_and_scores(name, channels, size):
    architecture = ImageArchitecture(name, channels, size, classes=7, width=4)
    net = architecture.build()
    x = torch.rand(3, channels, size, size)
    assert not net.training
    assert net(x).shape == (3, 7)
    assert torch.equal(fx.symbolic_trace(net)(x), net(x))


@pytest.mark.parametrize("name", IMAGE_NETWORKS)
def test_the_seed_alone_decides_the_weights(name):
    architecture = ImageArchitecture(name, width=4)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = architecture.build(1).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    again, other = architecture.build(1).state_dict(), architecture.build(2).state_dict()
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first[next(iter(first))], other[next(iter(first))])
