"""Accuracy of several ways to split the input law: the table of docs/rules.md."""

import sys

import numpy as np
import torch
from scipy.cluster.vq import kmeans2

import sdp_ref as sr
from sdp_bench.bench.datasets.base import stratified_rows
from sdp_bench.bench.experiments import experiments
from sdp_bench.bench.nets.fully_connected import get_nets
from sdp_bench.bench.nets.net import inputs_of
from sdp_bench.bench.settings import Settings
from sdp_bench.oracles.partitions.tree import EqualMassTree
from sdp_bench.oracles.sampling.outputs import sample_outputs

SEEDS, FLOWERS, SIGMAS = (1, 2), (3, 4), (0.1, 1.0, 10.0, 1000.0)
NETS = (("relu", 1), ("relu", 4), ("relu", 6), ("gelu", 4))
CELLS, SAMPLES, PILOT = 512, 200_000, 2**17
BASES = ("divided_difference:step=1.25", "unscented", "sdp")
SIZES = (1, 9, 64, 1024)


def nets():
    """Networks that no choice was made on, each with inputs."""
    for activation, depth in NETS:
        kinds = (kind for each in experiments().values() for kind in getattr(each, "kinds", list)(Settings()))
        found = next(
            (architecture, recipe)
            for architecture, recipe in kinds
            if (architecture.activation, architecture.depth, recipe.features) == (activation, depth, "raw")
        )
        for net in get_nets(*found, list(SEEDS)):
            data = inputs_of(net)
            rows = list(stratified_rows(data.labels, max(FLOWERS) + 1))
            yield (activation, depth), net.build().double(), data.batch([rows[i] for i in FLOWERS]).double()


def sobol(_net, x, sigma, k):
    """Pieces alike in all directions, at the first points of a Sobol sequence."""
    h = k ** (-1 / x.numel())
    points = torch.quasirandom.SobolEngine(x.numel(), scramble=True, seed=0).draw(k, dtype=torch.float64)
    normals = torch.special.ndtri(points + 2.0**-31)
    covariance = (sigma * h) ** 2 * torch.eye(x.numel())
    return torch.full((k,), 1 / k), x + sigma * (1 - h * h) ** 0.5 * normals, covariance.expand(k, -1, -1)


def along_one(net, x, sigma, k):
    """Pieces of equal mass along the leading singular direction of J."""
    jacobian = torch.autograd.functional.jacobian(lambda v: net(v[None])[0], x)
    direction = torch.linalg.svd(jacobian)[2][0]
    edges = torch.special.ndtri(torch.linspace(0, 1, k + 1))
    density = torch.exp(-(edges**2) / 2) / (2 * torch.pi) ** 0.5
    centres = k * (density[:-1] - density[1:])
    centres = centres * ((1 - 0.25**2) / centres.square().mean()).sqrt()
    narrow = torch.eye(x.numel()) - (1 - 0.25**2) * torch.outer(direction, direction)
    places = x + sigma * centres[:, None] * direction
    return torch.full((k,), 1 / k), places, (sigma**2 * narrow).expand(k, -1, -1)


def quantiser(_net, x, sigma, k, kept={}):  # noqa: B006  the same for all nets
    """Cells of an optimal quantiser of the standard normal in all directions, each a Gaussian."""
    if k not in kept:
        normals = np.random.default_rng(0).standard_normal((64 * k + 4096, x.numel()))
        centres, cell = kmeans2(normals, k, minit="++", seed=0)
        counts = np.bincount(cell, minlength=k)
        used = np.flatnonzero(counts)
        own = np.stack([np.cov(normals[cell == j].T, bias=True) for j in used])
        kept[k] = tuple(map(torch.from_numpy, (counts[used] / len(cell), centres[used], own)))
    weights, centres, own = kept[k]
    return weights, x + sigma * centres, sigma**2 * own


def mixture(way, base, net, x, sigma, k):
    """Of what the base makes of the pieces."""
    weights, places, covariances = way(net, x, sigma, k)
    return sr.Mixture(weights[None], sr.rule(base).propagate(net, sr.Gaussian(places, covariances)))


def split(base, net, x, sigma, k):
    """Of the rule."""
    law = sr.DiagonalGaussian(x[None], torch.full_like(x[None], sigma**2))
    return sr.rule("split", base=base, k=k).propagate(net, law)


METHODS = {f"split, {base}": (base, split) for base in BASES} | {
    f"{name}, {base}": (base, way)
    for name, way in (("Sobol", sobol), ("one direction", along_one), ("quantiser", quantiser))
    for base in (BASES[0], "sdp")
}


def predictions(net, x, sigma, sizes):
    """Of each method and number of pieces."""
    for name, (base, way) in METHODS.items():
        for k in sizes:
            if way is split:
                yield (name, k), split(base, net, x, sigma, k)
            elif k > 1 and (way is not along_one or k <= 9):
                yield (name, k), mixture(way, base, net, x, sigma, k)


def measured(sizes):
    """1 - TV by method and number of pieces, then by noise level and kind of net."""
    shared = {}
    cases = [(kind, net, x, sigma) for kind, net, inputs in nets() for x in inputs for sigma in SIGMAS]
    for kind, net, x, sigma in cases:
        law = sr.DiagonalGaussian(x[None], torch.full_like(x[None], sigma**2))
        tree = EqualMassTree.from_samples(sample_outputs(net, law, PILOT, seed=0), CELLS)
        truth = tree.counts(sample_outputs(net, law, SAMPLES, seed=1)) / SAMPLES
        for key, y in predictions(net, x, sigma, sizes):
            drawn = y.sample(SAMPLES, torch.Generator().manual_seed(2))[:, 0]
            gap = np.abs(tree.counts(drawn) / SAMPLES - truth).sum() / 2
            shared.setdefault(key, {}).setdefault((sigma, kind), []).append(1 - gap)
    return shared


def main(sizes):
    """Print the table: rows are methods and numbers of pieces, columns noise levels."""
    torch.set_default_dtype(torch.float64)
    shared = measured(sizes)
    print("| way, base | k | " + " | ".join(f"σ = {s:g}" for s in SIGMAS) + " |")
    print("|" + " --- |" * (2 + len(SIGMAS)))
    for (name, k), cells in shared.items():
        means = [np.mean([cells[sigma, kind] for kind in NETS]) for sigma in SIGMAS]
        print(f"| {name} | {k} | " + " | ".join(f"{mean:.3f}" for mean in means) + " |")
    for base in BASES if 1 in sizes else ():
        own = shared[f"split, {base}", 1]
        for k in sizes:
            cells = shared[f"split, {base}", k]
            least = min(np.mean(cells[cell]) - np.mean(own[cell]) for cell in own)
            print(f"split, {base}, k = {k}: least gain over its base in a cell {least:+.3f}")


if __name__ == "__main__":
    main([int(each) for each in sys.argv[1:]] or list(SIZES))
