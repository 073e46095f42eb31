"""Images made up for the studies that train classifiers, and a cache of each test."""

import pytest

from sdp_bench.bench.datasets.base import ImageClassification
from tests.bench.experiments.images import images

TRAIN, TEST = images(64), images(40, seed=1, split="test")
LETTERS = images(60, 19, first=1, seed=2, split="test", title="EMNIST letters")


@pytest.fixture
def made_up(monkeypatch):
    made = {("mnist", "train"): TRAIN, ("mnist", "test"): TEST, ("emnist-letters", "test"): LETTERS}
    monkeypatch.setattr(ImageClassification, "load", lambda self, split: made[self.name, split])


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Folder of trained nets."""
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "nets"
