"""The parts of a paper: tables and a paragraph in LaTeX, figures, a bibliography, and a document with all."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ..bench.environment import LIBRARIES, version
from ..bench.errors import UserError
from ..bench.files import check_writable
from ..bench.text import code, markdown
from .folder import check, inside, remove, write
from .results import Results
from .sections.fidelity import missing, what_ran
from .style import labels
from .style.figure import KINDS, Figure, look
from .style.labels import escaped, number, spread, typed
from .style.names import RuleTraits
from .style.theme import styles
from .tables.over_noise import over_noise
from .tables.tables import Cell, Row, Table, by_experiment, suite_title
from .writing import TEMPLATES

SOFTWARE, PAPER = "sdp-bench", "petersen2024uncertainty"
"""Keys of the entries."""


def bibliography() -> str:
    """Entries of the installed package and of the paper whose rules it measures."""
    return (TEMPLATES / "paper.bib").read_text(encoding="utf-8").replace("VERSION", version("sdp-bench"))


def plots(tables: Iterable[Table]) -> dict[tuple[str, ...], list[Table]]:
    """Tables that share a figure (one metric over several noise levels), by words that distinguish it."""
    together: dict[tuple[str, ...], list[Table]] = {}
    for table in tables:
        if not table.has_components and len({row.sigma for row in table.rows}) > 1:
            words = (table.experiment, table.metric.name, table.under, table.variant, table.recipe)
            together.setdefault(words, []).append(table)
    return together


@look()
def _figure(words: tuple[str, ...], tables: Sequence[Table], traits: RuleTraits) -> Figure:
    styled = styles((rule for table in tables for rule in table.rules), traits)
    drawing = over_noise([(table.nets_label, table) for table in tables], styled)
    first = tables[0]
    sampled = any("monte_carlo" in rule for rule in first.rules)
    band = " The band spans the numbers of Monte Carlo samples." if sampled else ""
    caption = f"{first.title}, mean over nets and inputs, against the noise level ({first.scale}).{band}"
    return Figure("-".join(filter(None, words)), first.title, caption, drawing)


KEY = (
    "Mean ± standard deviation over nets and inputs. Bold: best at its noise level and the rules that are "
    "statistically tied with it; underlined: the same among deterministic rules, where sampling is best."
)
"""Explanation of the cells."""
_NOT_MEASURED = "--"
_UNITS = {"": "", "1": "", "output": "units of the output", "nat": "nats"}


@dataclass(frozen=True)
class Tabular:
    """One component of a table of the page; `component` is empty if there is only one."""

    table: Table
    rows: tuple[Row, ...]
    component: str

    @property
    def words(self) -> tuple[str, ...]:
        table = self.table
        nets = (table.experiment, table.activation, str(table.depth))
        return (*nets, table.metric.name, table.under, table.variant, table.recipe, self.component)

    @property
    def caption(self) -> str:
        table = self.table
        which = f"{table.metric.component or 'component'} {self.component}" if self.component else ""
        said = ", ".join(filter(None, (table.title, which, table.kind.label)))
        better = {"higher": " Higher is better.", "lower": " Lower is better."}.get(table.metric.better, "")
        return escaped(f"{said} ({table.design}).{better}")

    def latex(self, traits: RuleTraits) -> str:
        r"""The table as a file for ``\input``, for the package booktabs."""
        table = self.table
        unit = _UNITS.get(table.unit, table.unit)
        head = escaped(table.label) + (f" [{escaped(unit)}]" if unit else "")
        by_rule: dict[str, list[str]] = {}
        if table.has_floor:
            by_rule["floor" if table.metric.better == "lower" else "exact law"] = [
                _NOT_MEASURED if math.isnan(row.floor) else self._number(row.floor) for row in self.rows
            ]
        for rule, cells in zip(table.rules, zip(*(row.cells for row in self.rows), strict=True), strict=True):
            if any(cells):
                by_rule[escaped(traits.label(rule))] = [self._cell(cell) for cell in cells]
        sigmas = [f"{escaped(table.scale)} = {row.sigma:g}" for row in self.rows]
        columns = pd.MultiIndex.from_product([[head], sigmas])
        frame = pd.DataFrame.from_dict(by_rule, orient="index", columns=columns)
        body = frame.style.to_latex(column_format="l" + "r" * len(sigmas), multicol_align="c", hrules=True)
        return f"% sdp-bench: \\usepackage{{booktabs}}\n% caption: {self.caption}\n% {escaped(KEY)}\n{body}"

    def _number(self, x: float) -> str:
        return escaped(number(x, self.table.metric.decimals))

    def _cell(self, cell: Cell | None) -> str:
        if cell is None:
            return _NOT_MEASURED
        mean = self._number(cell.mean)
        if cell.best or cell.leads:
            mean = f"\\{'textbf' if cell.best else 'underline'}{{{mean}}}"
        beside = ""
        if cell.infinite:
            beside = f"in {cell.infinite} of {cell.count}"
        elif not math.isnan(cell.sd):
            beside = escaped(f"± {spread(cell.sd, cell.mean, self.table.metric.decimals)}")
        if cell.count != self.table.units:
            beside += f" (n = {cell.count})"
        return mean + (f" {{\\scriptsize {beside.strip()}}}" if beside else "")


def tabulars(tables: Iterable[Table]) -> Iterator[Tabular]:
    for table in tables:
        by_component: dict[str, list[Row]] = {}
        for row in table.rows:
            by_component.setdefault(row.component, []).append(row)
        for component, rows in by_component.items():
            yield Tabular(table, tuple(rows), component)


def reproducibility(results: Results, again: str) -> dict[Path, str]:
    """Describe how results were made, as LaTeX and as Markdown; `again` is the command for these files."""
    ran = str(results.meta.get("command") or "").splitlines()
    environment = results.meta.get("environment", {})
    versions = {name: str(environment[name]) for name in ("sdp-bench", *LIBRARIES) if environment.get(name)}
    public = (f"{name}=={version.partition('+')[0]}" for name, version in versions.items())
    commands = (*([f"pip install {' '.join(public)}"] if versions else []), *ran, again)
    said = " ".join(_sentences(results))
    latex = (
        f"% sdp-bench: cites {SOFTWARE} and {PAPER} of paper.bib\n"
        f"\\paragraph{{Reproducibility.}}\n{escaped(said)} \\cite{{{SOFTWARE},{PAPER}}}\n"
        "\\begin{quote}\\small\\ttfamily\\raggedright\n"
    )
    latex += " \\\\\n".join(map(typed, commands)) + "\n\\end{quote}\n"
    text = f"<!-- sdp-bench -->\n## Reproducibility\n\n{markdown(said)}\n\n"
    text += "".join(f"- {code(command)}\n" for command in commands)
    return {Path(LATEX): latex, Path(MARKDOWN): text}


def _sentences(results: Results) -> Iterator[str]:
    frame, environment = results.frame, results.meta.get("environment", {})
    names = ("sdp-bench", "commit", "python", *LIBRARIES, "platform")
    software = ", ".join(f"{name} {environment[name]}" for name in names if environment.get(name))
    if len(frame):
        yield from what_ran(frame, results)
    yield from missing(results)
    if software:
        yield f"Software: {software}."
    seeds = np.sort(frame["seed"].dropna().unique().astype(int))
    if len(seeds):
        spans = np.split(seeds, np.flatnonzero(np.diff(seeds) > 1) + 1)
        words = (f"{own[0]} to {own[-1]}" if len(own) > 1 else f"{own[0]}" for own in spans)
        yield f"Nets and repetitions have the seed{'s' * (len(seeds) > 1)} {', '.join(words)}."
    samples = [float(count) for count in frame["samples"].dropna().unique() if count]
    if samples:
        yield f"Oracles have {labels.span(samples, 0)} samples."
    yield (
        "Samples of oracles, predictions and floors are drawn from seeds that are hashes of what they are "
        "of, so that no number depends on the order of the work, on the number of workers, or on what else "
        "was measured."
    )


MAIN, BIBLIOGRAPHY = "main.tex", "paper.bib"
LATEX, MARKDOWN = "reproducibility.tex", "reproducibility.md"
TABLES, FIGURES = "tables", "figures"
"""Subfolders of the paper's folder."""

_TABLE = r"""\begin{table}[H]
\centering
\caption{%s}
\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{\input{%s}}
\end{table}
"""
_FIGURE = r"""\begin{figure}[H]
\centering
\includegraphics[width=\linewidth,height=.85\textheight,keepaspectratio]{%s}
\caption{%s}
\end{figure}
"""


def write_manuscript(results: Results, folder: Path, again: str) -> list[Path]:
    """Write tables, figures and texts of a paper, and a document with all of these; return the paths.

    The document comes last. Files of an older export are replaced, or removed if they have no successor;
    other files stay. `again` is the command that repeats this export. Raises UserError if there is nothing to
    tabulate or a foreign file is in the way, and RunFailedError if the folder is not writable.
    """
    if not results.tables:
        raise UserError("there are no results to tabulate; measure some with `sdp-bench run`")
    files: dict[Path, str] = {}
    figures: dict[Path, Figure] = {}
    document = [f"\\noindent {escaped(KEY)}\n"]
    for name, own in by_experiment(results.tables).items():
        document.append(f"\\clearpage\n\\section*{{{escaped(suite_title(name))}}}\n")
        for words, tables in plots(own).items():
            path = _free(figures, FIGURES, words, KINDS[0])
            figures[path] = _figure(words, tables, results.traits)
            document.append(_FIGURE % (path.as_posix(), escaped(figures[path].caption)))
        for tabular in tabulars(own):
            path = _free(files, TABLES, tabular.words, "tex")
            files[path] = tabular.latex(results.traits)
            document.append(_TABLE % (tabular.caption, path.as_posix()))
    files |= reproducibility(results, again) | {Path(BIBLIOGRAPHY): bibliography()}
    frame = (TEMPLATES / "paper.tex").read_text(encoding="utf-8")
    files[Path(MAIN)] = frame.replace("CONTENT", "".join(document))
    drawn = {path.with_suffix(f".{kind}"): (one, kind) for path, one in figures.items() for kind in KINDS}
    before = {path for name in (TABLES, FIGURES) for path in inside(folder, name).glob("*")}
    check(folder, map(str, [*files, *drawn]))
    check_writable(folder / MAIN)
    written = [write(folder / path, figure.content(kind)) for path, (figure, kind) in drawn.items()]
    written += [write(folder / path, content) for path, content in files.items()]
    for old in before - set(written):
        remove(old)
    return written


def _free(taken: Container[Path], folder: str, words: tuple[str, ...], kind: str) -> Path:
    """Unused file name, made from words in characters that LaTeX accepts."""
    stem = re.sub(r"[^a-z0-9]+", "-", "-".join(filter(None, words)).lower()).strip("-")
    ends = itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
    paths = (Path(folder, f"{stem}{end}.{kind}") for end in ends)
    return next(path for path in paths if path not in taken)
