"""How long it takes to count samples of the CPU by numpy, and by torch as on a device; the code is the same.

Both sides run by turns in one process and every ratio is the median of ratios of neighbours. Nothing is
asserted about time.

    pytest -s benchmarks/test_counting_speed.py
"""

import statistics
import time
from unittest import mock

import numpy as np
import pytest
import torch

from sdp_bench import oracles
from sdp_bench.oracles.partitions import counting
from sdp_bench.oracles.partitions.heavy_tails import OutputBins
from sdp_bench.oracles.partitions.logits import Margin
from sdp_bench.oracles.partitions.principal import PrincipalCells

ROUNDS = 9
PILOT = 2**17
SHAPES = ((10**6, 3), (10**5, 10))
PARTITIONS = {
    "axis bins": oracles.AxisBins.from_samples,
    "decision": lambda pilot: oracles.Classes(pilot.shape[1]),
    "tree": oracles.EqualMassTree.from_samples,
    "tree and grids": PrincipalCells.from_samples,
    "outputs": OutputBins.from_samples,
    "differences": oracles.ScoreDifferences.from_samples,
    "margin": Margin.from_samples,
}


def by_torch(partition, samples):
    """Counts as a device makes them, in chunks as large as numpy's."""
    with (
        mock.patch.object(counting, "resident_matrix", lambda given: given),
        mock.patch.object(counting, "_DEVICE_ROWS", counting._CHUNK_ROWS),
    ):
        return partition.counts(samples)


def seconds(function, *arguments):
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape[0]} x {shape[1]}")
@pytest.mark.parametrize("name", PARTITIONS)
def test_counting(name, shape, threads, capsys):
    if name == "axis bins" and shape[1] > 3:
        pytest.skip("a grid of so many axes has too many cells")
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(shape[1], shape[1], generator=generator)
    samples, pilot = (torch.randn(n, shape[1], generator=generator) @ mixing for n in (shape[0], PILOT))
    partition = PARTITIONS[name](pilot)
    assert np.array_equal(by_torch(partition, samples), partition.counts(samples))
    sides = [
        (seconds(partition.counts, samples), seconds(by_torch, partition, samples)) for _ in range(ROUNDS)
    ]
    ours = statistics.median(ours for ours, _ in sides)
    ratio = statistics.median(theirs / ours for ours, theirs in sides)
    title = f"{name}, {shape[0]} x {shape[1]}, {threads} threads"
    with capsys.disabled():
        print(f"\n{title}: {1e3 * ours:.1f} ms, torch {ratio:.2f} times as long")
