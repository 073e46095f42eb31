import dataclasses

import pytest

from sdp_bench.bench.datasets.base import ImageClassification
from tests.attacks.calls import called
from tests.bench.nets.test_image_training import DATA, TEST


@pytest.fixture
def run(tmp_path, monkeypatch):
    sets = {"train": DATA, "test": dataclasses.replace(TEST, split="test")}
    load = ImageClassification.load

    def made_up(self, split="train", parts=None):
        return sets[split] if self.name == "mnist" else load(self, split, parts)

    monkeypatch.setattr(ImageClassification, "load", made_up)
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path))
    monkeypatch.setenv("SDP_BENCH_DATA", str(tmp_path))
    return lambda *arguments: called(["train", *arguments], seconds=300)


def test_training_goes_on_where_it_stopped_and_is_kept(run):
    command = ("cnn3", "--dataset", "mnist", "--epochs", "2", "--batch-size", "16")
    code, _, errors = run(*command, "--minutes", "0")
    assert code == 3
    assert "the time is up after 0 of 6 steps" in errors
    code, output, errors = run(*command)
    assert code == 0
    assert "on Squares train: 40 of 100 images (made up)" in errors
    assert "steps 6/6" in errors
    assert "(trained)" in output
    again, kept, _ = run(*command)
    assert again == 0
    assert "(cache)" in kept
    assert kept.splitlines()[0] == output.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("vgg",), 2, "network 'vgg' not found; choose from resnet18, resnet18_max_pool, cnn3, vit"),
        (("cnn3", "--dataset", "mnist", "--device", "nonsense"), 2, "nonsense"),
        (("cnn3",), 3, "takes cifar10/data_batch_1"),
        (("cnn3", "--parts", "data_batch_7"), 2, "got data_batch_7"),
    ],
)
def test_what_cannot_be_done_is_told(run, arguments, code, message):
    got, _, errors = run(*arguments)
    assert got == code
    assert message in errors
