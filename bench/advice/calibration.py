"""Measures the calibration of the advice: indices and true errors of linearisation on many nets.

``python -m sdp_bench.bench.advice.calibration`` writes the table and prints the error rates on held-out nets.
It needs MNIST, CIFAR-10 and the UCI sets in the folder SDP_BENCH_DATA.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import math
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from sdp_ref.activations import ACTIVATIONS
from sdp_ref.laws import DiagonalGaussian

from ... import oracles
from ..datasets import dataset, names
from ..datasets.base import SplitClassification, TabularRegression
from ..files import write
from ..nets import storage
from ..nets.net import Net, inputs_of, net_from_bytes
from .advice import Probe, probe
from .thresholds import DEVIATIONS, LIMITS, TABLE, calibration, rates, thresholds

SIGMAS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Noise levels; half of them for images, with values between 0 and 1."""
FITTED = ("iris-relu", "convnext", "mixer", "random-relu", "random-gelu", "random-scalar", "mnist-mlp-relu")
"""Families of nets that determine the thresholds; all others are held out."""
_SAMPLES, _OF_IMAGES = 2**16, 2**14


@dataclass(frozen=True, eq=False)
class Subject:
    family: str
    name: str
    prepare: Callable[[], tuple[nn.Module, Tensor]]
    """Loads or trains the net, and returns it with its inputs."""
    scale: float = 1.0


def subjects() -> Iterator[Subject]:
    """Yield nets that differ in architecture, activation, depth, width, data and training.

    Data sets are loaded only when a net is prepared.
    """
    for path in sorted(storage.COMMITTED.glob("*-seed0.safetensors")):  # one net of each architecture
        net = net_from_bytes(path.read_bytes(), "committed")
        kind = net.architecture.activation
        if path.name.startswith("iris"):
            yield Subject(f"iris-{kind}", path.stem, partial(committed, net, [10, 70, 120]))
        else:
            yield Subject(kind, path.stem, partial(committed, net, [0, 1]), 0.5)
    for activation in ("relu", "gelu", "tanh", "elu"):
        for depth in (1, 2, 4, 8, 16):
            for width in (16, 64, 256):
                seed = zlib.crc32(f"{activation} {depth} {width}".encode())
                widths = (8, *[width] * depth, 4)
                prepare = partial(untrained, widths, activation, seed, inputs=2, input_seed=seed + 1)
                yield Subject(f"random-{activation}", f"random-{activation}-{depth}x{width}", prepare)
    for depth in (1, 3):
        for width in (32, 128):
            seed = 10 * depth + width
            widths = (8, *[width] * depth, 1)
            prepare = partial(untrained, widths, "relu", seed, inputs=4, input_seed=seed + 1)
            yield Subject("random-scalar", f"random-scalar-{depth}x{width}", prepare)
    for depth in (1, 3, 6):
        for width in (32, 128):
            seed = depth + width
            widths = (20, *[width] * depth, 6)
            prepare = partial(untrained, widths, "silu", seed, inputs=2, input_seed=seed)
            yield Subject("random-silu", f"random-silu-{depth}x{width}", prepare)
    for activation, depth in (("relu", 1), ("relu", 3), ("tanh", 2), ("softplus", 3)):
        family = f"mnist-mlp-{activation}"
        prepare = partial(classifier, "mnist", (784, *[128] * depth, 10), activation, seed=depth)
        yield Subject(family, f"{family}-{depth}", prepare, 0.5)
    for depth in (1, 4):
        prepare = partial(classifier, "cifar10", (3072, *[128] * depth, 10), "leaky_relu", seed=depth)
        yield Subject("cifar10-mlp", f"cifar10-mlp-leaky_relu-{depth}", prepare, 0.5)
    for data in names(TabularRegression):
        for activation in ("relu", "tanh"):
            yield Subject(f"uci-{activation}", f"{data}-{activation}", partial(regressor, data, activation))


def committed(net: Net, rows: Sequence[int]) -> tuple[nn.Module, Tensor]:
    """Return a committed net, and these rows of its data set as inputs."""
    return net.build(), inputs_of(net).batch(rows)


def untrained(
    widths: Sequence[int], activation: str, seed: int, inputs: int, input_seed: int
) -> tuple[nn.Module, Tensor]:
    """Return a random net and standard normal inputs."""
    generator = torch.Generator().manual_seed(input_seed)
    return mlp(widths, activation, seed), torch.randn(inputs, widths[0], generator=generator)


def classifier(data: str, widths: Sequence[int], activation: str, seed: int) -> tuple[nn.Module, Tensor]:
    """Train a net on the test images of a data set, and return it with the first two images."""
    examples = dataset(data, SplitClassification).load("test")
    images = examples.batch(slice(None)).flatten(1)
    net = mlp(widths, activation, seed)
    fit(net, images, examples.labels, nn.functional.cross_entropy)
    return net, images[:2]


def regressor(data: str, activation: str) -> tuple[nn.Module, Tensor]:
    """Train a net on a table with standardised columns, and return it with the first two rows."""
    table = dataset(data, TabularRegression).load()
    features, targets = standardised(table.features), standardised(table.targets[:, None])
    net = mlp((features.shape[1], 50, 50, 1), activation, seed=0)
    fit(net, features, targets, nn.functional.mse_loss)
    return net, features[:2]


def standardised(values: Tensor) -> Tensor:
    return ((values - values.mean(0)) / values.std(0).clamp(min=1e-9)).float()


def mlp(widths: Sequence[int], activation: str, seed: int) -> nn.Sequential:
    """Random net that preserves the size of its values (He et al. 2015), with biases of 0.1."""
    generator, layers = torch.Generator().manual_seed(seed), list[nn.Module]()
    for number, (before, after) in enumerate(itertools.pairwise(widths)):
        linear = nn.Linear(before, after)
        gain = 2.0 if activation in ("relu", "leaky_relu") else 1.6
        nn.init.normal_(linear.weight, std=math.sqrt(gain / before), generator=generator)
        nn.init.normal_(linear.bias, std=0.1, generator=generator)
        layers += [linear] if number == len(widths) - 2 else [linear, ACTIVATIONS[activation].module()]
    return nn.Sequential(*layers)


def fit(net: nn.Module, features: Tensor, targets: Tensor, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Train a net by Adam for 1000 steps of 128 examples."""
    optimizer, generator = torch.optim.Adam(net.parameters(), 3e-3), torch.Generator().manual_seed(0)
    for _ in range(1000):
        rows = torch.randint(len(features), (128,), generator=generator)
        optimizer.zero_grad()
        loss(net(features[rows]), targets[rows]).backward()
        optimizer.step()


def errors(net: nn.Module, law: DiagonalGaussian, probed: Probe, samples: int) -> dict[str, float]:
    """True errors of linearisation by use, in the terms of :data:`LIMITS`, from an oracle."""
    truth = oracles.sample_outputs(net, law, samples=samples, seed=1).numpy()
    predicted = probed.predicted.sample(samples, torch.Generator().manual_seed(2))[:, 0]
    pilot, truth = truth[: samples // 4], truth[samples // 4 :]
    cells = oracles.PrincipalCells.from_samples(pilot)
    counts = cells.counts(truth), cells.counts(predicted)
    floor = oracles.floor_of_largest(counts[0], int(counts[1][0].sum()), pairs=50)
    deviations = np.log(predicted.numpy().std(0) / truth.std(0))
    errors = {
        DEVIATIONS: float(np.abs(deviations).mean()),
        "whole distribution": oracles.largest_total_variation(*counts, floor).value - floor.mean,
    }
    outputs = truth.shape[1]
    if outputs > 1:
        true_classes = np.bincount(truth.argmax(1), minlength=outputs) / len(truth)
        predicted_classes = np.bincount(predicted.argmax(1), minlength=outputs) / len(predicted)
        errors["class"] = float(np.abs(true_classes - predicted_classes).sum() / 2)
    return errors


def measured(subject: Subject) -> Iterator[dict[str, object]]:
    """Indices and errors of a net at all its inputs and noise levels."""
    net, inputs = subject.prepare()
    net.eval()
    exact = copy.deepcopy(net).double()
    images = inputs[0].numel() > 100
    samples = _OF_IMAGES if images else _SAMPLES
    for number, x in enumerate(inputs):
        for sigma in SIGMAS:
            scale = sigma * subject.scale
            law = DiagonalGaussian(mean=x[None], variance=torch.full_like(x[None], scale**2))
            probed = probe(exact, law.to(dtype=torch.float64))
            # The spread of the outputs of a deep random net can be below the rounding of float32.
            true = errors(*((net, law) if images else (exact, law.to(dtype=torch.float64))), probed, samples)
            for use, index in probed.indices.items():
                yield {
                    "family": subject.family,
                    "net": subject.name,
                    "input": number,
                    "sigma": scale,
                    "use": use,
                    "index": float(f"{index:.4g}"),
                    "error": float(f"{true[use]:.4g}"),
                    "small": true[use] <= LIMITS[use],
                    "held_out": subject.family not in FITTED,
                }


def _main(only: Sequence[str]) -> None:
    """Measure the calibration, write its table and print the error rates of the advice."""
    torch.set_num_threads(1)
    kept = calibration()
    rows = list[dict[str, object]]()
    for subject in subjects():
        if only and subject.name not in only:
            continue
        rows += list(measured(subject))
        print(f"{subject.name}: {len(rows)} rows", file=sys.stderr)
    others = kept[~kept["net"].isin(only)] if only else kept[:0]
    write(TABLE, pd.concat([others, pd.DataFrame(rows)]).to_csv(index=False))
    calibration.cache_clear()
    thresholds.cache_clear()
    print(thresholds())
    print(rates().round(3).to_string(index=False))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=_main.__doc__)
    only_help = "Measure only this net, and keep the rows of others; may be repeated."
    parser.add_argument("--only", action="append", default=[], metavar="NET", help=only_help)
    _main(parser.parse_args().only)
