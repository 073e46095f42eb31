"""Texts that are formulas, markup, commands to a terminal or paths of this machine, in every output."""

import contextlib
import csv
import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from sdp_bench import progress
from sdp_bench.bench import text
from sdp_bench.bench.errors import MeasuredCodeError, measured_code
from sdp_bench.bench.gate import report
from sdp_bench.bench.gate.check import CheckOutcome
from sdp_bench.bench.gate.verdict import Finding, GateVerdict, Status
from sdp_bench.bench.plugins.plugin import Plugin
from sdp_bench.bench.results.columns import outcome as stored_outcome
from sdp_bench.bench.results.folder import LeftOut
from sdp_bench.bench.settings import Settings
from sdp_bench.commands import echo

HOSTILE = (
    "=1+1",
    '=HYPERLINK("http://evil.example","x")',
    "\t=1",
    "a | b | c",
    "[x](javascript:alert(1))",
    "`code` ``more``",
    "<script>alert(1)</script>",
    "*bold* _thin_ ~~gone~~ @everyone #1",
    "\x1b[31mred\x1b[0m",
    "\u202egnp.exe",
    "lone \udcff \ud800",
    "/home/somebody/secret/rule.py:Mine",
    "--database=/home/somebody/secret/r.sqlite",
)
SECRET = "somebody"
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


each_text = pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))


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


def outcome(hostile):
    finding = Finding(hostile, hostile, Status.CHANGED, hostile)
    failed = Finding(f"b {hostile}", "", Status.FAILED, hostile)
    verdict = GateVerdict("accuracy", (finding, failed), hostile)
    return CheckOutcome((verdict,), 1, {"cpu": hostile, "torch": "2"}, Path("/home/somebody/ci.json"))


@each_text
def test_a_summary_for_a_pull_request_shows_texts_and_makes_nothing_of_them(hostile):
    written = report.markdown(outcome(hostile))
    rows = [line for line in written.splitlines() if line.startswith("|")]
    assert not obeyed(written)
    assert not markup(written)
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {6, 8}


@each_text
def test_no_control_sequence_reaches_the_terminal(hostile, capsys):
    echo(hostile)
    echo(report.text(outcome(hostile)))
    with progress.Screen().meter(hostile) as meter:
        meter.done(1, 1, hostile)
        meter.note(hostile)
    shown = capsys.readouterr()
    assert not _OBEYED.findall(shown.out + shown.err)


@each_text
def test_what_is_stored_names_no_folder_of_this_machine(hostile, monkeypatch):
    with pytest.raises(MeasuredCodeError) as told, measured_code():
        raise RuntimeError(hostile)
    monkeypatch.setattr(sys, "argv", ["sdp-bench", "run", hostile, f"--database={hostile}"])
    plugin = Plugin("mine", "/home/somebody/mine.py:Mine", "0123")
    settings = json.dumps(replace(Settings(), plugins=(plugin,)).as_dict())
    failed = stored_outcome("0123", "sdp", "w1", "failed", hostile)
    kept = failed["reason"], LeftOut(None, "", hostile).reason
    for stored in (str(told.value), *kept, progress.command_line(), settings):
        assert not obeyed(stored)


@each_text
def test_a_table_for_spreadsheets_computes_nothing(hostile):
    hostile = hostile.encode(errors="replace").decode()
    content = text.table(pd.DataFrame({"rule": [hostile], "value": [-1.5]})).to_csv(index=False)
    assert not formulas(content)
    assert not _OBEYED.search(content)
