"""Scores of the rows of a table, and the labels of their measurements."""

from __future__ import annotations

import numpy as np
import pandas as pd

from sdp_bench.bench.metrics import recorded_metric
from sdp_bench.reports.statistics.ranking import Replicates, Scores, labels_of, rank

RULES = ("sdp", "dvia", "monte_carlo:samples=100")


def some_measurements(rng):
    """Of three nets with two to four inputs at three sigmas, in any order; a third is missing."""
    pairs = [(f"net {n}", float(i)) for n in range(3) for i in range(2 + n)]
    every = [(*pair, sigma, rule) for pair in pairs for sigma in (0.1, 1.0, 10.0) for rule in RULES]
    frame = pd.DataFrame(every, columns=["net", "input", "sigma", "rule"])
    frame[["value", "floor", "stderr"]] = rng.random((len(frame), 3))
    return frame.sample(frac=2 / 3, random_state=1).reset_index(drop=True)


def test_scores_of_all_rows_are_the_measurements_of_each():
    metric, frame = recorded_metric("std_ratio"), some_measurements(np.random.default_rng(0))
    sigmas = frame["sigma"].unique()
    rows = [np.flatnonzero(frame["sigma"] == sigma) for sigma in sigmas]
    for own, scores in zip(rows, Scores.of_rows(metric, frame, RULES, rows), strict=True):
        row = frame.iloc[own]
        pairs = row[["net", "input"]].drop_duplicates()
        measured = row.set_index(["net", "input", "rule"])
        for place, (net, input_) in enumerate(pairs.itertuples(index=False)):
            assert scores.nets[place] == pairs["net"].unique().tolist().index(net)
            for rule, value, error in zip(RULES, scores.values[place], scores.errors[place], strict=True):
                known = measured.loc[[(net, input_, rule)]] if (net, input_, rule) in measured.index else None
                if known is None:
                    assert np.isnan(value)
                    assert np.isnan(error)
                else:
                    assert value == metric.score(*known[["value", "floor"]].to_numpy().T).item()
                    assert error == metric.score_error(*known[["value", "stderr"]].to_numpy().T).item()
        alone = Scores.of(metric, row, RULES)
        for name in ("values", "errors", "nets", "inputs"):
            np.testing.assert_array_equal(getattr(alone, name), getattr(scores, name))


def test_without_a_known_standard_error_a_single_pair_is_tied():
    row = pd.DataFrame({"net": "a", "input": 0.0, "rule": ["sdp", "dvia"], "value": [0.1, 0.11]})
    row = row.assign(floor=0.0, stderr=0.001)
    for spec, tied in (
        ("tv_paper:bin_range=quantiles", False),
        ("tv_paper:bin_range=minmax", False),
        ("tv_paper:bin_range=joint", True),
        ("tv_single", True),
    ):
        scores = Scores.of(recorded_metric(spec), row, ("sdp", "dvia"))
        pair = Replicates(scores.rules, scores.values, scores.errors, scores.nets, scores.inputs, frozenset())
        best = rank(pair, scores.rules).best
        assert best == (("sdp", "dvia") if tied else ("sdp",)), spec


def test_labels_are_those_of_the_same_rows_in_whatever_order():
    assert labels_of([3, 1, 2]) == labels_of(np.array([2, 3, 1])) == labels_of((1, 2, 3))
    assert labels_of([1, 2, 4]) != labels_of([1, 2, 3]) != labels_of([1, 2])
