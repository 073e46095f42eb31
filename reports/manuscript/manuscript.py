"""The folder with the parts of a paper."""

from __future__ import annotations

import itertools
import re
from collections.abc import Container, Iterable
from pathlib import Path

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments import experiments
from sdp_bench.bench.files import check_writable
from sdp_bench.reports.folder import check, inside, remove, write
from sdp_bench.reports.manuscript.bibliography import bibliography
from sdp_bench.reports.manuscript.figures import Plot, plots
from sdp_bench.reports.manuscript.tables import KEY, tabulars
from sdp_bench.reports.manuscript.words import reproducibility
from sdp_bench.reports.results import Results
from sdp_bench.reports.style.figure import KINDS
from sdp_bench.reports.style.latex import escaped
from sdp_bench.reports.tables.tables import Table

MAIN, BIBLIOGRAPHY = "main.tex", "paper.bib"
LATEX, MARKDOWN = "reproducibility.tex", "reproducibility.md"
TABLES, FIGURES = "tables", "figures"
"""Subfolders of the paper's folder."""

_HEAD = r"""% sdp-bench: written anew by each export; \input its parts in a document of yours
\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage{amsmath,booktabs,float,graphicx,lmodern,textcomp}
\begin{document}
"""
_TAIL = r"""\clearpage
\input{reproducibility.tex}
\bibliographystyle{plain}
\bibliography{paper}
\end{document}
"""
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
        raise UserError("no measurements are there that tables are made of; `sdp-bench run` makes some")
    files: dict[Path, str] = {}
    figures: dict[Path, Plot] = {}
    document = [_HEAD, f"\\noindent {escaped(KEY)}\n"]
    tables = _in_order(results.tables)
    for name, own in tables.items():
        document.append(f"\\clearpage\n\\section*{{{escaped(_title(name))}}}\n")
        for plot in plots(own):
            path = _free(figures, FIGURES, plot.words, KINDS[0])
            figures[path] = plot
            document.append(_FIGURE % (path.as_posix(), plot.caption))
        for tabular in tabulars(own):
            path = _free(files, TABLES, tabular.words, "tex")
            files[path] = tabular.latex(results.traits)
            document.append(_TABLE % (tabular.caption, path.as_posix()))
    words = reproducibility(results, again)
    files |= {Path(LATEX): words.latex, Path(MARKDOWN): words.markdown, Path(BIBLIOGRAPHY): bibliography()}
    files[Path(MAIN)] = "".join([*document, _TAIL])
    _make_sure(folder, [*files, *(path.with_suffix(f".{kind}") for path in figures for kind in KINDS)])
    written = []
    for path, plot in figures.items():
        figure = plot.figure(results.traits)
        written += [write(folder / path.with_suffix(f".{kind}"), figure.content(kind)) for kind in KINDS]
    written += [write(folder / path, content) for path, content in files.items()]
    for old in {path for name in (TABLES, FIGURES) for path in (folder / name).glob("*")} - set(written):
        remove(old)
    return written


def _make_sure(folder: Path, paths: Iterable[Path]) -> None:
    """Raise UserError if foreign files are in the way, before anything is drawn."""
    for name in (TABLES, FIGURES):
        inside(folder, name)
    check(folder, map(str, paths))
    check_writable(folder / MAIN)


def _in_order(tables: tuple[Table, ...]) -> dict[str, list[Table]]:
    """Tables by experiment, in the order of the page."""
    by_name: dict[str, list[Table]] = {}
    for table in tables:
        by_name.setdefault(table.experiment, []).append(table)
    return {name: by_name[name] for name in (*experiments(), *sorted(by_name)) if name in by_name}


def _title(name: str) -> str:
    known = experiments().get(name)
    return (known.title if known else "") or name


def _free(taken: Container[Path], folder: str, words: tuple[str, ...], kind: str) -> Path:
    """Unused file name, made from words in characters that LaTeX accepts."""
    stem = re.sub(r"[^a-z0-9]+", "-", "-".join(filter(None, words)).lower()).strip("-")
    ends = itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
    paths = (Path(folder, f"{stem}{end}.{kind}") for end in ends)
    return next(path for path in paths if path not in taken)
