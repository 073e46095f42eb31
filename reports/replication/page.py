"""The paper, claim by claim, and the same as CSV and as a LaTeX table."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from sdp_bench.reports.parts import Beside, Part
from sdp_bench.reports.replication.counterparts import METRICS, Counterpart, counterparts
from sdp_bench.reports.replication.nearness import nearness
from sdp_bench.reports.replication.statement import Answer, Evidence, RuledTopic, ruled
from sdp_bench.reports.replication.statements import topics as statements
from sdp_bench.reports.results import Results
from sdp_bench.reports.site import PAPER, address
from sdp_bench.reports.statistics.conventions import Outcome
from sdp_bench.reports.style.latex import escaped
from sdp_bench.reports.writing import environment

TABLE, LATEX = "paper.csv", "paper.tex"

LeadingT = TypeVar("LeadingT", Answer, Counterpart)

_TEMPLATE = Path(__file__).with_name("template.html")
_ORDER = 0
_CONVENTIONS, _UNREACHED = 12, 12  # rows of tables that are shown
_COLUMNS = ("topic", "lines", "quote", "reading", "outcome", "ruling", "found", "fidelity", "address")


@dataclass(frozen=True, eq=False)
class Rulings:
    """What measurements say to the paper's statements, by topic."""

    results: Results
    evidence: Evidence
    topics: tuple[RuledTopic, ...]

    @classmethod
    def of(cls, results: Results) -> Rulings:
        """Rule on every statement."""
        evidence = Evidence(results)
        return cls(results, evidence, tuple(ruled(topic, evidence) for topic in statements()))

    @property
    def tally(self) -> dict[Outcome, int]:
        """How many statements come to what, in the order in which outcomes are told."""
        counts = Counter(one.answer.verdicts.outcome for topic in self.topics for one in topic.statements)
        return {outcome: counts[outcome] for outcome in Outcome if counts[outcome]}


def shown(rulings: Rulings, places: Mapping[str, str]) -> tuple[Part, list[Beside]]:
    """Rulings as a part of the report, and its tables.

    Parameters
    ----------
    rulings : Rulings
    places : mapping of str to str
        Files of the report by anchor; nothing leads to others there.

    Returns
    -------
    Part
    list of Beside
    """
    results, evidence = rulings.results, rulings.evidence
    topics = [_led(topic, places) for topic in rulings.topics]
    counts = rulings.tally
    nearest = nearness(results.frame)
    html = (
        environment(results.traits)
        .get_template(str(_TEMPLATE))
        .render(
            topics=topics,
            counts=counts,
            total=sum(counts.values()),
            nearness=nearest,
            names=METRICS,
            shown_conventions=_CONVENTIONS,
            shown_unreached=_UNREACHED,
            counterparts=[_to(places, one) for one in counterparts(evidence)],
            source=results.title,
            finished=results.meta.get("finished") or "",
            table=TABLE,
            latex=LATEX,
        )
    )
    navigation = [(f"topic-{one.topic.key}", one.topic.title) for one in topics]
    navigation += [("conventions", "Which convention")] if nearest else []
    navigation.append(("counterparts", "Tables and figures"))
    part = Part(PAPER, _ORDER, tuple(navigation), html)
    return part, [Beside(TABLE, _csv(topics, places)), Beside(LATEX, _latex(topics))]


def _led(topic: RuledTopic, places: Mapping[str, str]) -> RuledTopic:
    """A topic whose answers lead to nothing but what is there."""
    statements = tuple(replace(one, answer=_to(places, one.answer)) for one in topic.statements)
    return replace(topic, statements=statements)


def _to(places: Mapping[str, str], one: LeadingT) -> LeadingT:
    there = not one.address or one.address.removeprefix("#") in places
    return one if there else replace(one, address="")


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


def _csv(topics: list[RuledTopic], places: Mapping[str, str]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for *row, anchor in _rows(topics):
        writer.writerow([*row, address(anchor.removeprefix("#"), places) if anchor else ""])
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
