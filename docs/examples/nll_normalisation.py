"""Unit and constant of the paper's negative log-likelihoods (Table 38), by comparison with Table 4.

The paper states neither. Its Table 4 has the widths and coverages of the same predictions. A Gaussian of
standard deviation s that covers a share p of the targets with s times 3.92 has a mean negative log-likelihood
of about log s + log(2 pi) / 2 + z^2 / 2, where z = 1.96 / quantile((1 + p) / 2). Printed are the differences
of Table 38 from this number, in nats, for five normalisations: medians over the methods of a set. The last
column has the differences from our own results, for sets that we measured. The UCI files are downloaded, or
read from the folder SDP_BENCH_DATA.
"""

import math

import numpy as np
import pandas as pd
from scipy.stats import norm

import sdp_bench
from sdp_bench.bench.datasets import dataset
from sdp_bench.bench.datasets.base import TabularRegression
from sdp_bench.reports.paper import experiment

HALF = math.log(2 * math.pi) / 2

numbers = pd.concat([experiment(name) for name in ("interval_uci_main", "interval_uci_mc", "nll_uci")])
keys = ["dataset", "method"]
numbers["value"] = numbers["value"].astype(float)
paper = numbers.pivot_table(index=keys, columns="metric", values="value").dropna()
targets = {name: dataset(name, TabularRegression).load().targets.numpy() for name in paper.index.unique(0)}
names = paper.index.get_level_values("dataset")
spread = np.array([np.log(targets[name].std()) for name in names])
span = np.array([np.log(np.ptp(targets[name])) for name in names])
z = 1.96 / norm.ppf((1 + paper["picp"]) / 2)
implied = np.log(paper["mpiw"] / 3.92) + z**2 / 2  # widths are shares of the range
ours = sdp_bench.load("committed").query("metric == 'nll' and component == ''")
ours = ours.groupby(["dataset", "rule"], observed=True)["value"].median().rename_axis(keys)  # of the seeds
table = pd.DataFrame(
    {
        "range": paper["nll"] - implied - HALF,
        "range, no constant": paper["nll"] - implied,
        "standardised": paper["nll"] - implied - (span - spread) - HALF,
        "standardised, no constant": paper["nll"] - implied - (span - spread),
        "raw": paper["nll"] - implied - span - HALF,
        "from ours, standardised, no constant": paper["nll"] - ours.reindex(paper.index).astype(float) + HALF,
    }
)
print(table.groupby("dataset").median().round(2).to_string())
print("\nmedian distance", *table.abs().median().round(2).to_string().splitlines(), sep="\n  ")
