"""A damaged net in the cache is put aside with a warning and trained again.

Damaged checkpoints and files of another recipe: tests/bench/nets.
"""

import pickle
import random

import pytest

from sdp_bench.bench.nets import storage
from sdp_bench.bench.nets.architectures import Architecture
from sdp_bench.bench.nets.fully_connected import file_name, get_nets
from sdp_bench.bench.nets.recipes import Recipe

SMALL, SHORT = Architecture(1, width=8), Recipe(epochs=2)


def damages(content):
    """Damaged copies of a file, by what was done."""
    header = 8 + int.from_bytes(content[:8], "little")
    for place in (0, 9, header - 1, *random.Random(1).sample(range(header, len(content)), 5)):
        flipped = bytes([content[place] ^ 1 << place % 8])
        yield f"bit at {place}", content[:place] + flipped + content[place + 1 :]
    for size in (0, 7, header, len(content) - 1):
        yield f"cut to {size}", content[:size]
    yield "zeros at the end", content[:-64] + bytes(64)
    yield "a pickle", pickle.dumps({"weights": [1.0]})


def test_a_damaged_net_is_put_aside_and_trained_again(tmp_path, monkeypatch):
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path))
    (whole,) = get_nets(SMALL, SHORT, [0])
    path = storage.cache_folder() / file_name(SMALL, SHORT, 0)
    content = path.read_bytes()
    for what, damaged in damages(content):
        path.write_bytes(damaged)
        with pytest.warns(UserWarning, match="is damaged"):
            (net,) = get_nets(SMALL, SHORT, [0])
        (aside,) = path.parent.glob("*.damaged")
        assert aside.read_bytes() == damaged, what
        aside.unlink()
        assert (net.digest, net.source) == (whole.digest, "trained"), what
        assert path.read_bytes() == content, what
