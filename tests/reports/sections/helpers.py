"""Made-up measurements for sections of the report."""

import numpy as np
import pandas as pd

from sdp_bench.bench.studies import introduction, uci
from sdp_bench.reports.paper import printed
from tests.reports import made_up
from tests.reports.made_up import checked


def measurement_row(experiment, sigma, rule, spec, value, **more):
    name = {"experiment": experiment, "metric": spec.partition(":")[0], "metric_spec": spec, "samples": 10**6}
    where = {"sigma": sigma, "rule": rule, "net": "n0", "input": 3, "stderr": 0.001}
    return made_up.row(value, **name, **where | {"recipe": "sgd 0.01, raw features"} | more)


BINS = "bins=10,bin_range={},pilot_samples=131072"
HEADLINE = "tv_headline:cells=512,pilot_samples=131072"


def sensitivity_frame():
    rows = []
    for sigma in (0.1, 1000.0):
        for spec, sdp, dvia in (
            (HEADLINE, 0.3, 0.2),
            ("tv_paper:" + BINS.format("quantiles"), 0.1, 0.2),
            ("tv_paper:" + BINS.format("joint"), 0.15, 0.2),
        ):
            rows += [measurement_row("iris-sensitivity", sigma, "sdp", spec, sdp)]
            rows += [measurement_row("iris-sensitivity", sigma, "dvia", spec, dvia)]
        other = {"recipe": "adam 0.001, raw features", "net": "n1", "accuracy": 0.5}
        rows += [
            measurement_row("iris-sensitivity", sigma, rule, HEADLINE, 0.4, **other)
            for rule in ("sdp", "dvia")
        ]
        for output in "012":
            theirs = printed("std_ratio", "relu", 4, sigma, "sdp", output).mean
            for recipe, factor in ((rows[0], 1.0), (rows[0] | other, 2.0)):
                ratio = {"metric": "std_ratio", "metric_spec": "std_ratio", "component": output}
                rows.append(recipe | ratio | {"rule": "sdp", "value": theirs * factor, "sigma": sigma})
    return checked(pd.DataFrame(rows))


def oracle_frame():
    rows = []
    for net, again, once, tenfold in (("a", 0.011, 0.3, 0.302), ("b", 0.013, 0.4, 0.399)):
        for experiment, value in (("iris-oracle", once), ("iris-oracle-10x", tenfold)):
            rows.append(measurement_row(experiment, 1.0, "sdp", HEADLINE, value, net=net))
            rows.append(measurement_row(experiment, 1.0, "oracle_again", HEADLINE, again, net=net))
    return checked(pd.DataFrame(rows))


def intervals_frame(values, component=""):
    """Rows of the UCI section from tuples (dataset, method, metric, values by seed)."""
    rows = [(*known, seed, value) for *known, by_seed in values for seed, value in by_seed.items()]
    same = {"experiment": uci.EXPERIMENT.name, "component": component, "recipe": "as published"}
    return made_up.table("dataset rule metric seed value", rows, **same)


INTRODUCTION_SCALES = (1e-2, 1e-1, 1.0, 10.0, 100.0)


def introduction_frame(best, seeds=1, scales=INTRODUCTION_SCALES):
    """Accuracies that fall by .1 a decade on both sides of each layer's best scale."""
    rows = [
        (f"layer_{layer}", scale, seed, 0.9 - 0.1 * abs(np.log10(scale / at)) + 0.01 * seed)
        for layer, at in enumerate(best)
        for scale in scales
        for seed in range(seeds)
    ]
    same = {"experiment": introduction.EXPERIMENT.name, "rule": "marginal_sdp", "metric": "accuracy"}
    return made_up.table("objective sigma seed value", rows, recipe="trained on 100 images", **same)


ROBUSTNESS_COLUMNS = ["experiment", "dataset", "objective", "sigma", "seed", "rule", "metric", "component"]
ROBUSTNESS_COLUMNS += ["value", "recipe"]
SCALED_OBJECTIVES = ("dirichlet", "pairwise_gaussian", "pairwise_marginal", "pairwise_cauchy")
