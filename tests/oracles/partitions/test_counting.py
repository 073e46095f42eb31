import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sdp_bench import oracles
from sdp_bench.oracles.partitions.counting import Edges
from sdp_bench.oracles.partitions.heavy_tails import OutputBins, central_axes
from sdp_bench.oracles.partitions.logits import Margin
from sdp_bench.oracles.partitions.principal import PrincipalCells
from tests.stand_in import StandIn

coarse = st.integers(-4, 4).map(float)  # so that edges repeat and values meet them
fine = st.floats(-1e6, 1e6, allow_subnormal=False)
# the table has one step, or most of it is empty
unlike = st.sampled_from([0.0, 5e-324, 1e-300, -1e30, 1e30, -1.7e308, 1.7e308])
numbers = st.one_of(coarse, fine, unlike)


@given(st.lists(numbers, max_size=70), st.lists(numbers, min_size=1), st.integers(0, 3))
def test_the_table_finds_what_a_search_finds(edges, values, open_ends):
    line = np.r_[np.sort(edges), np.full(open_ends, np.inf)]
    looked_up = np.r_[values, edges, np.nextafter(edges, np.inf), np.nextafter(edges, -np.inf)]
    with np.errstate(over="ignore"):  # of differences between the largest floats
        found = Edges(line).below(looked_up)
    assert np.array_equal(found, np.searchsorted(line, looked_up))


def histogram(rows, cells):
    return np.array([np.bincount(row, minlength=cells) for row in rows])


def of_axis_bins(partition, samples):
    shape = (partition.bins + 2,) * len(partition.low)
    counts = np.zeros(shape, dtype=np.int64)
    width = partition.high - partition.low
    steps = partition.bins / width
    steps[width * steps >= partition.bins] = np.nextafter(steps[width * steps >= partition.bins], 0)
    for sample in samples.tolist():
        places = [math.floor((x - a) * s) for x, a, s in zip(sample, partition.low, steps, strict=True)]
        counts[tuple(min(max(place, -1), partition.bins) + 1 for place in places)] += 1
    return counts.ravel()


def of_classes(partition, samples):
    return histogram([samples.argmax(1)], partition.m)[0]


def of_differences(partition, samples):
    rows = zip(partition.edges, partition.pairs, strict=True)
    return histogram(
        (np.searchsorted(e, samples[:, i] - samples[:, j]) for e, (i, j) in rows), partition.cells
    )


def of_outputs(partition, samples):
    rows = zip(partition.edges, samples.T, strict=True)
    return histogram((np.searchsorted(edges, column) for edges, column in rows), partition.cells)


def of_margin(partition, samples):
    ordered = np.sort(samples, axis=1)
    return histogram([np.searchsorted(partition.edges, ordered[:, -1] - ordered[:, -2])], partition.cells)[0]


def of_tree(tree, samples):
    leaves = len(tree.thresholds)
    counts = np.zeros(leaves + 1, dtype=np.int64)
    for sample in samples:
        along, off = (sample - tree.centre) @ tree.axes, (sample - tree.centre) @ tree.null
        if (np.abs(off) > tree.rounding * (np.abs(sample).max() + np.abs(tree.centre).max())).any():
            counts[leaves] += 1
            continue
        node, level = 1, 0
        while node < leaves:
            node = 2 * node + bool(len(along) and along[level % len(along)] > tree.thresholds[node])
            level += 1
        counts[node - leaves if len(along) else 0] += 1
    return counts


def of_principal(partition, samples):
    tree, bins = partition.tree, partition.edges.shape[1] + 1
    coordinates = ((samples - tree.centre) @ tree.axes).T
    places = [np.searchsorted(e, line) for e, line in zip(partition.edges, coordinates, strict=False)]
    grids = [places[i] * bins + places[j] for i, j in partition.pairs]
    first = np.pad(of_tree(tree, samples), (0, partition.cells - tree.cells))
    return np.vstack([first, *histogram(grids, partition.cells)])


PARTITIONS = {
    "axis bins": (lambda pilot: oracles.AxisBins.from_samples(pilot, 4), of_axis_bins),
    "axis bins to the extremes": (
        lambda pilot: oracles.AxisBins.from_samples(pilot, 3, "minmax"),
        of_axis_bins,
    ),
    "classes": (lambda pilot: oracles.Classes(pilot.shape[1]), of_classes),
    "differences": (lambda pilot: oracles.ScoreDifferences.from_samples(pilot, 8), of_differences),
    "outputs": (lambda pilot: OutputBins.from_samples(pilot, 9), of_outputs),
    "margin": (lambda pilot: Margin.from_samples(pilot, 8), of_margin),
    "tree": (lambda pilot: oracles.EqualMassTree.from_samples(pilot, 16), of_tree),
    "tree along central axes": (
        lambda pilot: oracles.EqualMassTree.from_samples(pilot, 16, central_axes),
        of_tree,
    ),
    "principal": (lambda pilot: PrincipalCells.from_samples(pilot, 16), of_principal),
}

LAWS = {
    "continuous": lambda generator, m: generator.standard_normal((200, m)) * np.logspace(0, -3, m) + 5,
    "atoms": lambda generator, m: generator.integers(-2, 3, (200, m)).astype(float),
    "on a plane": lambda generator, m: (
        generator.standard_normal((200, 2)) @ generator.standard_normal((2, m)).round(1)
    ),
    "heavy tails": lambda generator, m: generator.standard_cauchy((200, m)),
    "constant": lambda _, m: np.full((200, m), 0.3),
}


@pytest.mark.parametrize("name", PARTITIONS)
@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    law=st.sampled_from(sorted(LAWS)),
    m=st.integers(2, 5),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_counts_are_those_of_the_definition_in_any_container_and_on_a_device(name, seed, law, m, dtype):
    make, plain = PARTITIONS[name]
    generator = np.random.default_rng(seed)
    pilot = LAWS[law](generator, m).astype(dtype)
    partition = make(pilot)
    # The pilot's own, between which thresholds lie: whichever way a rotation rounds, they are on their side.
    samples = generator.choice(pilot, 300)
    samples[:5] *= generator.choice([-1e6, 1e6], 5)[:, None]
    if hasattr(partition, "edges") and not isinstance(partition, PrincipalCells):
        finite = partition.edges[np.isfinite(partition.edges)]
        samples[5:150, 0] = generator.choice(finite, 145)
        samples[5:150, 1:] = 0
    expected = plain(partition, samples.astype(np.float64))
    for container in (samples, np.asfortranarray(samples), samples[::-1], torch.tensor(samples)):
        counts = partition.counts(container)
        assert counts.dtype == np.int64
        assert np.array_equal(counts, expected)
    with StandIn() as stand_in:
        there = torch.tensor(samples).to(stand_in.device)
        counts = partition.counts(there)
    assert counts.dtype == np.int64
    assert np.array_equal(counts, expected)
    assert stand_in.copied == counts.size  # and no samples


@pytest.mark.parametrize("name", PARTITIONS)
def test_samples_of_many_chunks_are_counted_on_a_device_as_on_the_cpu(name):
    generator = np.random.default_rng(0)
    pilot = LAWS["continuous"](generator, 4)
    samples = torch.tensor(generator.choice(pilot, 2**18 + 77))
    partition = PARTITIONS[name][0](pilot)
    with StandIn() as stand_in:
        there = partition.counts(samples.to(stand_in.device))
    assert there.sum(-1).max() == len(samples)
    assert np.array_equal(there, partition.counts(samples))
    assert stand_in.copied == there.size


@pytest.mark.parametrize("name", PARTITIONS)
def test_a_device_refuses_samples_with_the_message_of_the_cpu(name):
    pilot = LAWS["continuous"](np.random.default_rng(0), 3)
    partition = PARTITIONS[name][0](pilot)
    samples = torch.tensor(pilot)
    refused = [samples[:, :2], samples[0], samples[:0], samples.long()]
    for entry in (math.nan, math.inf, -math.inf):
        not_finite = samples.clone()
        not_finite[-1, 1] = entry
        refused.append(not_finite)
    for bad in refused:
        with pytest.raises(ValueError, match="samples") as on_cpu:
            partition.counts(bad)
        with StandIn() as stand_in, pytest.raises(ValueError, match="samples") as on_device:
            partition.counts(bad.to(stand_in.device))
        assert str(on_device.value) == str(on_cpu.value)
