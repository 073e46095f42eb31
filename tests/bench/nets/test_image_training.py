import dataclasses
import math

import pytest
import torch

from sdp_bench.bench.datasets.base import ImageClassification
from sdp_bench.bench.errors import RunFailedError
from sdp_bench.bench.nets import classifiers, storage
from sdp_bench.bench.nets.architectures import ImageArchitecture
from sdp_bench.bench.nets.classifiers import (
    TrainedClassifier,
    UnfinishedError,
    augment,
    default_recipe,
    file_name,
    get_classifier,
    learning_rate,
)
from tests.bench.nets.helpers import DATA, RECIPE, RESNET, TEST

CNN = ImageArchitecture("cnn3", 1, 8, classes=3, width=8)
ADAM = dataclasses.replace(RECIPE, optimizer="adam", learning_rate=3e-3, augmentation="none")


@pytest.fixture
def squares(tmp_path, monkeypatch):
    """The squares as a set of the catalogue, and an empty cache; returns the requests."""
    requests = []

    def load(_self, split, parts=None):
        requests.append((split, parts))
        return DATA if split == "train" else TEST

    monkeypatch.setattr(ImageClassification, "load", load)
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path))
    return requests


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


class Clock:
    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(classifiers.time, "monotonic", lambda: self.now)
        loss = classifiers._Run.loss

        def timed(run, rows):
            self.now += 1.0
            return loss(run, rows)

        monkeypatch.setattr(classifiers._Run, "loss", timed)


@pytest.mark.parametrize("architecture", [CNN, RESNET])
def test_classifiers_learn_and_know_how_well(architecture, squares):
    net = get_classifier(architecture, dataclasses.replace(ADAM, epochs=15))
    with torch.no_grad():
        right = net.build()(TEST.batch(slice(None))).argmax(1) == TEST.labels
    assert net.accuracy == pytest.approx(float(right.double().mean()))
    assert net.accuracy > 0.9


@pytest.mark.rounding
@pytest.mark.parametrize(
    ("architecture", "recipe"),
    [(RESNET, RECIPE), (CNN, ADAM), (CNN, dataclasses.replace(RECIPE, precision="bfloat16"))],
)
def test_an_interrupted_run_ends_in_the_same_bits(architecture, recipe, squares, tmp_path, monkeypatch):
    whole = get_classifier(architecture, recipe)
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path / "another folder"))
    checkpoint = classifiers.checkpoint_path(architecture, recipe)
    Clock(monkeypatch)  # 9 steps, 3 an epoch: stops inside epochs and between them
    for stop in (2, 4, 6, 8):
        with pytest.raises(UnfinishedError, match=rf"after {stop} of 9 steps.*{checkpoint.name}"):
            get_classifier(architecture, recipe, budget=2.0)
    parts = get_classifier(architecture, recipe, budget=2.0)
    assert not checkpoint.exists()
    assert same(parts.state, whole.state)
    assert parts.accuracy == whole.accuracy
    assert parts.seconds == 9.0


def test_divergence_is_one_line(squares):
    wild = dataclasses.replace(RECIPE, learning_rate=1e30, warmup=0.0, schedule="constant")
    with pytest.raises(RunFailedError, match=r"diverged at step .*lower the learning rate"):
        get_classifier(CNN, wild)


def test_the_cache_gives_back_what_was_trained(squares):
    first = get_classifier(CNN, RECIPE)
    assert squares == [("train", ("made up",)), ("test", None)]
    again = get_classifier(CNN, RECIPE)
    assert len(squares) == 2  # no images are needed
    assert (first.source, again.source) == ("trained", "cache")
    for field in dataclasses.fields(TrainedClassifier):
        if field.name not in ("state", "source"):
            assert getattr(again, field.name) == getattr(first, field.name), field.name
    assert again.digest == first.digest
    assert [path.name for path in storage.cache_folder().iterdir()] == [file_name(CNN, RECIPE)]


def test_crops_and_flips_are_those_of_the_padded_image():
    """Every image that comes out is one of the 9 x 9 x 2 that may, and all of them do come."""
    image = torch.arange(1, 65, dtype=torch.uint8).reshape(1, 8, 8)
    padded = torch.nn.functional.pad(image, (4, 4, 4, 4))
    windows = [padded[:, i : i + 8, j : j + 8] for i in range(9) for j in range(9)]
    allowed = {tuple(w.flatten().tolist()) for w in windows}
    allowed |= {tuple(w.flip(2).flatten().tolist()) for w in windows}
    drawn = augment(image.expand(4000, 1, 8, 8), torch.Generator().manual_seed(0))
    assert drawn.dtype == torch.uint8
    assert {tuple(x.flatten().tolist()) for x in drawn} == allowed


@pytest.mark.parametrize("channels", [1, 3])
def test_augmented_images_lie_in_memory_as_their_shape_says(channels):
    # With the channels last, training ends in a segmentation fault on processors with AVX2 alone.
    drawn = augment(torch.zeros(5, channels, 8, 8, dtype=torch.uint8), torch.Generator().manual_seed(0))
    assert drawn.stride() == (64 * channels, 64, 8, 1)


def test_the_rate_rises_and_falls():
    recipe = dataclasses.replace(RECIPE, learning_rate=1.0, warmup=1.0, epochs=10)
    rates = [learning_rate(recipe, step, 4) for step in range(40)]
    assert rates[0] == pytest.approx(0.25)
    assert rates[20] == pytest.approx(0.5)
    assert rates[39] == pytest.approx(0.5 * (1 - math.cos(math.pi / 40)))
    assert rates[3:] == sorted(rates[3:], reverse=True)
    constant = dataclasses.replace(recipe, schedule="constant", warmup=0.0)
    assert {learning_rate(constant, step, 4) for step in range(40)} == {1.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dataset": "imagenet"}, "choose from cifar10, emnist-letters, mnist"),
        ({"precision": "int8"}, "choose from float32, bfloat16"),
        ({"learning_rate": math.nan}, "positive"),
        ({"batch_size": 0}, "positive"),
        ({"momentum": 1.0}, "momentum must be in"),
        ({"weight_decay": -1.0}, "must not be negative"),
        ({"warmup": math.inf}, "must not be negative"),
        ({"parts": ()}, "names the parts"),
    ],
)
def test_bad_recipes(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(RECIPE, **change)


def test_the_architecture_names_the_file():
    architectures = (CNN, RESNET, dataclasses.replace(CNN, width=9))
    assert len({file_name(architecture, RECIPE) for architecture in architectures}) == 3


def test_channels_stay_together_in_augmentation():
    image = torch.randint(0, 256, (5, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    drawn = augment(image.repeat(1, 3, 1, 1), torch.Generator().manual_seed(1))
    assert torch.equal(drawn[:, 0], drawn[:, 1])
    assert torch.equal(drawn[:, 0], drawn[:, 2])


def test_recipes_of_the_paper_and_of_the_project():
    parts = ("data_batch_1",)
    resnet = default_recipe("resnet18", "cifar10", parts)
    assert resnet.label == "cifar10 (data_batch_1), sgd 0.1 cosine, 100 epochs of batch 128, crop_flip"
    assert (resnet.momentum, resnet.weight_decay) == (0.9, 5e-4)
    short = default_recipe("resnet18", "cifar10", parts, short=True)
    assert dataclasses.replace(short, epochs=100, precision="float32") == resnet
    cnn = default_recipe("cnn3", "mnist", ("x",))
    assert cnn.label == "mnist (x), adam 0.001 constant, 100 epochs of batch 128"
    assert default_recipe("resnet18", "mnist", ("x",)).augmentation == "none"
