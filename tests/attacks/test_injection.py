"""Texts that are formulas, markup, commands to a terminal or paths of this machine, in every output."""

import contextlib
import csv
import io
import json
import re
import sys
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from sdp_bench.bench import text
from sdp_bench.bench.errors import OutsideError, outside
from sdp_bench.bench.gate import report
from sdp_bench.bench.gate.check import Outcome
from sdp_bench.bench.gate.verdict import Finding, Status, Verdict
from sdp_bench.bench.plugins.code import Code
from sdp_bench.bench.plugins.plugin import Plugin
from sdp_bench.bench.results import comparison
from sdp_bench.bench.results.comparison import Comparison
from sdp_bench.bench.results.exchange import export, import_
from sdp_bench.bench.results.record import Failure, LeftOut, RunDescription
from sdp_bench.bench.results.store import Store
from sdp_bench.bench.settings import Settings
from sdp_bench.commands import progress, screen
from sdp_bench.reports.page import build
from sdp_bench.reports.results import committed_results
from sdp_bench.reports.results_page import results_page
from sdp_bench.reports.scorecard.candidate import Candidate
from sdp_bench.reports.scorecard.page import Scorecard
from sdp_bench.reports.scorecard.page import build as build_scorecard
from sdp_bench.reports.style.rules import RuleTraits
from sdp_ref.rules import Traits
from tests.attacks.calls import called
from tests.project import ROOT
from tests.reports.made_up import SECTIONS, frame, results

HOSTILE = (
    "=1+1",
    '=HYPERLINK("http://evil.example","x")',
    "+cmd|' /C calc'!A0",
    "-2+3+cmd|' /C calc'!A0",
    "@SUM(1+1)",
    "\t=1",
    "\r=1",
    "a | b | c",
    "![x](http://evil.example/x.png)",
    "[x](javascript:alert(1))",
    "two\nlines",
    "two\r\n\r\n# lines",
    "`code` ``more``",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "&lt;b&gt; \"quoted\" 'quoted'",
    "*bold* _thin_ ~~gone~~ @everyone #1",
    "{{ 7 * 7 }} {% raw %}",
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "nul\x00 bell\x07 back\x08",
    "\x9b2J",
    "\u202egnp.exe",
    "\u2066isolated\u2069 \u200f",
    "lone \udcff \ud800",
    "\ufffe \uffff",
    "/home/somebody/secret/rule.py:Mine",
    "cannot read '/home/somebody/secret/data.csv'",
    "--database=/home/somebody/secret/r.sqlite",
)
SECRET = "somebody"
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


@pytest.fixture
def held(attack):
    """Try a function on each hostile text; it says what of the output is wrong."""

    def tried(what, wrong):
        with attack(f"injection into {what}") as counted:
            for each in HOSTILE:
                found = wrong(each)
                counted.tried(f"{each!r}: {found}", held=not found)

    return tried


def obeyed(output):
    """What a terminal would obey, or tells of this machine."""
    return [each for each in (_OBEYED.search(output), SECRET in output and SECRET) if each]


def formulas(content):
    """Cells that a spreadsheet computes."""
    cells = [cell for row in csv.reader(io.StringIO(content)) for cell in row]
    return [cell for cell in cells if cell[:1] in ("=", "+", "-", "@", "\t", "\r") and not _is_number(cell)]


def _is_number(cell):
    with contextlib.suppress(ValueError):
        float(cell)
        return True
    return False


def markup(content):
    """What Markdown makes of a text beside its words: nothing is allowed but code and bold."""
    plain = re.sub(r"\\[!-/:-@\[-`{-~]", "", content)  # escaped
    plain = re.sub(r"`[^`\n]*`", "", plain)
    return re.findall(r"!\[|\]\(|\[|<(?!/?sub>)|`|://|(?<!\w)@", plain)


class _Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found += [tag] if tag == "script" else []
        self.found += [name for name, _ in attrs if name.startswith("on")]


def tags(html):
    """Scripts and handlers of events in a page."""
    parser = _Tags()
    parser.feed(html)
    return sorted(parser.found)


# The gate --------------------------------------------------------------------------------------


def outcome(hostile):
    finding = Finding(hostile, hostile, Status.CHANGED, hostile)
    failed = Finding(f"b {hostile}", "", Status.FAILED, hostile)
    verdict = Verdict("accuracy", (finding, failed), hostile)
    return Outcome((verdict,), 1, {"cpu": hostile, "torch": "2"}, Path("/home/somebody/ci.json"))


def test_a_summary_for_a_pull_request_shows_texts_and_makes_nothing_of_them(held):
    def wrong(hostile):
        written = report.markdown(outcome(hostile))
        rows = [line for line in written.splitlines() if line.startswith("|")]
        columns = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
        return obeyed(written) or markup(written) or (columns != {6, 8} and columns)

    held("Markdown", wrong)


def test_a_junit_file_is_xml_that_holds_them(held):
    def wrong(hostile):
        content = report.junit(outcome(hostile))
        root = ElementTree.fromstring(content)
        values = [value for each in root.iter() for value in each.attrib.values()]
        return obeyed("".join([*root.itertext(), *values])) or (
            len(list(root.iter("testcase"))) != 2 and "cases"
        )

    held("JUnit", wrong)


# The terminal ----------------------------------------------------------------------------------


def test_a_terminal_obeys_none(held, capsys):
    def wrong(hostile):
        screen.echo(hostile)
        screen.echo(report.text(outcome(hostile)))
        with progress.meter(hostile) as meter:
            meter.done(1, 1, hostile)
            meter.note(hostile)
        progress.Screen().say(hostile)
        shown = capsys.readouterr()
        return _OBEYED.findall(shown.out + shown.err)

    held("the terminal", wrong)


def test_files_compared_obey_none(held, tmp_path, monkeypatch):
    for name in ("a", "b"):
        written(tmp_path / name)
    monkeypatch.chdir(tmp_path)

    def wrong(hostile):
        hostile = hostile.encode(errors="replace").decode()
        largest = pd.DataFrame({"key": [hostile], "component": [hostile], "a": [1.0], "b": [2.0]})
        found = Comparison(0, 1, Counter(value=1), largest, 0, 0, 0, 0)
        monkeypatch.setattr(comparison, "compare", lambda *_: found)
        code, out, err = called(["diff", "a", "b"])
        return _OBEYED.findall(out) or (code, err) != (0, "") or len(out.splitlines()) != 4

    held("a comparison", wrong)


def test_what_the_command_says_of_its_arguments_obeys_none(held, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def wrong(hostile):
        code, out, err = called(["run", hostile, "--preset", hostile])
        return _OBEYED.findall(out + err) or (code != 2 and code)

    held("error lines", wrong)


# What is stored --------------------------------------------------------------------------------


def written(path, *hostile):
    """A results file whose rules are called by hostile texts."""
    about = RunDescription(
        command="sdp-bench run",
        preset="smoke",
        settings=Settings().as_dict(),
        experiments={},
        left_out=tuple(LeftOut(None, each, each) for each in hostile),
        environment={"cpu": "".join(hostile), "commit": ""},
    )
    with Store(path, writing=True) as store:
        rules = {f"x{each}": Traits(each) for each in hostile}
        number = store.begin_run(about, nets=(), units=(), rules=rules, members=())
        store.finish_run(number, 1.0)
    return path


def test_what_is_stored_names_no_folder_of_this_machine(held, tmp_path, monkeypatch):
    def wrong(hostile):
        with contextlib.suppress(OutsideError), outside():
            raise RuntimeError(hostile)
        try:
            with outside():
                raise RuntimeError(hostile)
        except OutsideError as error:
            told = str(error)
        monkeypatch.setattr(sys, "argv", ["sdp-bench", "run", hostile, f"--database={hostile}"])
        address = f"/home/somebody/rules/mine.py:{'Mine' if hostile else ''}"
        code = Code(address, "", "Mine", "class Mine: pass\n", folder="/home/somebody/rules")
        settings = json.dumps(replace(Settings(), plugins=(Plugin("mine", "rule", code),)).as_dict())
        kept = Failure("0123", None, None, hostile, 1.0).error, LeftOut(None, "", hostile).reason
        return [found for each in (told, *kept, progress.command_line(), settings) for found in obeyed(each)]

    held("what is stored", wrong)


def test_an_export_is_read_back_to_the_last_letter(attack, tmp_path):
    # It is for machines; what people open is a report's results.csv.
    some = [each for each in HOSTILE if not _OBEYED.search(each)]
    written(tmp_path / "a.sqlite", *some)
    with Store(tmp_path / "a.sqlite") as store, Store(tmp_path / "b.sqlite", writing=True) as other:
        export(store, tmp_path / "exported")
        import_(tmp_path / "exported", other)
        rules = other.rules()
    with attack("injection into an export") as tried:
        for hostile in some:
            tried.tried(repr(hostile), held=rules[f"x{hostile}"].label == hostile)


# Pages and their tables ------------------------------------------------------------------------


def described(hostile):
    """Made-up results in which every text that may come from outside is hostile, as a file can hold it."""
    hostile = hostile.encode(errors="replace").decode()
    data = frame(depths=(1,), nets=1, inputs=1, rules=("sdp", "dvia"), suites=("iris-std",))
    name = text.public(hostile)  # as that of a net of one's own is
    data = data.assign(network=name, component=np.where(data["component"] == "", "", name))
    failures = pd.DataFrame([{"group": hostile, "rule": hostile, "error": hostile, "seconds": 0.1}])
    made = results(data, failures, traits=RuleTraits({"sdp": Traits(hostile), "dvia": Traits("DVIA")}))
    texts = {"command": hostile, "preset": hostile, "left_out": [LeftOut(None, hostile, hostile)]}
    options, machine = {"bins": hostile, hostile: 1}, {"cpu": hostile, "commit": hostile}
    return replace(made, meta=made.meta | texts | {"options": options, "environment": machine})


@pytest.mark.slow
def test_a_report_shows_texts_and_makes_nothing_of_them(held, tmp_path):
    build(described("words"), tmp_path, SECTIONS)
    plain = sorted(tag for path in tmp_path.rglob("*.html") for tag in tags(path.read_text()))

    def wrong(hostile):
        for old in tmp_path.rglob("*.html"):
            old.unlink()
        build(described(hostile), tmp_path, SECTIONS)
        pages = [path.read_text() for path in tmp_path.rglob("*.html")]
        added = sorted(tag for page in pages for tag in tags(page)) != plain
        return added or [found for page in pages for found in obeyed(page)]

    held("HTML", wrong)


def test_the_table_of_a_report_computes_nothing(held):
    def wrong(hostile):
        data = text.table(described(hostile).frame)
        content = data.to_csv(index=False, lineterminator="\n")
        return formulas(content) or _OBEYED.search(content)

    held("CSV", wrong)


@pytest.mark.slow
def test_a_scorecard_shows_texts_and_makes_nothing_of_them(held, tmp_path):
    def card(hostile):
        candidate = Candidate("sdp", f"/home/somebody/x{hostile}", trouble=hostile)
        return Scorecard.of(described(hostile), [candidate], [hostile])

    build_scorecard(card("words"), tmp_path)
    plain = tags((tmp_path / "index.html").read_text())

    def wrong(hostile):
        page = build_scorecard(card(hostile), tmp_path).read_text()
        return tags(page) != plain or obeyed(page) or formulas((tmp_path / "results.csv").read_text())

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        held("scorecards", wrong)


@pytest.mark.slow
def test_the_page_of_the_documentation_shows_texts_and_makes_nothing_of_them(attack):
    committed = committed_results()
    specs = [rule for rule in committed.traits.stored if not rule.startswith("monte_carlo")]
    hostile = {spec: " ".join(HOSTILE[place :: len(specs)]) for place, spec in enumerate(specs)}
    traits = {
        spec: replace(known, label=hostile.get(spec, known.label))
        for spec, known in committed.traits.stored.items()
    }
    meta = committed.meta | {"command": "\n".join(HOSTILE)}
    page = results_page(replace(committed, traits=RuleTraits(traits), meta=meta))
    plain = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")

    def rows(page):
        return [len(re.findall(r"(?<!\\)\|", line)) for line in page.splitlines() if line.startswith("|")]

    with attack("injection into the documentation") as tried:
        tables = page.partition("## How they were made")[0]
        for each in HOSTILE:
            held = not obeyed(page) and rows(page) == rows(plain) and markup(tables) == markup(plain)
            tried.tried(repr(each), held=held)
