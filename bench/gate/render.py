"""An outcome as text, as Markdown for a pull request, and as JUnit XML."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from sdp_bench.bench.badge import Badge
from sdp_bench.bench.gate.check import Outcome
from sdp_bench.bench.gate.comparisons import accuracy, speed
from sdp_bench.bench.gate.oracles import verify as oracles
from sdp_bench.bench.gate.verdict import CHANGED, FAILED, NOTHING, PASSED, STOPPING, Finding, Status, Verdict
from sdp_bench.bench.text import code, printable, public
from sdp_bench.bench.text import markdown as to_markdown

_SHOWN = 20
_NAMED = 3  # rules
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
    """Return a table of rules, reasons, notable cells, verdicts and the conclusion."""
    lines = [_row(*row) for row in [("rule", *(v.kind for v in outcome.verdicts)), *_rows(outcome)]]
    if told := outcome.told:
        lines += ["", *map(str, told)]
    for verdict in outcome.verdicts:
        found = _told(verdict)
        if found:
            lines += ["", f"{verdict.kind}:"]
            lines += [f"  {finding}" for finding in found[:_SHOWN]]
        if len(found) > _SHOWN:
            lines.append(f"  ... and {len(found) - _SHOWN} more; --json has all")
    lines.append("")
    for verdict in outcome.verdicts:
        lines += [verdict.summary, f"  {verdict.note}"]
    return "\n".join([*lines, f"verdict: {conclusion(outcome)}"])


def conclusion(outcome: Outcome) -> str:
    """Return the conclusion in one sentence: what passed, or what needs attention and in how many cells."""
    bad = [part for verdict in outcome.verdicts for part in _causes(verdict)]
    passed = [_passed(verdict) for verdict in outcome.verdicts if verdict.status == PASSED]
    return f"{_word(outcome)}: {'; '.join([*bad, *(f'{each} passed' if bad else each for each in passed)])}"


def badge(outcome: Outcome) -> Badge:
    """Return a badge with the verdict and the numbers of compared cells and of those that stop the check."""
    stopping = sum(finding.stops for verdict in outcome.verdicts for finding in verdict.findings)
    compared = sum(len(verdict.compared) for verdict in outcome.verdicts)
    if outcome.status == PASSED:
        return Badge("sdp-bench", f"{compared} passed, 0 failed", good=True)
    counts = f", {compared - stopping} passed, {stopping} failed" if stopping else ""
    return Badge("sdp-bench", f"{_word(outcome)}{counts}", good=False if outcome.exit_code == 1 else None)


def next_steps(outcome: Outcome) -> list[str]:
    """Return suggested commands, each with its purpose; empty if there is nothing to do."""
    steps = []
    for verdict in outcome.verdicts:
        broken = [outcome.addresses.get(rule, rule) for rule in _rules(verdict.having(Status.FAILED))]
        steps += [f"to see why it fails: {shlex.join(['sdp-bench', 'check-rule', rule])}" for rule in broken]
        if verdict.kind == oracles.KIND:
            if verdict.status == CHANGED:
                steps.append("if that is meant: sdp-bench oracles record")
            continue
        if verdict.having(Status.GONE):
            steps.append(f"if these rules are meant to be gone: {outcome.accepting([])}")
        for statuses, reason, kind in (
            ((Status.WORSE, Status.CHANGED), f"if the change of {verdict.kind} is meant", verdict.kind),
            ((Status.NEW,), "to take up what is new", ""),
            ((Status.BETTER,), "to take up what is better", verdict.kind),
        ):
            if rules := _rules(verdict.having(*statuses)):
                steps.append(f"{reason}: {outcome.accepting(rules, kind)}")
    return list(dict.fromkeys(steps))


def _word(outcome: Outcome) -> str:
    return "failed to run" if outcome.status == FAILED else outcome.status


def _passed(verdict: Verdict) -> str:
    """Describe what was compared, for which rules, and in how many cells."""
    if verdict.kind == oracles.KIND:
        return f"{_cells(verdict.compared)} recorded oracles"
    rules = _rules(verdict.compared)
    named = ", ".join(rules) if len(rules) <= _NAMED else f"{len(rules)} rules"
    text = f"{verdict.kind} of {named} {_where(verdict, _cells(verdict.compared))}"
    new = _rules(verdict.having(Status.NEW))
    return f"{text} (not of {', '.join(new)})" if new else text


def _causes(verdict: Verdict) -> Iterator[str]:
    """Yield what keeps a verdict from passing: the rule, and in how many cells."""
    if verdict.status == NOTHING:
        yield f"{verdict.kind} of {', '.join(_rules(verdict.findings)) or 'no rule'}"
    for status in (*STOPPING, Status.FAILED):
        found = verdict.having(status)
        if verdict.kind == oracles.KIND and found:
            yield f"{_cells(found)} of {_cells(verdict.findings)} recorded oracles {status}"
            continue
        for rule in _rules(found):
            cells = _cells(each for each in found if each.subject == rule)
            every = _cells(each for each in verdict.findings if each.subject == rule)
            where = f" {_where(verdict, every, f'{cells} of ')}" if cells else ""
            yield f"{verdict.kind} of {rule} {status}{where}"


_PLACES = {accuracy.KIND: ("in", "cell"), speed.KIND: ("on", "net")}


def _where(verdict: Verdict, every: int, some: str = "") -> str:
    """Describe the scope of a check: ``in 3 of 27 cells``, ``on 3 nets``."""
    word, place = _PLACES[verdict.kind]
    return f"{word} {some}{every} {place}{'' if every == 1 else 's'}"


def _rules(findings: Iterable[Finding]) -> list[str]:
    return list(dict.fromkeys(each.subject for each in findings))


def _cells(findings: Iterable[Finding]) -> int:
    """Count the cells of findings; a finding on all cells of a rule does not count."""
    return len({each.cell for each in findings} - {"", accuracy.ALL_CELLS})


def markdown(outcome: Outcome) -> str:
    """Return the summary for a pull request: regressions first, then the rest briefly."""
    lines = [f"### sdp-bench check: {_word(outcome)}", "", to_markdown(_sentence(conclusion(outcome))), ""]
    lines += [
        f"- **{verdict.kind}**: {verdict.status}. {to_markdown(_sentence(verdict.note))}"
        for verdict in outcome.verdicts
    ]
    if outcome.told:
        lines += [
            "",
            *(
                f"- {code(t.causes[0].subject)}: {to_markdown(t.text)}; accept with: {code(t.accept)}"
                for t in outcome.told
            ),
        ]
    told = [(verdict, finding) for verdict in outcome.verdicts for finding in _told(verdict)]
    if told:
        lines += ["", "| | rule | where | status | what was seen |", "|---|---|---|---|---|"]
    for verdict, f in told[:_SHOWN]:
        status = f"**{f.status}**" if f.stops else f.status
        cells = (verdict.kind, code(f.subject), to_markdown(f.cell), status, to_markdown(f.text))
        lines.append(f"| {' | '.join(cells)} |")
    if len(told) > _SHOWN:
        lines += ["", f"and {len(told) - _SHOWN} more."]
    if not told:
        lines += ["", "Nothing changed."]
    if any(finding.status is Status.BETTER for _, finding in told):
        lines += ["", "Improvements are taken up by `--update`."]
    cpu, version = (to_markdown(str(outcome.environment.get(name, ""))) for name in ("cpu", "torch"))
    lines += ["", f"<sub>oracle seed {outcome.seed}, torch {version}, {cpu}</sub>", ""]
    return "\n".join(lines)


def junit(outcome: Outcome) -> bytes:
    """Return JUnit XML: a suite for each verdict, a test case for each rule and cell.

    Everything that needs attention is a failure. A rule that cannot be run is an error, and one that is not
    in the baseline is skipped.
    """
    report = JUnitXml("sdp-bench check")
    for verdict in outcome.verdicts:
        suite = TestSuite(f"sdp-bench.{verdict.kind}")
        for f in verdict.findings:
            place, subject = _told_of(f.cell or "all"), _told_of(f.subject)
            case = TestCase(place, f"sdp-bench.{verdict.kind}.{subject}", 0)
            if kind := Failure if f.stops else _NOT_RUN.get(f.status):
                result = kind(_told_of(f"{f.status}: {f.text}"[:300]))
                result.text = _told_of(str(f))
                case.result = [result]
            suite.add_testcase(case)
        report.add_testsuite(suite)  # counts its cases
    return bytes(report.tostring())


def _told(verdict: Verdict) -> list[Finding]:
    """Return findings on single cells, most severe first."""
    return [finding for status in _ORDER for finding in verdict.having(status)]


def _rows(outcome: Outcome) -> list[tuple[str, ...]]:
    rules = dict.fromkeys(f.subject for verdict in outcome.verdicts for f in verdict.findings)
    return [(rule, *(_of_rule(verdict, rule) for verdict in outcome.verdicts)) for rule in rules]


def _of_rule(verdict: Verdict, rule: str) -> str:
    """Describe one rule under one verdict: worst status, number of cells, and the largest change."""
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


def _told_of(text: str) -> str:
    """Sanitise text for XML and for publication."""
    return printable(public(text))
