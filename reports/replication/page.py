"""Verdicts on the paper's statements as a page, as CSV and as a LaTeX table."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from sdp_bench.reports.numbers.number import Number
from sdp_bench.reports.parts import Beside, Part
from sdp_bench.reports.replication import dvia
from sdp_bench.reports.replication.claims import NEAREST_CONVENTIONS, numbers_of_claims
from sdp_bench.reports.replication.counterparts import METRICS, Counterpart, counterparts
from sdp_bench.reports.replication.forest import forest
from sdp_bench.reports.replication.nearness import nearness
from sdp_bench.reports.replication.statement import Answer, Evidence, RuledTopic, ruled
from sdp_bench.reports.replication.statements import topics as statements
from sdp_bench.reports.results import Results
from sdp_bench.reports.site import PAPER, address
from sdp_bench.reports.statistics.conventions import Outcome
from sdp_bench.reports.statistics.verdicts import Verdict
from sdp_bench.reports.style.latex import escaped
from sdp_bench.reports.writing import environment

TABLE, LATEX = "paper.csv", "paper.tex"

LeadingT = TypeVar("LeadingT", Answer, Counterpart)

_TEMPLATE = Path(__file__).with_name("template.html")
_ORDER = 0
_CONVENTIONS, _UNREACHED = 12, 12  # rows of tables that are shown
_COLUMNS = (
    *("topic", "lines", "quote", "reading", "outcome", "ruling", "found", "why_undecided"),
    *(
        "outcome_regular_dvia",
        "ruling_regular_dvia",
        "found_regular_dvia",
        "why_undecided_regular_dvia",
        "fidelity",
        "address",
    ),
)


@dataclass(frozen=True, eq=False)
class Rulings:
    """Verdicts on the paper's statements, by topic."""

    results: Results
    topics: tuple[RuledTopic, ...]

    @classmethod
    def of(cls, results: Results) -> Rulings:
        evidence = Evidence(results)
        return cls(results, tuple(ruled(topic, evidence) for topic in statements()))

    @property
    def numbers(self) -> Iterator[Number]:
        return numbers_of_claims(self.results.frame, self.results.traits)

    @property
    def tally(self) -> dict[Outcome, int]:
        """Number of statements by outcome; statements about DVIA use DVIA as published."""
        counts = Counter(one.answer.verdicts.outcome for topic in self.topics for one in topic.statements)
        return {outcome: counts[outcome] for outcome in Outcome if counts[outcome]}

    @property
    def about_dvia(self) -> dict[str, Counter[Outcome]]:
        """Number of statements by outcome for both versions of DVIA; empty if none was judged for both."""
        both = [one for topic in self.topics for one in topic.statements if one.regular]
        if not both:
            return {}
        return {
            "DVIA as published": Counter(one.answer.verdicts.outcome for one in both),
            "DVIA with its covariance at the regular pass": Counter(
                one.regular.verdicts.outcome for one in both if one.regular
            ),
        }

    @property
    def outcomes_of_dvia(self) -> list[Outcome]:
        return [outcome for outcome in Outcome if any(own[outcome] for own in self.about_dvia.values())]

    @property
    def headline(self) -> str:
        """The comparison of SDP with both versions of DVIA, in words; empty where it was not measured."""
        (one,) = (o for topic in self.topics for o in topic.statements if o.statement.key == "tv-dvia")
        near = [
            {r.verdict for r in answer.rulings if r.convention in NEAREST_CONVENTIONS}
            for _, answer in one.versions
        ]
        if near == [{Verdict.REFUTED}, {Verdict.SUPPORTED}]:
            return (
                "SDP is less accurate than DVIA as published. In the conventions nearest to the paper’s "
                "numbers, its comparison is reproduced when DVIA’s means are not propagated."
            )
        against = [f"{name}: {answer.verdicts.words}" for name, answer in one.versions if answer.measured]
        return f"“SDP is as good as DVIA in 1 − TV”, against DVIA {'; '.join(against)}." if against else ""


def shown(rulings: Rulings, places: Mapping[str, str]) -> tuple[Part, list[Beside]]:
    """Verdicts as a part of the report, and its tables as files.

    `places` are files of the report by anchor; links to other places are removed.
    """
    results, evidence = rulings.results, Evidence(rulings.results)
    topics = [_led(topic, places) for topic in rulings.topics]
    counts = rulings.tally
    nearest = nearness(results.frame)
    dvia_table = dvia.table_28(results.frame)
    html = (
        environment(results.traits)
        .get_template(str(_TEMPLATE))
        .render(
            topics=topics,
            forests={one.statement.key: forest(one) for topic in topics for one in topic.statements},
            counts=counts,
            total=sum(counts.values()),
            nearness=nearest,
            dvia=rulings.about_dvia,
            dvia_outcomes=rulings.outcomes_of_dvia,
            dvia_table=dvia_table,
            nearer=dvia.nearer(results.frame),
            columns=dvia.columns(results.frame),
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
    navigation += [("dvia", "The paper’s DVIA")] if dvia_table else []
    navigation += [("conventions", "Which convention")] if nearest else []
    navigation.append(("counterparts", "Tables and figures"))
    part = Part(PAPER, _ORDER, tuple(navigation), html)
    return part, [Beside(TABLE, _csv(topics, places)), Beside(LATEX, _latex(topics))]


def _led(topic: RuledTopic, places: Mapping[str, str]) -> RuledTopic:
    """Topic without links to places that do not exist."""
    statements = tuple(
        replace(
            one, answer=_to(places, one.answer), regular=_to(places, one.regular) if one.regular else None
        )
        for one in topic.statements
    )
    return replace(topic, statements=statements)


def _to(places: Mapping[str, str], one: LeadingT) -> LeadingT:
    there = not one.address or one.address.removeprefix("#") in places
    return one if there else replace(one, address="")


def _rows(topics: list[RuledTopic]) -> Iterator[tuple[str, ...]]:
    for topic in topics:
        for one in topic.statements:
            first, last = one.statement.lines
            answer, regular = one.answer, one.regular
            yield (
                topic.topic.title,
                f"{first}" if first == last else f"{first}-{last}",
                one.statement.quote,
                one.statement.reading,
                answer.verdicts.outcome.value[0],
                answer.verdicts.words,
                answer.found,
                answer.why,
                regular.verdicts.outcome.value[0] if regular else "",
                regular.verdicts.words if regular else "",
                regular.found if regular else "",
                regular.why if regular else "",
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
        for row in rows:
            regular = (
                f". Against DVIA with its covariance at the regular pass: {row[9]}: {row[10]}"
                if row[8]
                else ""
            )
            ruling = escaped(f"{row[5]}: {row[6]}{regular}")
            lines.append(f"{row[1]} & {escaped(row[2])} & {ruling} \\\\")
    return "\n".join([*lines, "\\bottomrule", "\\end{longtable}", ""])
