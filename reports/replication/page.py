"""The page "The paper, claim by claim", and the same as CSV and as a LaTeX table."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from sdp_bench.reports.parts import Beside
from sdp_bench.reports.replication.counterparts import METRICS, Counterpart, counterparts
from sdp_bench.reports.replication.nearness import nearness
from sdp_bench.reports.replication.statement import Answer, Evidence, RuledTopic, ruled
from sdp_bench.reports.replication.statements import topics as statements
from sdp_bench.reports.results import Results
from sdp_bench.reports.statistics.conventions import Outcome
from sdp_bench.reports.style.latex import escaped
from sdp_bench.reports.writing import environment

PAGE, TABLE, LATEX = "paper.html", "paper.csv", "paper.tex"
TITLE = "The paper, claim by claim"

LeadingT = TypeVar("LeadingT", Answer, Counterpart)

_TEMPLATE = Path(__file__).with_name("template.html")
_CONVENTIONS, _UNREACHED = 12, 12  # rows of tables that are shown
_COLUMNS = ("topic", "lines", "quote", "reading", "outcome", "ruling", "found", "fidelity", "address")


def files(results: Results, anchors: Collection[str]) -> list[Beside]:
    """The page and its tables.

    Parameters
    ----------
    results : Results
    anchors : collection of str
        Of the results' own page; nothing leads to others there.

    Returns
    -------
    list of Beside
    """
    evidence = Evidence(results)
    topics = [_led(ruled(topic, evidence), anchors) for topic in statements()]
    counts = tally(topics)
    template = environment(results.traits).get_template(str(_TEMPLATE))
    html = template.render(
        title=TITLE,
        topics=topics,
        counts=counts,
        total=sum(counts.values()),
        nearness=nearness(results.frame),
        names=METRICS,
        shown_conventions=_CONVENTIONS,
        shown_unreached=_UNREACHED,
        counterparts=[_to(anchors, one) for one in counterparts(evidence)],
        source=results.title,
        finished=results.meta.get("finished") or "",
        table=TABLE,
        latex=LATEX,
    )
    return [Beside(PAGE, html, TITLE), Beside(TABLE, _csv(topics)), Beside(LATEX, _latex(topics))]


def _led(topic: RuledTopic, anchors: Collection[str]) -> RuledTopic:
    """A topic whose answers lead to nothing but what is there."""
    statements = tuple(replace(one, answer=_to(anchors, one.answer)) for one in topic.statements)
    return replace(topic, statements=statements)


def _to(anchors: Collection[str], one: LeadingT) -> LeadingT:
    there = not one.address or one.address.partition("#")[2] in anchors
    return one if there else replace(one, address="")


def tally(topics: list[RuledTopic]) -> dict[Outcome, int]:
    """How many statements come to what, in the order in which outcomes are told."""
    counts = Counter(one.answer.verdicts.outcome for topic in topics for one in topic.statements)
    return {outcome: counts[outcome] for outcome in Outcome if counts[outcome]}


def _rows(topics: list[RuledTopic]) -> Iterator[tuple[str, ...]]:
    for topic in topics:
        for one in topic.statements:
            first, last = one.statement.lines
            answer = one.answer
            yield (
                topic.topic.title,
                f"{first}" if first == last else f"{first}-{last}",
                one.statement.quote,
                one.statement.reading,
                answer.verdicts.outcome.value[0],
                answer.verdicts.words,
                answer.found,
                answer.fidelity,
                answer.address,
            )


def _csv(topics: list[RuledTopic]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows(_rows(topics))
    return file.getvalue()


def _latex(topics: list[RuledTopic]) -> str:
    """Long table, for the packages booktabs and longtable."""
    lines = [
        "% sdp-bench: \\usepackage{booktabs,longtable}",
        "\\begin{longtable}{rp{.38\\linewidth}p{.42\\linewidth}}",
        "\\toprule",
        "line & the paper & ruling \\\\",
        "\\midrule\\endhead",
    ]
    for topic, rows in ((one.topic.title, _rows([one])) for one in topics):
        lines.append(f"\\multicolumn{{3}}{{l}}{{\\emph{{{escaped(topic)}}}}} \\\\")
        lines += [f"{row[1]} & {escaped(row[2])} & {escaped(row[5])}: {escaped(row[6])} \\\\" for row in rows]
    return "\n".join([*lines, "\\bottomrule", "\\end{longtable}", ""])
