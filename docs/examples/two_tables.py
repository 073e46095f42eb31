"""Partitions under which the paper's Tables 9 and 28 agree for DVIA: the table of docs/reading.md.

Table 28 states the width of DVIA's Gaussian relative to the true law, and Table 9 the shared mass 1 - TV.
The shared mass is at most that of the best Gaussian of this width in one output alone, in every partition
that has the bins of this output. The other columns are for the Gaussian of this width with the true mean and
correlations, under four conventions. The last one counts each output separately, so the bound does not apply.
"""

import numpy as np
import torch
from scipy.stats import norm

import sdp_ref as sr
from sdp_bench.bench.datasets.base import stratified_rows
from sdp_bench.bench.nets.architectures import Architecture
from sdp_bench.bench.nets.fully_connected import get_nets
from sdp_bench.bench.nets.net import inputs_of
from sdp_bench.bench.nets.recipes import recipe_for
from sdp_bench.oracles.partitions.tree import EqualMassTree
from sdp_bench.oracles.sampling.outputs import sample_outputs
from sdp_bench.reports.paper import printed

NETS, FLOWERS, SAMPLES = 10, 10, 200_000
PILOT, CELLS, BINS, FINE = 2**17, 512, 10, 200
SIGMAS = (1.0, 10.0, 100.0, 1000.0)
SHIFTS = np.linspace(-2, 2, 81)  # of the centre, in true standard deviations
QUANTILES = (0.0005, 0.9995)


def most_in_one_output(values, sd):
    """Most mass that a Gaussian of some width shares with samples of one output, in fine bins."""
    inner = np.linspace(*np.quantile(values, QUANTILES), FINE + 1)[1:-1]
    true = np.bincount(np.searchsorted(inner, values), minlength=FINE) / len(values)
    centres = values.mean() + SHIFTS * values.std()
    predicted = np.diff(norm.cdf(inner, centres[:, None], sd), prepend=0, append=1)
    return np.minimum(true, predicted).sum(1).max()


def shared(outputs, drawn, edges):
    """Mass that two samples share between edges along the axes; what lies beyond is in the outer bins."""
    counts = []
    for points in (outputs, drawn):
        places = [np.searchsorted(inner, column) for inner, column in zip(edges, points.T, strict=True)]
        cells = np.ravel_multi_index(places, [len(inner) + 1 for inner in edges])
        counts.append(np.bincount(cells, minlength=(BINS + 2) ** len(edges)) / len(points))
    return np.minimum(*counts).sum()


def shares(outputs, ratios, generator):
    """The bound, and what a Gaussian of these widths shares under each convention."""
    sds = outputs.std(0)
    bound = min(most_in_one_output(v, r * sd) for v, r, sd in zip(outputs.T, ratios, sds, strict=True))
    covariance = np.corrcoef(outputs.T) * np.outer(ratios * sds, ratios * sds)
    drawn = generator.multivariate_normal(outputs.mean(0), covariance, len(outputs))
    tree = EqualMassTree.from_samples(torch.from_numpy(outputs[:PILOT]), CELLS)
    of_outputs = tree.counts(torch.from_numpy(outputs)) / len(outputs)
    of_gaussian = tree.counts(torch.from_numpy(drawn)) / len(drawn)
    both = np.concatenate((outputs, drawn))
    extremes = np.linspace(both.min(0), both.max(0), BINS + 1, axis=1)[:, 1:-1]
    quantiles = np.linspace(*np.quantile(outputs, QUANTILES, axis=0), BINS + 1, axis=1)[:, 1:-1]
    partitions = [shared(outputs, drawn, edges) for edges in (extremes, quantiles)]
    alone = [shared(outputs[:, [k]], drawn[:, [k]], extremes[[k]]) for k in range(len(extremes))]
    return [bound, *partitions, np.minimum(of_outputs, of_gaussian).sum(), np.mean(alone)]


def main():
    """Print the table."""
    architecture = Architecture(4, "relu")
    nets = get_nets(architecture, recipe_for(architecture), list(range(NETS)))
    generator = np.random.default_rng(0)
    names = ("joint extremes, 10 bins", "quantiles, 10 bins", "512 cells", "single outputs, 10 bins")
    print(f"| σ | Table 9 | at most | {' | '.join(names)} |")
    print("| --- " * (len(names) + 3) + "|")
    for sigma in SIGMAS:
        ratios = np.array([printed("std_ratio", "relu", 4, sigma, "dvia", str(k)).mean for k in range(3)])
        found = []
        for net in nets:
            data, module = inputs_of(net), net.build()
            for place, row in enumerate(stratified_rows(data.labels, FLOWERS)):
                x = data.batch([row])
                law = sr.DiagonalGaussian(x, torch.full_like(x, sigma**2))
                outputs = sample_outputs(module, law, SAMPLES, seed=NETS * net.seed + place)
                found.append(shares(outputs.double().numpy(), ratios, generator))
        told = printed("1-tv", "relu", 4, sigma, "dvia").value
        numbers = " | ".join(f"{mean:.3f}" for mean in np.mean(found, axis=0))
        print(f"| {sigma:g} | {told} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
