"""An outcome as text, as a Markdown summary for a pull request, and as a JUnit file."""

from __future__ import annotations

import re
from collections.abc import Sequence

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from sdp_bench.bench.gate.check import Outcome
from sdp_bench.bench.gate.verdict import NOTHING, Finding, Status, Verdict

_SHOWN = 20
_ORDER = (
    Status.WORSE,
    Status.CHANGED,
    Status.GONE,
    Status.FAILED,
    Status.BETTER,
    Status.REDRAWN,
    Status.NEW,
)
_QUIET = (Status.UNCHANGED, Status.ROUNDING)
_NOT_RUN = {Status.FAILED: Error, Status.NEW: Skipped}


def text(outcome: Outcome) -> str:
    """Table of rules, what is to be said of single cells, and a line for each verdict."""
    lines = [_row(*row) for row in [("rule", *(v.kind for v in outcome.verdicts)), *_rows(outcome)]]
    for verdict in outcome.verdicts:
        told = _told(verdict)
        if told:
            lines += ["", f"{verdict.kind}:"]
            lines += [f"  {finding}" for finding in told[:_SHOWN]]
        if len(told) > _SHOWN:
            lines.append(f"  ... and {len(told) - _SHOWN} more; --json has all")
    lines.append("")
    for verdict in outcome.verdicts:
        lines += [verdict.summary, f"  {verdict.note}"]
    return "\n".join(lines)


def markdown(outcome: Outcome) -> str:
    """Summary for a pull request: what regressed first, then the rest in short."""
    stopped = "regression" if any(v.status == "regression" for v in outcome.verdicts) else "changed"
    unable = "failed to run" if any(v.status == "failed" for v in outcome.verdicts) else NOTHING
    words = {0: "passed", 1: stopped}.get(outcome.exit_code, unable)
    lines = [f"### sdp-bench check: {words}", ""]
    lines += [
        f"- **{verdict.kind}**: {verdict.status}. {_sentence(verdict.note)}" for verdict in outcome.verdicts
    ]
    told = [(verdict, finding) for verdict in outcome.verdicts for finding in _told(verdict)]
    if told:
        lines += ["", "| | rule | where | status | what was seen |", "|---|---|---|---|---|"]
    for verdict, f in told[:_SHOWN]:
        cells = (verdict.kind, f"`{f.subject}`", f.cell, f"**{f.status}**" if f.stops else f.status, f.text)
        lines.append(f"| {' | '.join(_cell(cell) for cell in cells)} |")
    if len(told) > _SHOWN:
        lines += ["", f"and {len(told) - _SHOWN} more."]
    if not told:
        lines += ["", "Nothing changed."]
    if any(finding.status is Status.BETTER for _, finding in told):
        lines += ["", "Improvements are taken up by `--update`."]
    cpu, version = outcome.environment.get("cpu", ""), outcome.environment.get("torch", "")
    lines += ["", f"<sub>oracle seed {outcome.seed}, torch {version}, {cpu}</sub>", ""]
    return "\n".join(lines)


def junit(outcome: Outcome) -> bytes:
    """JUnit XML: a suite for each verdict, a test case for each rule and cell.

    Returns
    -------
    bytes
        Whatever has to be looked at is a failure, what could not be run is an error, and what is not in the
        baseline is skipped.
    """
    report = JUnitXml("sdp-bench check")
    for verdict in outcome.verdicts:
        suite = TestSuite(f"sdp-bench.{verdict.kind}")
        for f in verdict.findings:
            case = TestCase(f.cell or "all", f"sdp-bench.{verdict.kind}.{f.subject}", 0)
            if kind := Failure if f.stops else _NOT_RUN.get(f.status):
                result = kind(_printable(f"{f.status}: {f.text}"[:300]))
                result.text = _printable(str(f))
                case.result = [result]
            suite.add_testcase(case)
        report.add_testsuite(suite)  # which counts its cases
    return bytes(report.tostring())


def _printable(text: str) -> str:
    """Text without the characters that XML cannot hold, as a rule's error may have them."""
    return re.sub(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]", "?", text)


def _told(verdict: Verdict) -> list[Finding]:
    """What a reader wants to see of single cells, the worst first."""
    return [finding for status in _ORDER for finding in verdict.having(status)]


def _rows(outcome: Outcome) -> list[tuple[str, ...]]:
    rules = dict.fromkeys(f.subject for verdict in outcome.verdicts for f in verdict.findings)
    return [(rule, *(_of_rule(verdict, rule) for verdict in outcome.verdicts)) for rule in rules]


def _of_rule(verdict: Verdict, rule: str) -> str:
    """One rule under one verdict: its worst status, in how many cells, and the largest change."""
    mine = [f for f in verdict.findings if f.subject == rule]
    if not mine:
        return ""
    worst = next(
        (s for s in (*_ORDER, *reversed(_QUIET)) if any(f.status is s for f in mine)), mine[0].status
    )
    number = sum(f.status is worst for f in mine)
    share = f" ({number} of {len(mine)})" if number < len(mine) else ""
    changes = [f.numbers["change"] for f in mine if "change" in f.numbers]
    factor = f", {min(changes):.2f}-{max(changes):.2f}x" if changes else ""
    return f"{worst}{share}{factor}"


def _row(rule: str, *columns: str) -> str:
    return f"{rule:38} " + " ".join(f"{column:44}" for column in columns).rstrip()


def _sentence(note: str) -> str:
    return f"{note[:1].upper()}{note[1:]}." if note else ""


def _cell(value: Sequence[str] | str) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")
