import pytest
import torch

from sdp_bench.bench.errors import RunFailedError
from sdp_bench.bench.nets import storage, training

STEPS = 5


class Counting:
    """A training that counts its steps; content that is no training damages it before that is seen."""

    def __init__(self):
        self.count = 0

    def to_bytes(self):
        return storage.to_file({}, {"count": self.count})

    def restore(self, content):
        self.count = 1000
        self.count = int(storage.from_file(content)[1]["count"])

    def steps(self):
        while self.count < STEPS:
            self.count += 1
            yield False


@pytest.fixture
def path(tmp_path):
    return tmp_path / "nets" / "count.safetensors"


def names(path):
    return sorted(p.name for p in path.parent.iterdir())


def test_a_training_is_done_once(path):
    assert training.trained(path, Counting, Counting.steps).count == STEPS
    assert names(path) == ["count.safetensors"]
    assert training.trained(path, Counting, lambda _: 1 / 0).count == STEPS


def test_a_training_that_stops_goes_on_from_its_last_checkpoint(path, monkeypatch):
    monkeypatch.setattr(training, "SAVE_SECONDS", 0.0)
    seen = []

    def stopping(counting):
        for _ in counting.steps():
            seen.append(counting.count)
            if len(seen) == 3:
                raise KeyboardInterrupt
            yield False

    with pytest.raises(KeyboardInterrupt):
        training.trained(path, Counting, stopping)
    assert names(path) == ["count.checkpoint"]
    assert training.trained(path, Counting, stopping).count == STEPS
    assert seen == [1, 2, 3, 3, 4, 5]
    assert names(path) == ["count.safetensors"]


@pytest.mark.parametrize("name", ["count.safetensors", "count.checkpoint"])
@pytest.mark.parametrize("damage", [lambda _: b"not a number", lambda content: content.replace(b"2", b"3")])
def test_what_is_damaged_is_put_aside_and_leaves_no_trace_in_what_is_trained(path, name, damage):
    before = Counting()
    before.count = 2
    storage.write(path.with_name(name), before.to_bytes())
    damaged = damage(path.with_name(name).read_bytes())
    path.with_name(name).write_bytes(damaged)
    with pytest.warns(UserWarning, match=rf"{name} is damaged \(.*\): it is now {name}.damaged"):
        assert training.trained(path, Counting, Counting.steps).count == STEPS
    assert names(path) == sorted(["count.safetensors", f"{name}.damaged"])
    assert path.with_name(f"{name}.damaged").read_bytes() == damaged


def test_a_flipped_bit_of_a_net_is_found(path):
    storage.write(path, storage.to_file({"weight": torch.zeros(20)}, {}))
    assert torch.equal(storage.read(path, storage.from_file)[0]["weight"], torch.zeros(20))
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    with pytest.warns(UserWarning, match="checksum"):
        assert storage.read(path, storage.from_file) is None


def test_what_does_not_belong_to_the_reader_stays_in_its_place(path):
    path.parent.mkdir()
    path.write_bytes(b"not a number")
    with pytest.warns(UserWarning, match="is damaged .*: it is left out"):
        assert storage.read(path, storage.from_file) is None
    assert names(path) == ["count.safetensors"]
    assert storage.read(path.with_name("absent"), bytes, put_aside=True) is None


def test_a_cache_that_cannot_be_written_is_told_before_the_first_step(path):
    path.parent.write_text("")
    with pytest.raises(RunFailedError, match=r"cannot write .*set SDP_BENCH_CACHE") as raised:
        training.trained(path, Counting, lambda _: 1 / 0)
    assert "\n" not in str(raised.value)
    with pytest.raises(RunFailedError, match="set SDP_BENCH_CACHE"):
        storage.check_writable(path)


def test_a_folder_in_the_place_of_a_net_is_put_aside(path):
    path.mkdir(parents=True)
    with pytest.warns(UserWarning, match="is damaged"):
        assert training.trained(path, Counting, Counting.steps).count == STEPS
    assert path.is_file()


def test_committed_classifiers_are_small():
    sizes = {path.name: path.stat().st_size for path in storage.COMMITTED.glob("*.safetensors")}
    assert 0 < sum(size for name, size in sizes.items() if not name.startswith("iris-")) < 1_000_000
