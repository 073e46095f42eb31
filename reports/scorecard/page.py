"""The scorecard of a rule on one page: conformance, comparison with other rules, and cost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pandas as pd

from sdp_bench.bench.files import writing
from sdp_bench.bench.text import public, table
from sdp_bench.reports.folder import remove, write
from sdp_bench.reports.page import DATA
from sdp_bench.reports.results import Results
from sdp_bench.reports.scorecard.answers import Answer, answers, verdict
from sdp_bench.reports.scorecard.judging import Candidate, CostTable, Judged, Verdict, cost_tables, judge
from sdp_bench.reports.sections.choice import choice, choice_figures
from sdp_bench.reports.sections.figures import by_family
from sdp_bench.reports.site import PAGE
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.figure import Figure
from sdp_bench.reports.style.names import NetKind
from sdp_bench.reports.tables.tables import headline
from sdp_bench.reports.writing import recorded, rendered

CONFORMANCE = "conformance.json"
FILES = (PAGE, DATA, CONFORMANCE)
"""Files that :func:`build` writes."""

_TEMPLATE = Path(__file__).with_name("template.html")

RATIOS = "Ratio of standard deviations: the factor that it is off by"


@dataclass(frozen=True, eq=False)
class Scorecard:
    """All findings on the rules under test or on a net, computed once for page and terminal.

    `costs` are by kind of net. `answers` recommend a rule for a user's net and are empty for the nets of
    experiments; `choice` is the recommendation in words. `notes` concern the net and the measurements.
    `is_whole` is False if something failed to run.
    """

    results: Results
    judged: tuple[Judged, ...]
    costs: tuple[CostTable, ...]
    answers: tuple[Answer, ...]
    choice: Verdict | None
    notes: tuple[str, ...]
    is_whole: bool

    @classmethod
    def of(
        cls,
        results: Results,
        candidates: Sequence[Candidate],
        notes: Sequence[str] = (),
        *,
        own_net: bool = False,
        advice: Sequence[Mapping[str, Any]] = (),
        is_whole: bool = True,
    ) -> Self:
        """Judge the candidates by the results of one run, whose frame may be empty.

        With `own_net`, the results are about a user's net, and the scorecard recommends a rule for it and
        compares the `advice` of :func:`sdp_bench.bench.advice.advice.advise_on` with the measurements.
        """
        frame, traits = results.frame, results.traits
        costs = tuple(cost_tables(frame, traits))
        judged = tuple(judge(results, each, costs) for each in candidates)
        found = tuple(answers(frame, traits, costs)) if own_net else ()
        recommended = None
        if found:
            net = NetKind(str(frame["activation"].iloc[0]), int(frame["depth"].iloc[0])).label
            recommended = verdict(found, costs, net, traits, advice)
        return cls(results, judged, costs, found, recommended, tuple(notes), is_whole)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Verdicts on each rule under test, then on the net, in the words of the command."""
        choice = (self.choice,) if self.choice else ()
        return (*(each.verdict for each in self.judged), *choice)


def build(card: Scorecard, folder: Path) -> Path:
    """Write the page, its measurements and the conformance reports as JSON; return the path of the page.

    ``conformance.json`` of an earlier rule is removed if the kit gave no report; ``results.csv`` stays if
    there are no new measurements. Raises RunFailedError if the folder is not writable.
    """
    text, frame = page(card), card.results.frame
    candidates = [each.candidate for each in card.judged]
    reports = {each.name: each.report.as_dict() for each in candidates if each.report}
    if reports:
        write(folder / CONFORMANCE, public(json.dumps(reports, indent=1)) + "\n")
    else:
        with writing(folder):
            remove(folder / CONFORMANCE)
    if len(frame) or not (folder / DATA).exists():
        write(folder / DATA, table(frame).to_csv(index=False, lineterminator="\n"))
    return write(folder / PAGE, text)


def page(card: Scorecard) -> str:
    results, judged = card.results, card.judged
    variables = {
        "ratios": RATIOS,
        "ordinal": ordinal,
        "meta": {"command": "", "finished": "", "seconds": 0} | dict(results.meta),
        "title": ", ".join(each.label for each in judged) or "Which rule for this net",
        "judged": judged,
        "notes": card.notes,
        "measured": _measured(results.frame),
        "few": _few(results.frame),
        "answers": card.answers,
        "choice": card.choice,
        "recommended": results.traits.recommended,
        "costs": card.costs,
        "figures": _figures(results),
        "styles": results.styles,
        "tables": results.tables,
        "left_out": results.meta.get("left_out", ()),
        "failures": results.failed_together,
        "undefined": results.undefined,
        "settings": recorded(results.meta),
        "nets": results.meta.get("nets", ()),
        "data": DATA,
        "conformance": CONFORMANCE,
    }
    return rendered(_TEMPLATE, results.traits, variables)


def ordinal(number: int) -> str:
    """``1st``, ``2nd``, ``11th``."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _figures(results: Results) -> list[Figure]:
    of_classes = [table for table in results.tables if table.metric.name == "tv_class"]
    over_noise = by_family(headline(results.tables) or of_classes, results.traits)
    found = choice(results.tabled, results.traits)
    return [*over_noise, *filter(None, choice_figures(found) if found else ())]


def _measured(frame: pd.DataFrame) -> str:
    if frame.empty:
        return ""
    nets, kinds = frame["net"].nunique(), len(frame.drop_duplicates(["activation", "depth", "network"]))
    pairs = len(frame.drop_duplicates(["net", "input"]))
    sigmas = len(frame.drop_duplicates(["sigma"]))
    return (
        f"{labels.plural(nets, 'net')} of {labels.plural(kinds, 'kind')}, "
        f"{labels.plural(pairs, 'pair')} of net and input, {labels.plural(sigmas, 'noise level')}"
    )


def _few(frame: pd.DataFrame) -> bool:
    kinds = frame.groupby(["activation", "depth", "network", "metric"])
    return bool(len(frame)) and bool(((kinds["net"].nunique() < 3) & (kinds["input"].nunique() < 3)).any())
