"""An outcome as text, as Markdown for a pull request, as JSON, and as JUnit XML."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from typing import Any

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from ..badge import Badge
from ..text import code, printable, public
from ..text import markdown as to_markdown
from . import accuracy, speed
from .check import CheckOutcome
from .verdict import ALL_CASES, FAILED, PASSED, REGRESSION, Finding, GateVerdict, Status

_SHOWN = 10  # findings of a status
COLUMNS = ("rule", "status", "cells", "mean", "covariance", "error", "time")


def table(outcome: CheckOutcome) -> list[dict[str, str]]:
    """Return one row per rule, by `COLUMNS`.

    Cells and probes are those with the most severe status, of all; the change of the mean is in standard
    deviations, and that of the covariance is relative. Both are the largest over all cells. The error is the
    KL divergence to a fresh oracle, now and before, in the cell where it is largest. The time is relative to
    the older version's, on the net where this is largest.
    """
    by_kind = {verdict.kind: verdict for verdict in outcome.verdicts}
    rules = {f.subject: None for verdict in outcome.verdicts for f in verdict.findings}
    rows = []
    for rule in rules:
        found = by_kind[accuracy.KIND].of(rule) if accuracy.KIND in by_kind else []
        timed = by_kind[speed.KIND].of(rule) if speed.KIND in by_kind else []
        status = min((f.status for f in (*found, *timed)), key=lambda status: status.rank)
        row = {"rule": rule, "status": str(status), **_changes(found)}
        if slower := [f.numbers for f in timed if "change" in f.numbers]:
            slowest = max(slower, key=lambda numbers: numbers["change"])
            row["time"] = f"x {slowest['change']:.2f}, {slowest['at least']:.2f} to {slowest['at most']:.2f}"
        rows.append({name: row.get(name, "") for name in COLUMNS})
    return rows


def _changes(findings: Sequence[Finding]) -> dict[str, str]:
    cells = [f for f in findings if f.cell not in ("", ALL_CASES)]
    if not cells:
        return {}
    worst = sum(f.status is cells[0].status for f in cells)
    row = {"cells": f"{worst} of {len(cells)}"}
    for name in ("mean", "covariance"):
        sizes = [f.numbers[f"{name} drift"] for f in cells if f"{name} drift" in f.numbers]
        finite = [size for size in sizes if size < math.inf]
        if finite:
            row[name] = f"{max(finite):.2g}"
    if errors := [f.numbers for f in cells if "KL" in f.numbers]:
        largest = max(errors, key=lambda one: one["KL"])
        row["error"] = f"{largest['KL']:.3g} (before {largest['KL before']:.3g})"
    return row


def text(outcome: CheckOutcome) -> str:
    """Return the table of rules, notable findings, one line per kind of check, verdict and next steps."""
    rows = table(outcome)
    names = [name for name in COLUMNS if any(row[name] for row in rows)]
    widths = {name: max(len(text) for text in (name, *(row[name] for row in rows))) for name in names}
    lines = [
        "  ".join(f"{row[name]:{widths[name]}}" for name in names).rstrip()
        for row in ({name: name for name in names}, *rows)
    ]
    for verdict in outcome.verdicts:
        found, more = _notable(verdict)
        if found:
            lines += ["", f"{verdict.kind}:", *(f"  {finding}" for finding in found)]
        if more:
            lines.append(f"  ... and {more} more; --json has all")
    lines.append("")
    for verdict in outcome.verdicts:
        lines += [verdict.summary, f"  {verdict.note}"]
    lines += _not_compared(outcome)
    lines.append(f"verdict: {_word(outcome)}")
    return "\n".join([*lines, *(f"next, {step}" for step in outcome.next_steps)])


def _not_compared(outcome: CheckOutcome) -> list[str]:
    kinds = {verdict.kind for verdict in outcome.verdicts}
    options = {
        accuracy.KIND: "--baseline ci.json",
        speed.KIND: "--against main, or another revision or folder",
    }
    return [f"{kind}: not compared; give {option}" for kind, option in options.items() if kind not in kinds]


def badge(outcome: CheckOutcome) -> Badge:
    """Return a badge with the verdict and the numbers of compared cells and of those that stop the check."""
    findings = [f for verdict in outcome.verdicts for f in verdict.findings if f.cell != ALL_CASES]
    stopping = sum(f.stops for f in findings)
    compared = sum(f.status not in (Status.FAILED, Status.NEW, Status.GONE) for f in findings)
    if outcome.status == PASSED:
        return Badge("sdp-bench", f"{compared} passed, 0 failed", good=True)
    counts = f", {compared - stopping} passed, {stopping} failed" if stopping else ""
    return Badge("sdp-bench", f"{_word(outcome)}{counts}", good=False if outcome.exit_code == 1 else None)


def _word(outcome: CheckOutcome) -> str:
    return "failed to run" if outcome.status == FAILED else outcome.status


def _notable(verdict: GateVerdict) -> tuple[list[Finding], int]:
    """Return the first findings of each status but "unchanged" and "rounding", and the number of others.

    The most severe come first, and those on all cells before those on single ones.
    """
    found = [f for f in verdict.findings if f.status not in (Status.UNCHANGED, Status.ROUNDING)]
    found.sort(key=lambda f: (f.status.rank, f.cell != ALL_CASES))
    groups = [list(group) for _, group in itertools.groupby(found, key=lambda f: f.status)]
    shown = [f for group in groups for f in group[:_SHOWN]]
    return shown, len(found) - len(shown)


def markdown(outcome: CheckOutcome) -> str:
    """Return the summary for a pull request: verdicts, table of rules, notable findings, next steps."""
    lines = [f"### sdp-bench check: {_word(outcome)}", ""]
    lines += [f"- {to_markdown(f'{verdict.summary}; {verdict.note}')}" for verdict in outcome.verdicts]
    lines += [f"- {to_markdown(line)}" for line in _not_compared(outcome)]
    rows = [[code(row["rule"]), *(to_markdown(row[name]) for name in COLUMNS[1:])] for row in table(outcome)]
    lines += _markdown_table(COLUMNS, rows)
    rows, more = [], 0
    for verdict in outcome.verdicts:
        found, others = _notable(verdict)
        more += others
        for f in found:
            status = f"**{f.status}**" if f.stops else str(f.status)
            rows.append([verdict.kind, code(f.subject), to_markdown(f.cell), status, to_markdown(f.text)])
    lines += _markdown_table(("", "rule", "where", "status", "observation"), rows)
    if more:
        lines += ["", f"and {more} more."]
    steps = [step.partition(": ") for step in outcome.next_steps]
    lines += ["", *(f"- Next, {to_markdown(purpose)}: {code(command)}" for purpose, _, command in steps)]
    cpu, version = (to_markdown(str(outcome.environment.get(name, ""))) for name in ("cpu", "torch"))
    lines += ["", f"<sub>oracle seed {outcome.seed}, torch {version}, {cpu}</sub>", ""]
    return "\n".join(lines)


def _markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *rows)]
    return ["", *lines] if rows else []


def as_json(outcome: CheckOutcome) -> str:
    """Return everything as JSON: exit code, table, next steps, and the findings of each verdict."""
    plain: dict[str, Any] = {
        "exit code": outcome.exit_code,
        "regressions": [verdict.kind for verdict in outcome.verdicts if verdict.status == REGRESSION],
        "changes": [verdict.kind for verdict in outcome.verdicts if verdict.having(Status.CHANGED)],
        "table": table(outcome),
        "next": outcome.next_steps,
        "seed": outcome.seed,
        "environment": outcome.environment,
        "verdicts": [verdict.as_dict() for verdict in outcome.verdicts],
    }
    return public(json.dumps(plain, indent=1, allow_nan=False)) + "\n"


def junit(outcome: CheckOutcome) -> bytes:
    """Return JUnit XML: a suite for each verdict, a test case for each rule and cell.

    Everything that needs attention is a failure. A rule that cannot be run is an error, and one that is not
    in the baseline is skipped.
    """
    report = JUnitXml("sdp-bench check")
    for verdict in outcome.verdicts:
        suite = TestSuite(f"sdp-bench.{verdict.kind}")
        for f in verdict.findings:
            cell, subject, detail = (printable(public(part)) for part in (f.cell or "all", f.subject, str(f)))
            case = TestCase(cell, f"sdp-bench.{verdict.kind}.{subject}", 0)
            kind = Failure if f.stops else {Status.FAILED: Error, Status.NEW: Skipped}.get(f.status)
            if kind:
                result = kind(printable(public(f"{f.status}: {f.text}"[:300])))
                result.text = detail
                case.result = [result]
            suite.add_testcase(case)
        report.add_testsuite(suite)  # counts its cases
    return bytes(report.tostring())
