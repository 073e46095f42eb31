"""The committed results as a page of the documentation.

``python -m sdp_bench.reports.results_page docs/results.md`` writes it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import click

from sdp_bench.bench.files import write
from sdp_bench.bench.metrics.references import ORACLE_MOMENTS
from sdp_bench.bench.text import markdown
from sdp_bench.reports.replication.page import Rulings
from sdp_bench.reports.results import Results, committed_results
from sdp_bench.reports.section import sections, tabulated
from sdp_bench.reports.style.names import RuleTraits
from sdp_bench.reports.writing import rendered

RULES = (
    "sdp",
    "dvia",
    "dvia:means=regular_covariance",
    "moment_matching",
    "unscented",
    "marginal_sdp",
    "marginal_moment_matching",
    "monte_carlo:samples=10",
    "monte_carlo:samples=100",
    "oracle_moments",
)
"""Rules with a column; the report has all rules."""

BEYOND = (
    "sdp",
    "unscented",
    "divided_difference",
    "split:base=sdp,k=9",
    "split:base=sdp,k=64",
    *(f"split:base=divided_difference:step=1.25,k={k}" for k in (9, 64, 1024)),
    "monte_carlo:samples=1000",
    "oracle_moments",
)
"""Rules with a column in the table of mixtures."""

_SECTIONS = ("overview", "choice", "compute", "sensitivity", "oracle", "uci", "selective", "runtime")
_TABLES = {
    "mixtures": ("iris-mixtures", 4, ("tv_headline",)),
    "shared_mass": ("iris-tv", 4, ("tv_headline", "tv_paper", "tv_class")),
    "ratios": ("iris-std", 4, ("std_ratio",)),
    "distances": ("iris-w1", 4, ("w1",)),
    "certified": ("iris-w1-certified", 4, ("w1_certified",)),
    "heavy_tails": ("iris-cauchy", 4, ("tv_joint", "iqr_ratio")),
    "classifier": ("resnet-tv", 18, ("tv_class", "tv_margin")),
}
"""Experiment, depth and metrics of the tables, by name of the template's variable."""


def results_page(results: Results) -> str:
    """Return the page as Markdown, from results of every experiment: texts of sections and a few tables."""
    results = _escaped(results)
    every = sections()
    results = tabulated(results, every)
    shown = {section.name: section.build(results) for section in every if section.name in _SECTIONS}
    variables: dict[str, object] = {
        "sections": shown,
        "rulings": Rulings.of(results),
        "rules": RULES,
        "beyond": BEYOND,
        "names": [rule for rule in dict.fromkeys(RULES + BEYOND) if rule != ORACLE_MOMENTS.name],
    }
    for name, (experiment, depth, metrics) in _TABLES.items():
        own = [table for table in results.tables if (table.experiment, table.depth) == (experiment, depth)]
        variables[name] = [table for table in own if table.metric.name in metrics]
    text = rendered("results.md", results.traits, variables)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _escaped(results: Results) -> Results:
    """Results with names escaped for Markdown; names from this package need no escaping."""
    frame, stored = results.frame, results.traits.stored
    for name in frame.select_dtypes(["object", "string", "category"]).columns:
        texts = [text for text in frame[name].unique() if isinstance(text, str)]
        frame = frame.assign(**{name: frame[name].map({text: markdown(text) for text in texts})})
    traits = {markdown(rule): replace(own, label=markdown(own.label)) for rule, own in stored.items()}
    return replace(results, frame=frame, traits=RuleTraits(traits))


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def _main(file: Path) -> None:
    write(file, results_page(committed_results()))


if __name__ == "__main__":
    _main()
