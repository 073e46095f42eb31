"""The effect of float32 on the laws of all suites, compared with float64.

``python -m sdp_bench.bench.runs.precision`` prints one line for each kind of available net (from the package
or the cache) and each noise of the experiments that use it. Arguments (``relu-9 sigmoid-4``) select kinds,
which are trained if necessary. The exit code is 1 if a distance exceeds the 95 % point of its floor.

Image classifiers are excluded: cells of equal mass do not exist for ten scores.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from sdp_bench.bench.datasets.base import stratified_rows
from sdp_bench.bench.experiments import experiments
from sdp_bench.bench.experiments.law_group import oracle_key
from sdp_bench.bench.experiments.laws import LawExperiment
from sdp_bench.bench.identity import Sampling
from sdp_bench.bench.metrics.oracle import Oracle
from sdp_bench.bench.metrics.total_variation import (
    CentralTotalVariation,
    EqualMassTotalVariation,
    HeadlineTotalVariation,
)
from sdp_bench.bench.nets.architectures import Architecture
from sdp_bench.bench.nets.fully_connected import TrainedNet, get_nets, missing
from sdp_bench.bench.nets.net import inputs_of
from sdp_bench.bench.nets.recipes import Recipe
from sdp_bench.bench.noise import Noise
from sdp_bench.bench.settings import Settings
from sdp_bench.oracles.partitions.precision import Rounding, precise
from sdp_bench.oracles.sampling.outputs import sample_outputs


class Distance(NamedTuple):
    """Distance of a law in float32, and as its oracle draws it, from float64 with the same noise."""

    net: str
    noise: str
    rounding: Rounding  # basis of the choice of the precision
    precision: str  # precision of the oracle's draws
    # total variation in the headline's cells (along the central axes for heavy tails) of all the oracle's
    # samples, in float32 and as drawn. Samples are paired, so only moved samples contribute.
    single: float
    drawn: float
    floor95: float  # 95 % point of the floor of as many independent samples


def distances(kinds: Collection[str], sampling: Sampling) -> Iterator[Distance]:
    """Yield distances for all experiments with an oracle: one net of each kind, at one input.

    `kinds` are non-linearity and hidden layers, ``relu-9``; by default all kinds with an available net.
    """
    settings = replace(Settings(), sampling=sampling)
    laws: dict[tuple[Architecture, Recipe], dict[tuple[Noise, float], None]] = {}
    for experiment in experiments().values():
        if isinstance(experiment, LawExperiment):
            for kind in experiment.kinds(settings):
                laws.setdefault(kind, {}).update(dict.fromkeys(product(experiment.noises, experiment.sigmas)))
    for (architecture, recipe), noises in laws.items():
        if name_of(architecture) in kinds or not (kinds or missing(architecture, recipe, [0])):
            (net,) = get_nets(architecture, recipe, [0])
            for noise, scale in sorted(noises, key=lambda law: (law[0].name, law[1])):
                yield distance(net, noise, scale, sampling)


def name_of(architecture: Architecture) -> str:
    """Return the kind of a net: ``relu-9``."""
    return f"{architecture.activation}-{architecture.depth}"


def distance(net: TrainedNet, noise: Noise, scale: float, sampling: Sampling) -> Distance:
    """Return the distance for the law of a net's output at its first input."""
    data = inputs_of(net)
    x = data.batch(list(stratified_rows(data.labels, 1)))
    key = oracle_key(net, x[0], noise.label(scale), sampling.sampler, sampling.samples)
    module, law = net.build(), noise.law(x, scale)
    oracle = Oracle(module, law, key, sampling)
    double = Oracle(*precise(module, law), key, sampling)
    kind: type[EqualMassTotalVariation] = (
        HeadlineTotalVariation if hasattr(law, "variance") else CentralTotalVariation
    )
    cells = kind().partition(double)
    single = sample_outputs(module, law, key.samples, seed=key.seed("oracle"), sampler=oracle.sampler)
    own_counts = (cells.counts(single), oracle.counts(cells))
    moved = [float(np.abs(own - double.counts(cells)).sum() / 2 / key.samples) for own in own_counts]
    return Distance(
        name_of(net.architecture) + ("" if net.recipe.features == "raw" else f" {net.recipe.features}"),
        f"{noise.name} {scale:g}",
        oracle.rounding,
        oracle.precision,
        moved[0],
        moved[1],
        double.floors(cells)[0].upper95,
    )


def main(kinds: Sequence[str]) -> int:
    """Print the table; return 1 if a distance is larger than chance explains."""
    row = "{:<22}{:<16}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}"
    print(row.format("net", "noise", "directions", "moved", "float32", "as drawn", "95 %", "precision"))
    found = []
    for each in distances(kinds, Sampling()):
        directions = f"{each.rounding.single} of {each.rounding.double}"
        numbers = (each.rounding.moved, each.single, each.drawn, each.floor95)
        shown = (f"{number:.4f}" for number in numbers)
        print(row.format(each.net, each.noise, directions, *shown, each.precision), flush=True)
        found.append(each)
    if not found:
        print(f"no experiment with an oracle has nets of the kinds {', '.join(kinds)}", file=sys.stderr)
        return 2
    further = [each for each in found if each.drawn > each.floor95]
    double = sum(each.precision == "float64" for each in found)
    print(
        f"{len(found)} laws, {double} drawn in float64; {len(further)} further than their floor's 95 % point"
    )
    return int(bool(further))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
