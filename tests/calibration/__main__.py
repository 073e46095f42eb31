"""Run all simulations, and write their rates to docs/error_rates.csv and a summary to docs/error_rates.md.

The exit code is 1 if a rate is above its nominal level.
"""

import sys

import pandas as pd
import torch

from tests.calibration import candidates, few_inputs
from tests.calibration.simulations import SIMULATIONS, rates_of
from tests.project import ROOT

PAGE = ROOT / "docs/error_rates.md"
DATA = PAGE.with_suffix(".csv")
_HEAD = """<!-- Written by `python -m tests.calibration`. -->
# Error rates

This page shows how often floors, intervals and verdicts are wrong, in simulations with known truth.
[Concepts](concepts.md) defines these terms. A *floor* is wrong if an exact rule exceeds the 95 % point, and
an *interval* is wrong if it does not contain the true value.

[error_rates.csv](error_rates.csv) has each rate with its condition, standard error and number of trials.
`python -m tests.calibration` writes the file and this page in a few minutes.
[Nets](models.md#advice-without-an-oracle) has the error rates of `sdp-bench advise` on nets that it was not
calibrated on.
"""
_FEW = "Few inputs"
TITLES = {
    "floors": "Floors and intervals of metrics",
    "verdicts": "Verdicts on statements",
    "few_inputs": _FEW,
}
_FEW_INPUTS = """
## Few inputs

The table shows how often `validate --net` calls a mean error small for inputs like those measured, although
it is just above the limit, by number of inputs. The committed errors are those of all rules in settings with
a mean near the limit, scaled to it. Made-up errors have the worst of several distributions, such as the
largest possible error at a few inputs. Our bounds hold for every distribution (of ratios: up to a factor of
3); Student's t does not. Even errors of zero therefore need 299 inputs for the class, 66 for standard
deviations and 59 for the whole distribution. `python -m tests.calibration.few_inputs` compares five methods.

"""
_COMPARISONS = """
## Two rules on few inputs

`validate --net` calls a rule better if both t and the sign test do (each at 0.025 in each direction), which
takes at least six inputs. The table has the largest rate at which one of two rules with equal mean errors is
called better (3 to 50 inputs; level 0.05), and the power by number of inputs if means differ by more than the
limit. Errors are the committed ones, scaled to equal means for the first column. Betting keeps its level for
every distribution, but has less power. If rare large errors decide the mean, the level is exceeded (see the
shifted errors above); the bounds of the mean error then show that it is unknown.

"""
_CHECK = """
## Independent check

Two persons who had not seen the methods checked the answers, one after the other, against quadrature, Sobol
points and their samples. Rates are those of the second check unless a row is marked with *first*, with exact
binomial intervals. “Wrong” is relative to the decided cases. The functions have 1 to 6 inputs and noise
mostly near the limit. They are smooth, oscillating, kinked or discontinuous. Rates of `advise` are those of
the recorded intervals, which `advise` has compared with the limits themselves since version 0.37.

| answer | cases | wrong | undecided |
| --- | --- | --- | --- |
| `advise`, standard deviations, 32 functions | 1008 | 0 % (0 to 0.4) | 5.2 % |
| within a factor of two of the limit | 407 | 0 % (0 to 1.0) | 12.8 % |
| `advise`, whole distribution, the same functions | 944 | 0.1 % (0 to 0.6) | 3.6 % |
| within a factor of two of the limit | 448 | 0.2 % (0 to 1.3) | 7.6 % |
| `advise`, class, the same functions | 196 | 0.5 % (0 to 3.0) | 6.1 % |
| within a factor of two of the limit | 66 | 1 of 54 (0 to 9.9 %) | 18 % |
| `advise`, standard deviations, 13 nets trained for the check | 405 | 0 % (0 to 1.0) | 8.6 % |
| `advise`, whole distribution, the same nets | 300 | 0 % (0 to 1.3) | 4.3 % |
| `advise`, class, 6 of these nets | 185 | 0 % (0 to 2.1) | 6.5 % |
| `validate`, false "accurate enough" for 1 to 20 inputs, 9 populations | 700 each | 0 % (0 to 0.5) | |
| the same for 60 to 600 inputs | 500 each | at most 5.6 % (3.8 to 8.0) | |
| `sample`, 95 % intervals of mean and standard deviation, Gaussian | 1200 | 5.2 % (4.0 to 6.6) | |
| the same, mean of eight laws that are skewed, discrete or have heavy tails | 800 | 6.2 % (4.7 to 8.2) | |
| 0.95-quantile of these laws | 800 | 2.9 % (1.8 to 4.3) | |
| class probability 0.9, 0.99 and 0.999 | 300 | 3.7 % (1.8 to 6.5) | |
| standard deviation, χ², integers and Bernoulli 0.3 | 300 | 6.7 % (4.1 to 10.1) | |
| standard deviation, rare or large values | 500 | 17.8 % (14.5 to 21.4) | |
| `budget`, 95 % intervals of indices, six functions | 6600 | 5.2 % (4.5 to 6.0) | |
| verdicts, 3 to 40 replicates, level 0.05 (*first*) | 4000 each | at most 4.4 % | |

If rare large outputs dominate the variance, 18 to 38 % of the intervals of a budget miss the exact index; a
note marks such rows. Intervals of standard deviations by `sample` missed in 28 of 100 cases for exp(1.5 x),
in 25 for x + 20 (x > 3), in 13 for exp(x), and in 11 and 12 for events with the probabilities 0.01 and 0.002,
mostly because they were too low. Two rules with equal means were distinguished in up to 13 % of cases with
lognormal differences of scale 1, and in up to 86 % if 2 % of the inputs decide the mean (*first*).

[Continuous integration](ci.md#speed) has the rates of the speed gate.
"""
_HIGH = """
## Largest rates

These rates exceed their nominal level by more than one standard error; some do by chance.

| error | condition | nominal | simulated |
| --- | --- | --- | --- |
"""
_LIMITATIONS = """
## Known limitations

No level is claimed under these conditions:

| error | condition | simulated |
| --- | --- | --- |
"""
_TESTS = """
## Tests of verdicts

Verdicts use the sign test, which is about the median. `python -m tests.calibration.candidates` compares it
with nine tests of the mean or of the centre of symmetry, for normal, exponential, lognormal and committed
effects, also mirrored, with 4 to 60 replicates ([verdict_tests.csv](verdict_tests.csv)). A test is *too
liberal* in a condition if its rate is significantly above its level, 0.05 or 0.005. Power is for ten
replicates with a mean effect of one or two standard deviations.

| test | largest rate at 0.05 | too liberal | power: 1 sd, 0.05 | 2 sd, 0.005 |
| --- | --- | --- | --- | --- |
"""
_CHOICE = """
Only the sign test is nowhere too liberal. If all n replicates agree, its p-value is 2⁻ⁿ.
"""


def data(rates):
    """A data frame with one row for each pair of the title of a table and a rate."""
    rows = [
        {
            "table": title,
            "error": rate.error,
            "condition": rate.condition,
            "nominal": rate.nominal,
            "rate": round(rate.rate, 5),
            "stderr": round(rate.stderr, 5),
            "trials": rate.trials,
        }
        for title, rate in rates
    ]
    return pd.DataFrame(rows)


def page(rows):
    """The page as Markdown: rates above their nominal level, and every rate without a level."""
    is_comparison = rows.error.str.startswith((few_inputs.FALSE_BETTER, few_inputs.RIGHT_BETTER))
    comparisons, rows = rows[is_comparison], rows[~is_comparison]
    is_of_inputs = rows.condition.str.endswith(" inputs") & rows.error.str.startswith("false")
    few, rows = rows[is_of_inputs], rows[~is_of_inputs]
    high = "".join(
        f"| {row.error} | {row.condition} | {row.nominal:g} | {row.rate:.3f} ± {row.stderr:.3f} |\n"
        for row in rows[rows.rate > rows.nominal + rows.stderr].itertuples()
    )
    unclaimed = "".join(
        f"| {row.error} | {row.condition} | {row.rate:.3f} ± {row.stderr:.3f} |\n"
        for row in rows[rows.nominal.isna()].itertuples()
    )
    tests = candidates.summary(pd.read_csv(candidates.DATA))
    about_tests = _TESTS + tests + _CHOICE
    about_inputs = _FEW_INPUTS + _by_inputs(few) + _COMPARISONS + _by_test(comparisons)
    return _HEAD + about_tests + _CHECK + _HIGH + high + _LIMITATIONS + unclaimed + about_inputs


def _by_inputs(rows):
    """Table of false “accurate”, a row for each use, kind of errors and method, by number of inputs."""
    rows = rows[rows.error.str.startswith(few_inputs.ACCURATE)]
    parts = rows.condition.str.rsplit(", ", n=1, expand=True)
    method = rows.error.str.contains("by t").map({True: "t", False: "bounds"})
    counts = parts[1].str.split().str[0].astype(int)
    table = rows.assign(errors=parts[0], method=method, inputs=counts)
    table = table.pivot_table("rate", ["errors", "method"], "inputs", sort=False)
    head = "| use, errors | method | " + " | ".join(f"{count}" for count in table.columns) + " |\n"
    lines = [head, "| --- " * (len(table.columns) + 2) + "|\n"]
    for names, shares in table.iterrows():
        cells = [*names, *(f"{share:.3f}" for share in shares)]
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)


def _by_test(rows):
    """Table of level and power, a row for each use and test, by number of inputs."""
    parts = rows.condition.str.rsplit(", ", n=1, expand=True)
    tests = rows.error.str.split(" by ", n=1, expand=True)
    counts = parts[1].str.split().str[0].astype(int)
    table = rows.assign(use=parts[0], test=tests[1], level=tests[0].str.startswith("false"), inputs=counts)
    table = table.pivot_table("rate", ["use", "test"], ["level", "inputs"], sort=False)
    levels, powers = table[True], table[False]
    head = ["largest rate", *(f"power, {count}" for count in powers.columns)]
    lines = [f"| use | test | {' | '.join(head)} |\n", "| --- " * (len(head) + 2) + "|\n"]
    for names in table.index:
        cells = [*names, f"{levels.loc[names].max():.3f}", *(f"{rate:.2f}" for rate in powers.loc[names])]
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)


def main():
    torch.set_num_threads(1)
    rates = []
    for simulation in SIMULATIONS:
        for rate in rates_of(simulation):
            print(rate, file=sys.stderr)
            rates.append((TITLES[simulation.__module__.rpartition(".")[2]], rate))
    rows = data(rates)
    rows.to_csv(DATA, index=False)
    PAGE.write_text(page(rows), encoding="utf-8")
    sys.exit(int(any(rate.too_large for _, rate in rates)))


if __name__ == "__main__":
    main()
