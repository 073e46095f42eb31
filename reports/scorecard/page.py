"""The scorecard of a rule on one page: conformance, comparison with other rules, and cost."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, Self

import pandas as pd

from ...bench import text as text_of
from ...bench.budget.sentences import averaged, sentences
from ...bench.experiments.versions import are_current
from ...bench.files import writing
from ...bench.metrics import recorded_metric
from ...bench.results.folder import RUNS, read
from ...bench.text import public
from ...bench.validation.result import Candidate, Validation
from ..folder import remove, write
from ..frames import described
from ..page import TABLES, table_of, write_table
from ..recommendation.answers import Recommendation, recommendations, verdict
from ..recommendation.judging import CostTable, Judged, Verdict, cost_tables, judge
from ..results import Results, results_of
from ..sections.choice import choice, choice_figures
from ..sections.figures import by_family
from ..site import PAGE
from ..style import labels
from ..style.figure import Figure
from ..style.names import NetKind
from ..tables.tables import headline
from ..writing import recorded, rendered

CONFORMANCE = "conformance.json"
BUDGET = "budget.csv"
FILES = (PAGE, *TABLES, CONFORMANCE, BUDGET)
"""Files that :func:`build` writes."""

_TEMPLATE = Path(__file__).with_name("template.html")

RATIOS = "Ratio of standard deviations: the factor that it is off by"


@dataclass(frozen=True, eq=False, repr=False)
class Scorecard:
    """All findings on the rules under test or on a net, computed once for page and terminal.

    `costs` are by kind of net. `answers` recommend a rule for a user's net and are empty for the nets of
    experiments; `choice` is the recommendation in words. `budget` is the uncertainty budget of a user's net,
    which may be empty. `notes` concern the net and the measurements.
    `is_whole` is False if something failed to run.
    """

    results: Results
    judged: tuple[Judged, ...]
    costs: tuple[CostTable, ...]
    answers: tuple[Recommendation, ...]
    choice: Verdict | None
    budget: pd.DataFrame
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
        budget: Sequence[Mapping[str, Any]] = (),
        is_whole: bool = True,
    ) -> Self:
        """Judge the candidates by the results of one run, whose frame may be empty.

        With `own_net`, the results are about a user's net, and the scorecard recommends a rule for it and
        compares the `advice` of :func:`sdp_bench.bench.advice.advice.advise_on` with the measurements.
        """
        frame, traits = results.frame, results.traits
        costs = tuple(cost_tables(frame, traits))
        judged = tuple(judge(results, candidate, costs) for candidate in candidates)
        answers = tuple(recommendations(frame, traits, costs)) if own_net else ()
        recommended = None
        if answers:
            net = NetKind(str(frame["activation"].iloc[0]), int(frame["depth"].iloc[0])).label
            recommended = verdict(answers, costs, net, traits, advice)
        table = pd.DataFrame(budget)
        return cls(results, judged, costs, answers, recommended, table, tuple(notes), is_whole)

    @property
    def budget_lines(self) -> list[str]:
        """The uncertainty budget in words; empty without `--budget`."""
        if self.budget.empty:
            return []
        name = str(self.frame["activation"].iloc[0]) if len(self.frame) else "this net"
        return sentences(self.budget, name.removeprefix("own:"))

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Verdicts on each rule under test, then on the net, in the words of the command."""
        verdicts = [judged.verdict for judged in self.judged]
        if self.choice:
            verdicts.append(self.choice)
        return tuple(verdicts)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Rules under test, with their conformance reports."""
        return tuple(judged.candidate for judged in self.judged)

    @property
    def verdict(self) -> str:
        """The last lines of the verdicts."""
        return "\n".join(verdict.last for verdict in self.verdicts)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Measurements, one per row, with the columns of :func:`sdp_bench.load`."""
        return described(self.results.frame)

    @property
    def is_wrong(self) -> bool:
        """Whether a rule fails a check that it does not declare as a known fault, or no check could run."""
        return any(candidate.is_wrong for candidate in self.candidates)

    @property
    def exit_code(self) -> int:
        """Exit code of the command: 1 if a rule is wrong, 3 if something failed to run, 0 otherwise."""
        if self.is_wrong:
            return 1
        has_failed = not self.is_whole or any(judged.unmeasured for judged in self.judged)
        return 3 if has_failed else 0

    def __repr__(self) -> str:
        return "\n".join(filter(None, (self.verdict, f"{len(self.results.frame)} measurements")))

    def _repr_html_(self) -> str:
        verdicts = ""
        for assessment in self.verdicts:
            lines = "".join(f"<li>{escape(line)}</li>" for line in assessment.lines)
            summary = f"<summary>{escape(assessment.subject)}</summary>"
            verdicts += f"<p><strong>{escape(assessment.last)}</strong></p>"
            verdicts += f"<details>{summary}<ul>{lines}</ul></details>"
        tables = "".join(f"<h4>{escape(title)}</h4>{table.to_html()}" for title, table in self._tables())
        return f"<div>{verdicts}{tables}<p>{len(self.results.frame)} measurements</p></div>"

    def _tables(self) -> Iterator[tuple[str, pd.DataFrame]]:
        """Means ± standard errors by rule and noise level, for each metric with a single component."""
        frame = self.frame[self.frame["component"].isna() | (self.frame["component"] == "")]
        for name, rows in frame.groupby("metric", observed=True):
            metric = recorded_metric(str(name))
            rows = rows.assign(value=metric.shown(rows["value"].to_numpy()))
            cells = rows.groupby(["rule", "sigma"], observed=True)["value"].agg(["mean", "sem"])
            means = cells["mean"].map("{:.4g}".format)
            errors = cells["sem"].map(lambda error: "" if math.isnan(error) else f" ± {error:.1g}")
            better = {"one": "1 is right", "lower": "lower is better", "higher": "higher is better"}
            direction = "higher is better" if metric.complement else better.get(metric.better, "")
            unit = next(filter(None, rows["unit_of_measure"].astype(str).unique()), "1")
            notes = [direction] if direction else []
            if unit != "1":
                notes.append(f"unit: {unit}")
            notes.append("mean ± standard error over inputs")
            yield f"{metric.title} ({', '.join(notes)})", (means + errors).unstack()


def scorecard_of(validation: Validation, database: Path) -> Scorecard:
    """Judge a validation by its measurements, in the folder `database`."""
    return Scorecard.of(
        _measurements(validation, database),
        validation.candidates,
        validation.notes,
        own_net=validation.own_net,
        advice=validation.advice,
        budget=validation.budget,
        is_whole=validation.is_whole,
    )


def _measurements(validation: Validation, database: Path) -> Results:
    """Measurements of the validation, or of the newest run with the current versions of its rules."""
    nothing = Results(pd.DataFrame(), {"command": validation.command})
    if validation.run is not None:
        return results_of(read(database), [validation.run])
    if not (database / RUNS).is_dir():
        return nothing
    names = {candidate.name for candidate in validation.candidates}
    stored = read(database)
    if not stored.runs:
        return nothing
    results = results_of(stored)
    frame = results.frame[are_current(results.frame, names, validation.plugins)]
    return replace(results, frame=frame) if names & set(frame["rule"]) else nothing


def build(card: Scorecard, folder: Path) -> Path:
    """Write the page, its measurements and the conformance reports as JSON; return the path of the page.

    ``conformance.json`` of an earlier rule is removed if the kit gave no report; an older table of
    measurements stays if there are no new measurements. Raises RunFailedError if the folder is not writable.
    """
    text, frame = page(card), card.results.frame
    reports = {
        candidate.name: candidate.report.as_dict() for candidate in card.candidates if candidate.report
    }
    if reports:
        write(folder / CONFORMANCE, public(json.dumps(reports, indent=1)) + "\n")
    else:
        with writing(folder):
            remove(folder / CONFORMANCE)
    if len(card.budget):
        write(folder / BUDGET, text_of.table(card.budget).to_csv(index=False))
    else:
        with writing(folder):
            remove(folder / BUDGET)
    if len(frame) or not any((folder / name).exists() for name in TABLES):
        write_table(frame, folder)
    return write(folder / PAGE, text)


def page(card: Scorecard) -> str:
    """Return the HTML text of the scorecard."""
    results = card.results
    variables = vars(card) | {
        "budget_rows": _budget_rows(card.budget),
        "budget_file": BUDGET,
        "ratios": RATIOS,
        "ordinal": ordinal,
        "meta": {"command": "", "finished": "", "seconds": 0} | dict(results.meta),
        "title": ", ".join(judged.label for judged in card.judged) or "Which rule for this net",
        "measured": _measured(results.frame),
        "few": _few(results.frame),
        "recommended": results.traits.recommended,
        "figures": _figures(results),
        "styles": results.styles,
        "tables": results.tables,
        "left_out": results.meta.get("left_out", ()),
        "failures": results.failed_together,
        "undefined": results.undefined,
        "settings": recorded(results.meta),
        "nets": results.meta.get("nets", ()),
        "data": table_of(results.frame),
        "conformance": CONFORMANCE,
    }
    return rendered(_TEMPLATE, results.traits, variables)


def _budget_rows(budget: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of the table of the budget: means over the inputs by noise level, output and group."""
    rows: list[dict[str, Any]] = []
    if budget.empty:
        return rows
    for (sigma, output), part in budget.groupby(["sigma", "output"]):
        shares = averaged(part)
        shares["largest"] = (part["largest"] == "yes").groupby(part["group"], sort=False).sum()
        for row in shares.reset_index().to_dict("records"):
            known = {str(name): None if pd.isna(value) else value for name, value in row.items()}
            rows.append(known | {"sigma": sigma, "output": output, "inputs": part["input"].nunique()})
    return rows


def ordinal(number: int) -> str:
    """``1st``, ``2nd``, ``11th``."""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _figures(results: Results) -> list[Figure]:
    of_classes = [table for table in results.tables if table.metric.name == "tv_class"]
    over_noise = by_family(headline(results.tables) or of_classes, results.traits)
    blocks = choice(results.tabled, results.traits)
    return [*over_noise, *filter(None, choice_figures(blocks) if blocks else ())]


def _measured(frame: pd.DataFrame) -> str:
    if frame.empty:
        return ""
    nets = frame["net"].nunique()
    kinds = len(frame.drop_duplicates(["activation", "depth", "network"]))
    pairs = len(frame.drop_duplicates(["net", "input"]))
    sigmas = len(frame.drop_duplicates(["sigma"]))
    return (
        f"{labels.plural(nets, 'net')} of {labels.plural(kinds, 'kind')}, "
        f"{labels.plural(pairs, 'pair')} of net and input, {labels.plural(sigmas, 'noise level')}"
    )


def _few(frame: pd.DataFrame) -> bool:
    """Whether a kind of net has both fewer than three nets and fewer than three inputs."""
    if frame.empty:
        return False
    kinds = frame.groupby(["activation", "depth", "network", "metric"])
    return bool(((kinds["net"].nunique() < 3) & (kinds["input"].nunique() < 3)).any())
