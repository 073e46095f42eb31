"""Damaged nets and checkpoints: none is taken as trained, each is told, and what was there is kept aside."""

import dataclasses
import pickle
import random
import shutil
import warnings

import pytest
import torch

from sdp_bench.bench.nets import storage
from sdp_bench.bench.nets.architectures import Architecture
from sdp_bench.bench.nets.classifier_training import UnfinishedError, train
from sdp_bench.bench.nets.fully_connected import file_name, get_nets
from sdp_bench.bench.nets.recipes import Recipe
from tests.bench.nets.test_image_training import CNN, DATA, RECIPE, TEST, Clock

SMALL, SHORT = Architecture(1, width=8), Recipe(epochs=2)


def flipped(content, place):
    return content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :]


def edited(content, key, **changes):
    """What is written beside the tensors, changed by hand; the seal stays as it is."""
    tensors, about = storage.from_file(content, key)
    seal = storage._unpacked(content)[0]["__metadata__"]["sdp-bench"]
    header, packed = storage._unpacked(storage.to_file(tensors, about | changes, key))
    header["__metadata__"]["sdp-bench"] = seal
    text = storage.json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + packed


def unsealed(content, key, change):
    """As an older version would have written it, with other weights."""
    tensors, about = storage.from_file(content, key)
    return storage.to_file({name: change(tensor) for name, tensor in tensors.items()}, about, key)


class Trap:
    """Its pickle, once loaded, would call this."""

    def __reduce__(self):
        return pytest.exit, ("a pickle of the cache was loaded",)


def damages(content, seed):
    """Ways to damage any file, by what they do."""
    draw = random.Random(seed)
    header = 8 + int.from_bytes(content[:8], "little")
    for place in draw.sample(range(header, len(content)), 16):
        yield f"bit of weights at {place}", flipped(content, place)
    for place in (0, 3, 8, 9, *draw.sample(range(16, 60), 3), header - 1):
        yield f"bit of the header at {place}", flipped(content, place)
    for size in (0, 7, 100, header, len(content) // 2, len(content) - 1):
        yield f"cut to {size}", content[:size]
    yield "a byte more", content + b"\0"
    yield "zeros at the end", content[:-64] + bytes(64)
    yield "zeros", bytes(len(content))
    yield "a length of 2^63", (2**63).to_bytes(8, "little") + content[8:]
    yield "deep brackets", (10**5).to_bytes(8, "little") + b"[" * 10**5
    yield "a list", (2).to_bytes(8, "little") + b"[]"
    yield "a pickle", pickle.dumps(Trap())
    yield "bits of a float swapped", content[:header] + content[header:][::-1]


def test_a_damaged_net_is_never_taken(tmp_path, monkeypatch, attack):
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path))
    whole, other = get_nets(SMALL, SHORT, [0, 1])
    (longer,) = get_nets(SMALL, dataclasses.replace(SHORT, epochs=3), [0])
    path = storage.cache_folder() / file_name(SMALL, SHORT, 0)
    content = path.read_bytes()
    beside = {
        "the net of another seed": (path.parent / file_name(SMALL, SHORT, 1)).read_bytes(),
        "another net, without a seal": other.to_bytes(),
        "another recipe, without a seal": longer.to_bytes(),
        "no number, without a seal": unsealed(content, "net", lambda t: t * float("nan")),
        "another shape, without a seal": unsealed(content, "net", lambda t: t[:2]),
        "another accuracy": edited(content, "net", accuracy=1.0),
        "another seed by hand": edited(content, "net", seed=1),
    }
    with attack("damaged nets") as tries:
        for what, damaged in (*damages(content, 1), *beside.items()):
            assert damaged != content, what
            for each in path.parent.glob("*.damaged"):
                each.unlink()
            path.write_bytes(damaged)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                (net,) = get_nets(SMALL, SHORT, [0])
            aside = [each.read_bytes() for each in path.parent.glob("*.damaged")]
            said = [str(each.message) for each in told]
            tries.tried(
                what,
                held=(net.digest, net.source, aside) == (whole.digest, "trained", [damaged])
                and len(said) == 1
                and f"{path} is damaged (" in said[0]
                and "\n" not in said[0]
                and path.read_bytes() == content,
            )


def test_a_net_of_an_older_version_is_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path))
    (net,) = get_nets(SMALL, SHORT, [0])
    path = storage.cache_folder() / file_name(SMALL, SHORT, 0)
    path.write_bytes(net.to_bytes())
    (again,) = get_nets(SMALL, SHORT, [0])
    assert (again.source, again.digest) == ("cache", net.digest)


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """A training, and the checkpoints of one that stopped after four of its nine steps."""
    place = tmp_path / "begun" / "net.checkpoint"
    whole = train(CNN, RECIPE, DATA, TEST, tmp_path / "whole" / "net.checkpoint")
    with monkeypatch.context() as patched:
        Clock(patched)
        for _ in range(2):
            with pytest.raises(UnfinishedError):
                train(CNN, RECIPE, DATA, TEST, place, budget=2.0)
    return whole, place


def same(first, second):
    return all(torch.equal(first.state[name], second.state[name]) for name in first.state)


def test_a_damaged_checkpoint_is_never_gone_on_from(begun, tmp_path, attack, monkeypatch):
    whole, place = begun
    content, before = place.read_bytes(), place.with_name("net.checkpoint.before").read_bytes()
    elsewhere = tmp_path / "other" / "other.checkpoint"
    other = dataclasses.replace(RECIPE, dataset="cifar10", seed=3)
    with pytest.raises(UnfinishedError):
        train(CNN, other, DATA, TEST, elsewhere, budget=0.0)
    own = {
        "of another recipe": elsewhere.read_bytes(),
        "of another recipe under this name": storage._sealed(place.name, elsewhere.read_bytes()),
        "at its end, by hand": edited(content, "about", step=9),
        "at step 10^9": edited(content, "about", step=10**9),
        "at step 10^9, sealed": storage._sealed(place.name, edited(content, "about", step=10**9)),
        "at step -1, sealed": storage._sealed(place.name, edited(content, "about", step=-1)),
        "without a seal": unsealed(content, "about", lambda t: t + 1),
    }
    steps = []
    go = train.__globals__["_Run"].go

    def counted(run, *arguments):
        steps.append(run.step)
        go(run, *arguments)

    monkeypatch.setattr(train.__globals__["_Run"], "go", counted)
    with attack("damaged checkpoints") as tries:
        for number, (what, damaged) in enumerate((*damages(content, 2), *own.items())):
            folder = tmp_path / str(number)
            folder.mkdir()
            path = folder / "net.checkpoint"
            path.write_bytes(damaged)
            both = number % 2 == 0
            (folder / "net.checkpoint.before").write_bytes(damaged if both else before)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                net = train(CNN, RECIPE, DATA, TEST, path)
            said = [str(each.message) for each in told]
            aside = [each.read_bytes() for each in folder.glob("*.damaged")]
            tries.tried(
                what,
                held=same(net, whole)
                and len(said) == len(aside) == 1 + both
                and all(f"{path}" in line and "is damaged (" in line for line in said)
                and set(aside) == {damaged}
                and (steps.pop() == 0) is both,
            )
            shutil.rmtree(folder)
