import pytest
import torch
from torch import fx

from sdp_bench.bench.datasets.download import DataMissingError, local_copy
from sdp_bench.bench.experiments import experiment
from sdp_bench.bench.nets.architectures import IMAGE_NETWORKS, ImageArchitecture, architecture_of
from sdp_bench.bench.nets.net import best_classifier, inputs_of


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


@pytest.mark.parametrize(
    ("network", "event", "message"),
    [
        ("vgg", (1, 28, 28), "network 'vgg' not found; choose from resnet18, .*decoder"),
        ("gru", (1, 28, 28), "GRU does not take inputs of shape"),
        ("vit", (8, 2), "ViT does not take inputs of shape"),
    ],
)
def test_unknown_networks_and_unsuitable_inputs_are_refused(network, event, message):
    with pytest.raises(ValueError, match=message):
        architecture_of(network, event)


def test_resnet_has_torchvisions_names():
    names = set(ImageArchitecture("resnet18", width=4).build().state_dict())
    norms = {"bn1"}
    expected = {"conv1.weight", "fc.weight", "fc.bias"}
    for layer in (1, 2, 3, 4):
        for block in (0, 1):
            for number in (1, 2):
                expected.add(f"layer{layer}.{block}.conv{number}.weight")
                norms.add(f"layer{layer}.{block}.bn{number}")
    for layer in (2, 3, 4):
        expected.add(f"layer{layer}.0.downsample.0.weight")
        norms.add(f"layer{layer}.0.downsample.1")
    for kind in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
        expected |= {f"{norm}.{kind}" for norm in norms}
    assert names == expected


ARCHITECTURES = (*experiment("vision").classifiers, *experiment("sequence").classifiers)
NAMES = [architecture.label for architecture in ARCHITECTURES]
ROWS = slice(0, 500)


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=NAMES)
def test_each_is_there_and_as_accurate_as_it_says(architecture):
    net = best_classifier(architecture, "committed")
    assert (net.architecture, net.source) == (architecture, "committed")
    needs_files = net.recipe.dataset != "rotations"
    if needs_files and local_copy() is None:
        pytest.skip("the images are not here")
    try:
        data = inputs_of(net)
    except DataMissingError:
        pytest.skip("the images are not here")
    with torch.inference_mode():
        right = net.build()(data.batch(ROWS)).argmax(1) == data.labels[ROWS]
    # Five standard errors of a share of 500, at worst .11: a net of other weights has a tenth right.
    error = (net.accuracy * (1 - net.accuracy) / 500) ** 0.5
    assert float(right.double().mean()) == pytest.approx(net.accuracy, abs=5 * error + 1e-3)


def test_they_go_before_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path))
    gru = architecture_of("gru", (8, 2))
    assert best_classifier(gru).source == "committed"
    assert best_classifier(gru, "committed").digest == best_classifier(gru).digest


def test_a_decoder_does_not_look_ahead_and_a_vit_does():
    decoder = best_classifier(architecture_of("decoder", (8, 2)), "committed").build()
    x = torch.randn(1, 8, 2)
    states = []
    decoder.blocks.register_forward_hook(lambda *args: states.append(args[-1]))
    later = x.clone()
    later[:, 5:] += 1
    with torch.no_grad():
        decoder(x), decoder(later)
    assert torch.allclose(states[0][:, :5], states[1][:, :5], atol=1e-6)
    assert not torch.allclose(states[0][:, 5:], states[1][:, 5:], atol=1e-2)


def test_the_cnn_on_mnist_has_the_largest_layer_that_the_paper_implies():
    """Over 12 500 units (its estimate of DVIA's cost), so the convolutions are padded."""
    first = ImageArchitecture("cnn3", 1, 28).build()[0](torch.zeros(1, 1, 28, 28))
    assert first.shape == (1, 64, 14, 14)
    assert first.numel() > 12_500


def test_a_residual_block_whose_branch_is_zero_is_a_rectifier():
    block = ImageArchitecture("resnet18", width=4).build().layer1[0]
    torch.nn.init.zeros_(block.bn2.weight)
    x = torch.randn(2, 4, 5, 5)
    assert torch.equal(block(x), x.relu())


def test_labels_have_what_is_not_the_default():
    assert ImageArchitecture("cnn3", 1, 28).label == "cnn3 1x28x28 to 10"
    assert ImageArchitecture("resnet18", width=8).label == "resnet18 3x32x32 to 10, width 8"
