"""Run all simulations and write docs/error_rates.md; exit code 1 if a rate is above its nominal level."""

import sys
from itertools import groupby

import torch

from tests.calibration.simulations import SIMULATIONS, rates_of
from tests.project import ROOT

FILE = ROOT / "docs/error_rates.md"
HEAD = """<!-- Written by `python -m tests.calibration`. -->
# Error rates

How often floors, intervals and verdicts are wrong, in simulations with known truth.
[Concepts](concepts.md) defines them. `python -m tests.calibration` writes
this page in a few minutes; `make slow` runs the same simulations, with the same seeds, as tests.

Each rate is given with its standard error. A test fails if a rate is significantly above its nominal level
(one-sided exact binomial test at 0.001). Where no level is claimed, the rate shows the size of a known
limitation. A *floor* is wrong if an exact rule exceeds the 95 % point, an *interval* if it does not contain
the true value.
"""
TITLES = {"floors": "Floors and intervals of metrics", "verdicts": "Verdicts on statements"}
_HEADER = "| error | condition | nominal | simulated | trials |\n| --- | --- | --- | --- | --- |\n"


def page(rates):
    """The page as Markdown, a table for each module."""
    parts = [HEAD]
    for title, own in groupby(rates, lambda pair: pair[0]):
        parts.append(f"\n## {title}\n\n{_HEADER}")
        for _, rate in own:
            nominal = "–" if rate.nominal is None else f"{rate.nominal:g}"
            simulated = f"{rate.rate:.3f} ± {rate.stderr:.3f}" + " (**too large**)" * rate.too_large
            parts.append(f"| {rate.error} | {rate.condition} | {nominal} | {simulated} | {rate.trials:,} |\n")
    return "".join(parts)


def main():
    torch.set_num_threads(1)
    rates = []
    for simulation in SIMULATIONS:
        for rate in rates_of(simulation):
            print(rate, file=sys.stderr)
            rates.append((TITLES[simulation.__module__.rpartition(".")[2]], rate))
    FILE.write_text(page(rates), encoding="utf-8")
    sys.exit(int(any(rate.too_large for _, rate in rates)))


if __name__ == "__main__":
    main()
