"""The parts of a paper: tables and a paragraph in LaTeX, figures, a bibliography, and a document with all."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
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
from .tables.tables import Cell, Table, TableRow, by_experiment, setting_of, suite_title
from .writing import TEMPLATES

SOFTWARE, PAPER = "sdp-bench", "petersen2024uncertainty"
"""Keys of the entries."""


def bibliography() -> str:
    """Entries of the installed package and of the paper whose rules it measures."""
    return (TEMPLATES / "paper.bib").read_text(encoding="utf-8").replace("VERSION", version("sdp-bench"))


def plots(tables: Iterable[Table]) -> dict[tuple[str, ...], list[Table]]:
    """Tables that share a figure (one metric over several noise levels), by words that distinguish it."""
    by_words: dict[tuple[str, ...], list[Table]] = {}
    for table in tables:
        if not table.has_components and len({row.sigma for row in table.rows}) > 1:
            words = (table.experiment, table.metric.name, table.under, table.variant, table.recipe)
            by_words.setdefault(words, []).append(table)
    return by_words


@look()
def _figure(words: tuple[str, ...], tables: Sequence[Table], traits: RuleTraits) -> Figure:
    rules = {rule for table in tables for rule in table.rules}
    drawing = over_noise([(table.nets_label, table) for table in tables], styles(rules, traits))
    first = tables[0]
    has_band = any("monte_carlo" in rule for rule in first.rules)
    band = " The band spans the numbers of Monte Carlo samples." if has_band else ""
    caption = f"{first.title}, mean over nets and inputs, against the noise level ({first.scale}).{band}"
    return Figure("-".join(filter(None, words)), first.title, caption, drawing, setting=setting_of(tables))


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
    rows: tuple[TableRow, ...]
    component: str

    @property
    def words(self) -> tuple[str, ...]:
        """Words that distinguish it from other parts of a paper; some are empty."""
        table = self.table
        return (
            table.experiment,
            table.activation,
            str(table.depth),
            table.metric.name,
            table.under,
            table.variant,
            table.recipe,
            self.component,
        )

    @property
    def caption(self) -> str:
        """Caption in LaTeX."""
        table = self.table
        component = f"{table.metric.component or 'component'} {self.component}" if self.component else ""
        subject = ", ".join(filter(None, (table.title, component, table.kind.label)))
        better = {"higher": " Higher is better.", "lower": " Lower is better."}.get(table.metric.better, "")
        return escaped(f"{subject} ({table.design}).{better}")

    def latex(self, traits: RuleTraits) -> str:
        r"""The table as a file for ``\input``, for the package booktabs."""
        table = self.table
        unit = _UNITS.get(table.unit, table.unit)
        heading = escaped(table.label) + (f" [{escaped(unit)}]" if unit else "")
        lines: dict[str, list[str]] = {}
        if table.has_floor:
            label = "floor" if table.metric.better == "lower" else "exact law"
            lines[label] = [
                _NOT_MEASURED if math.isnan(row.floor) else self._number(row.floor) for row in self.rows
            ]
        for column, rule in enumerate(table.rules):
            cells = [row.cells[column] for row in self.rows]
            if any(cells):
                lines[escaped(traits.label(rule))] = [self._cell(cell) for cell in cells]
        sigmas = [f"{escaped(table.scale)} = {row.sigma:g}" for row in self.rows]
        columns = pd.MultiIndex.from_product([[heading], sigmas])
        frame = pd.DataFrame.from_dict(lines, orient="index", columns=columns)
        body = frame.style.to_latex(column_format="l" + "r" * len(sigmas), multicol_align="c", hrules=True)
        return f"% sdp-bench: \\usepackage{{booktabs}}\n% caption: {self.caption}\n% {escaped(KEY)}\n{body}"

    def _number(self, value: float) -> str:
        return escaped(number(value, self.table.metric.decimals))

    def _cell(self, cell: Cell | None) -> str:
        if cell is None:
            return _NOT_MEASURED
        mean = self._number(cell.mean)
        if cell.best:
            mean = f"\\textbf{{{mean}}}"
        elif cell.leads:
            mean = f"\\underline{{{mean}}}"
        remark = ""
        if cell.infinite:
            remark = f"in {cell.infinite} of {cell.count}"
        elif not math.isnan(cell.sd):
            remark = escaped(f"± {spread(cell.sd, cell.mean, self.table.metric.decimals)}")
        if cell.count != self.table.units:
            remark += f" (n = {cell.count})"
        return f"{mean} {{\\scriptsize {remark.strip()}}}" if remark else mean


def tabulars(tables: Iterable[Table]) -> Iterator[Tabular]:
    """Yield one part for each component of each table."""
    for table in tables:
        by_component: dict[str, list[TableRow]] = {}
        for row in table.rows:
            by_component.setdefault(row.component, []).append(row)
        for component, rows in by_component.items():
            yield Tabular(table, tuple(rows), component)


def reproducibility(results: Results, export_command: str) -> dict[Path, str]:
    """Describe how results were made, as LaTeX and as Markdown, by file.

    `export_command` is the command that writes these files.
    """
    environment = results.meta.get("environment", {})
    packages = []
    for name in ("sdp-bench", *LIBRARIES):
        if environment.get(name):
            public_version, _, _ = str(environment[name]).partition("+")
            packages.append(f"{name}=={public_version}")
    commands = [f"pip install {' '.join(packages)}"] if packages else []
    commands += str(results.meta.get("command") or "").splitlines()
    commands.append(export_command)
    description = " ".join(_sentences(results))
    latex = (
        f"% sdp-bench: cites {SOFTWARE} and {PAPER} of paper.bib\n"
        f"\\paragraph{{Reproducibility.}}\n{escaped(description)} \\cite{{{SOFTWARE},{PAPER}}}\n"
        "\\begin{quote}\\small\\ttfamily\\raggedright\n"
    )
    latex += " \\\\\n".join(map(typed, commands)) + "\n\\end{quote}\n"
    text = f"<!-- sdp-bench -->\n## Reproducibility\n\n{markdown(description)}\n\n"
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
        consecutive = np.split(seeds, np.flatnonzero(np.diff(seeds) > 1) + 1)
        ranges = [f"{run[0]} to {run[-1]}" if len(run) > 1 else f"{run[0]}" for run in consecutive]
        noun = "seeds" if len(seeds) > 1 else "seed"
        yield f"Nets and repetitions have the {noun} {', '.join(ranges)}."
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


def write_manuscript(results: Results, folder: Path, export_command: str) -> list[Path]:
    """Write tables, figures and texts of a paper, and a document with all of these; return the paths.

    The document comes last. Files of an older export are replaced, or removed if they have no successor;
    other files stay. `export_command` is the command that repeats this export. Raises UserError if there is
    nothing to tabulate or a foreign file is in the way, and RunFailedError if the folder is not writable.
    """
    if not results.tables:
        raise UserError("there are no results to tabulate; measure some with `sdp-bench run`")
    texts: dict[Path, str] = {}
    figures: dict[Path, Figure] = {}
    document = [f"\\noindent {escaped(KEY)}\n"]
    for name, tables in by_experiment(results.tables).items():
        document.append(f"\\clearpage\n\\section*{{{escaped(suite_title(name))}}}\n")
        for words, tables_of_figure in plots(tables).items():
            path = _unused_path(figures, FIGURES, words, KINDS[0])
            figures[path] = _figure(words, tables_of_figure, results.traits)
            document.append(_FIGURE % (path.as_posix(), escaped(figures[path].caption)))
        for tabular in tabulars(tables):
            path = _unused_path(texts, TABLES, tabular.words, "tex")
            texts[path] = tabular.latex(results.traits)
            document.append(_TABLE % (tabular.caption, path.as_posix()))
    texts |= reproducibility(results, export_command)
    texts[Path(BIBLIOGRAPHY)] = bibliography()
    template = (TEMPLATES / "paper.tex").read_text(encoding="utf-8")
    texts[Path(MAIN)] = template.replace("CONTENT", "".join(document))
    return _write_files(folder, figures, texts)


def _write_files(folder: Path, figures: Mapping[Path, Figure], texts: Mapping[Path, str]) -> list[Path]:
    """Write figures, each in all formats, and texts; remove files of an older export."""
    old_paths = {path for name in (TABLES, FIGURES) for path in inside(folder, name).glob("*")}
    formats = {path.with_suffix(f".{kind}"): (path, kind) for path in figures for kind in KINDS}
    check(folder, map(str, [*texts, *formats]))
    check_writable(folder / MAIN)
    written = [write(folder / file, figures[path].content(kind)) for file, (path, kind) in formats.items()]
    written += [write(folder / path, text) for path, text in texts.items()]
    for path in old_paths - set(written):
        remove(path)
    return written


def _unused_path(used: Container[Path], folder: str, words: tuple[str, ...], suffix: str) -> Path:
    """Unused file name, made from words in characters that LaTeX accepts."""
    stem = re.sub(r"[^a-z0-9]+", "-", "-".join(filter(None, words)).lower()).strip("-")
    path = Path(folder, f"{stem}.{suffix}")
    count = 1
    while path in used:
        count += 1
        path = Path(folder, f"{stem}-{count}.{suffix}")
    return path
