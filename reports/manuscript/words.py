"""A paragraph on reproducing the results, as LaTeX and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sdp_bench.bench.environment import LIBRARIES
from sdp_bench.bench.text import code, markdown
from sdp_bench.reports.manuscript.bibliography import PAPER, SOFTWARE
from sdp_bench.reports.results import Results
from sdp_bench.reports.sections.summary.run import what_ran
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.latex import escaped, typed

_SEEDS = (
    "Samples of oracles, predictions and floors are drawn from seeds that are hashes of what they are of, so "
    "that no number depends on the order of the work, on the number of workers, or on what else was measured."
)


@dataclass(frozen=True)
class Reproducibility:
    """Sentences on what was run and how, and commands to repeat it."""

    sentences: tuple[str, ...]
    commands: tuple[str, ...]

    @property
    def latex(self) -> str:
        commands = " \\\\\n".join(map(typed, self.commands))
        said = escaped(" ".join(self.sentences))
        return (
            f"% sdp-bench: cites {SOFTWARE} and {PAPER} of paper.bib\n"
            f"\\paragraph{{Reproducibility.}}\n{said} \\cite{{{SOFTWARE},{PAPER}}}\n"
            f"\\begin{{quote}}\\small\\ttfamily\\raggedright\n{commands}\n\\end{{quote}}\n"
        )

    @property
    def markdown(self) -> str:
        commands = "\n".join(f"- {code(command)}" for command in self.commands)
        said = markdown(" ".join(self.sentences))
        return f"<!-- sdp-bench -->\n## Reproducibility\n\n{said}\n\n{commands}\n"


def reproducibility(results: Results, again: str) -> Reproducibility:
    """Describe how results were made; `again` is the command that writes these files."""
    meta = results.meta
    ran = str(meta.get("command") or "").splitlines()
    environment = meta.get("environment", {})
    versions = {name: str(environment[name]) for name in ("sdp-bench", *LIBRARIES) if environment.get(name)}
    public = (f"{name}=={version.partition('+')[0]}" for name, version in versions.items())
    install = [f"pip install {' '.join(public)}"] if versions else []
    return Reproducibility(tuple(_sentences(results)), (*install, *ran, again))


def _sentences(results: Results) -> Iterator[str]:
    meta = results.meta
    environment = meta.get("environment", {})
    names = ("sdp-bench", "commit", "python", *LIBRARIES, "platform")
    software = ", ".join(f"{name} {environment[name]}" for name in names if environment.get(name))
    yield from what_ran(results.frame, meta, results.failed, results.traits)
    if software:
        yield f"Software: {software}."
    yield from _seeds(results)


def _seeds(results: Results) -> Iterator[str]:
    seeds = sorted({int(seed) for seed in results.frame["seed"].dropna().unique()})
    if seeds:
        yield f"Nets and repetitions have the seed{'s' * (len(seeds) > 1)} {_spans(seeds)}."
    samples = _numbers(results, "samples")
    if samples:
        yield f"Oracles have {labels.span(samples, 0)} samples."
    yield _SEEDS


def _numbers(results: Results, column: str) -> list[float]:
    frame = results.frame
    return [] if column not in frame else [float(each) for each in frame[column].dropna().unique() if each]


def _spans(numbers: Iterable[int]) -> str:
    """Format ascending integers as ranges: ``0 to 9, 12``."""
    spans: list[list[int]] = []
    for each in numbers:
        if spans and each == spans[-1][-1] + 1:
            spans[-1].append(each)
        else:
            spans.append([each])
    return ", ".join(f"{own[0]} to {own[-1]}" if len(own) > 1 else f"{own[0]}" for own in spans)
