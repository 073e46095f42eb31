import re
import shutil
import subprocess

import pytest
from pylatexenc.latexwalker import LatexEnvironmentNode, LatexWalker

from sdp_bench.bench.errors import UserError
from sdp_bench.reports.manuscript import (
    PAPER,
    SOFTWARE,
    bibliography,
    reproducibility,
    tabulars,
    write_manuscript,
)
from sdp_bench.reports.results import committed_results
from sdp_bench.reports.style.labels import escaped, number, typed
from tests.project import ROOT
from tests.reports import made_up
from tests.reports.made_up import TRAITS, Results

AGAIN = "sdp-bench export --paper folder"


EVERY = {"experiments": ("iris-tv", "iris-std", "iris-w1"), "rules": made_up.RULES}


def results(**more):
    frame = made_up.frame(**{"depths": (1,), "experiments": ("iris-w1",), "rules": made_up.FEW} | more)
    return Results(frame, made_up.meta(frame))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("manuscript")
    write_manuscript(results(), place, AGAIN)
    return place


def environments(text):
    """Environments at the outermost level, of text that is parsed strictly."""
    nodes, _, _ = LatexWalker(text, tolerant_parsing=False).get_latex_nodes()
    return [node for node in nodes if node.isNodeType(LatexEnvironmentNode)]


def rows_of(text):
    body = re.search(r"\\begin\{tabular\}\{l(r+)\}\n(.*)\\end\{tabular\}", text, re.DOTALL)
    lines = [line.removesuffix(r" \\") for line in body[2].splitlines() if line.endswith(r"\\")]
    return len(body[1]) + 1, [line.split(" & ") for line in lines if "multicolumn" not in line]


def test_each_table_is_one_tabular_with_as_many_cells_in_every_line():
    made = [tabular.latex(TRAITS) for tabular in tabulars(results(**EVERY).tables)]
    assert len(made) == 3 + 3 + 3 + 1  # TV; ratios of three outputs; Bures, KL, eigenvalue; W1
    for text in made:
        assert text.isascii()
        assert text.startswith("% sdp-bench: \\usepackage{booktabs}\n% caption: ")
        assert [each.environmentname for each in environments(text)] == ["tabular"]
        columns, rows = rows_of(text)
        assert {len(row) for row in rows} == {columns}


def test_its_numbers_are_those_of_the_page_bold_and_underlined_as_there():
    shown = results(**EVERY)
    for tabular in tabulars(shown.tables):
        table, (_, rows) = tabular.table, rows_of(tabular.latex(TRAITS))
        assert rows[0][1:] == [f"{escaped('σ')} = {row.sigma:g}" for row in tabular.rows]
        by_rule = {row[0]: row[1:] for row in rows[1:]}
        for place, rule in enumerate(table.rules):
            for text, row in zip(by_rule[escaped(TRAITS.label(rule))], tabular.rows, strict=True):
                cell = row.cells[place]
                assert escaped(number(cell.mean, table.metric.decimals)) in text
                assert ("\\textbf" in text) == cell.best
                assert ("\\underline" in text) == (cell.leads and not cell.best)


def test_the_document_has_every_table_and_figure_and_nothing_that_is_not_there(folder):
    text = (folder / "main.tex").read_text(encoding="ascii")
    named = re.findall(r"\\(?:input|includegraphics)(?:\[[^]]*\])?\{([^}]*)\}", text)
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("[!.]*.*")}
    assert set(named) <= there
    alone = {"main.tex", "paper.bib", "reproducibility.md"}
    vector_graphics = {name.replace(".pdf", ".svg") for name in named}
    assert there == set(named) | alone | vector_graphics
    (document,) = environments(text)
    assert document.environmentname == "document"


def test_the_same_results_make_the_same_files_and_what_is_of_an_older_export_goes(folder, tmp_path):
    write_manuscript(results(depths=(1, 2)), tmp_path, AGAIN)
    (tmp_path / "tables" / "mine.tex").write_text("mine", encoding="utf-8")
    write_manuscript(results(), tmp_path, AGAIN)
    files = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("[!.]*.*")}
    again = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("[!.]*.*")}
    assert again.pop((tmp_path / "tables" / "mine.tex").relative_to(tmp_path)) == b"mine"
    assert again == files


@pytest.mark.parametrize(
    "name",
    [
        "main.tex",
        "paper.bib",
        "reproducibility.md",
        "reproducibility.tex",
        "tables/iris-w1-relu-1-w1.tex",
        "figures/iris-w1-w1.pdf",
        "figures/iris-w1-w1.svg",
    ],
)
def test_no_file_of_others_is_overwritten_and_then_nothing_is_written(name, tmp_path):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("%PDF-1.4 of others", encoding="utf-8")
    with pytest.raises(UserError, match="was not written by sdp-bench"):
        write_manuscript(results(), tmp_path, AGAIN)
    assert [path for path in tmp_path.rglob("*.*") if path.is_file()] == [tmp_path / name]


def test_results_without_tables_make_no_paper(tmp_path):
    with pytest.raises(UserError, match="no results to tabulate"):
        write_manuscript(Results(made_up.frame().iloc[:0]), tmp_path / "out", AGAIN)
    assert not (tmp_path / "out").exists()


def test_the_paragraph_has_versions_seeds_processor_and_commands():
    latex, text = reproducibility(results(), AGAIN).values()
    for part in ("Made-up CPU", "torch 2.13.0", "commit 0123456", "python 3.11.2", "seeds 0 to 1"):
        assert escaped(part) in latex
        assert part in text
    commands = ("pip install torch==2.13.0 numpy==2.3.1 POT==0.9.7", made_up.meta()["command"], AGAIN)
    assert text.endswith("".join(f"- `{command}`\n" for command in commands))
    for command in commands:
        assert typed(command) in latex
    assert f"\\cite{{{SOFTWARE},{PAPER}}}" in latex


NASTY = (
    "a_b",
    "100 % & more",
    "{",
    "}",
    "$x$",
    "#1",
    "\\input{/etc/passwd}",
    "~^",
    "<|>",
    "\\",
    "%",
    "--'`\"",
    "σ ± 0.1 − 2 ≈ ∞",
    "Müller Ångström ñ ç",
    "中文 русский 🙂",
    "a\nb\tc",
    "\x00\x1b[31m",
    "‘’“”…–—",
    "k = 10²",
)


@pytest.mark.parametrize("text", NASTY)
def test_any_text_is_ascii_in_one_line_and_no_command(text):
    for made in (escaped(text), typed(text)):
        assert made.isascii()
        assert "\n" not in made
        LatexWalker(made, tolerant_parsing=False).get_latex_nodes()
        assert not re.search(r"(?<!\\)[%#&](?!\w)|\\input\b(?!\{\})", made)


def test_the_bibliography_says_what_the_citation_file_says():
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    entries = re.findall(r"@(\w+)\{([\w-]+),\n(.*?)\n\}", bibliography(), re.DOTALL)
    assert [key for _, key, _ in entries] == [SOFTWARE, PAPER]
    fields = {key: dict(re.findall(r"  (\w+) = \{(.*)\},?", text)) for _, key, text in entries}
    software = fields[SOFTWARE]
    paper = fields[PAPER]
    assert software["title"] == f"{{{citation['title']}}}: {citation['abstract']}"
    assert software["author"] == "{" + " and ".join(each["name"] for each in citation["authors"]) + "}"
    assert software["version"] == str(citation["version"])
    assert citation["license"] in software["note"]
    (reference,) = citation["references"]
    assert paper["title"] == reference["title"]
    assert paper["booktitle"] == reference["conference"]["name"]
    assert paper["year"] == str(reference["year"])
    names = [f"{each['family-names']}, {each['given-names']}" for each in reference["authors"]]
    assert paper["author"].split(" and ") == names


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="no LaTeX here")
def test_the_document_compiles(folder, tmp_path):
    place = shutil.copytree(folder, tmp_path / "paper")
    latex = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "main.tex"]
    for command in (latex, ["bibtex", "main"], latex, latex):
        done = subprocess.run(command, cwd=place, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:]
    assert b"undefined" not in (place / "main.log").read_bytes()


@pytest.mark.slow
def test_every_table_of_the_committed_results_is_one_tabular_in_ascii():
    results = committed_results()
    made = [tabular.latex(results.traits) for tabular in tabulars(results.tables)]
    assert len(made) >= len(results.tables) > 200
    for text in made:
        assert text.isascii()
        assert [environment.environmentname for environment in environments(text)] == ["tabular"]
