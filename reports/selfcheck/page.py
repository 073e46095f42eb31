"""Results of the selfcheck in words, as a page, as Markdown for the documentation, and as data."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from sdp_bench.bench import text
from sdp_bench.reports.folder import write
from sdp_bench.reports.parts import PAGE
from sdp_bench.reports.selfcheck.rate import Part, Rate
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.rules import RuleTraits
from sdp_bench.reports.writing import environment

DATA = "rates.csv"

_TEMPLATES = Path(__file__).parent
_TITLES: Mapping[Part, str] = {
    "floors": "Floors: how often the 95 % point covers an exact rule",
    "intervals": "Intervals: how often they cover the truth",
    "power": "Power: how often what is wrong is seen",
    "verdicts": "Verdicts: how often a claim is judged wrongly",
    "gate": "Gate: false alarms, and regressions that are caught",
    "kit": "Conformance kit: faults that are caught, and right rules that pass",
}


@dataclass(frozen=True)
class Findings:
    """Rates of checks, with the command, machine and duration (s) of the run."""

    rates: Sequence[Rate]
    command: str
    machine: str
    seconds: float

    @property
    def broken(self) -> list[Rate]:
        return [rate for rate in self.rates if not rate.kept]

    @property
    def verdict(self) -> str:
        promises = sum(rate.is_promise for rate in self.rates)
        told = len(self.rates) - promises
        words = f"{promises - len(self.broken)} of {labels.plural(promises, 'promise')} kept"
        return f"{words}; {labels.plural(told, 'rate')} told of which nothing is promised" if told else words

    @property
    def tables(self) -> list[tuple[Part, str, dict[str, list[Rate]]]]:
        """Name and title of each part, and its rates by what they count."""
        tables: dict[Part, dict[str, list[Rate]]] = {part: {} for part in get_args(Part)}
        for rate in self.rates:
            tables[rate.part].setdefault(rate.what, []).append(rate)
        return [(part, _TITLES[part], counted) for part, counted in tables.items() if counted]

    def write(self, folder: Path) -> Path:
        """Write the page and its data; return the path of the page."""
        write(folder / DATA, self._csv())
        return write(folder / PAGE, self._rendered("template.html"))

    def markdown(self) -> str:
        return self._rendered("template.md").strip() + "\n"

    def _rendered(self, template: str) -> str:
        shown = environment(RuleTraits())
        shown.filters |= {"promised": promised, "share": share, "cell": text.markdown, "code": text.code}
        context: dict[str, Any] = {"found": self, "data": DATA}
        return shown.get_template(str(_TEMPLATES / template)).render(context)

    def _csv(self) -> str:
        written = io.StringIO()
        rows = csv.writer(written, lineterminator="\n")
        rows.writerow(["part", "what", "condition", "low", "high", "hits", "trials"])
        for rate in self.rates:
            texts = map(text.cell, (rate.part, rate.what, rate.condition))
            rows.writerow([*texts, *rate.promised, rate.hits, rate.trials])
        return written.getvalue()


def promised(rate: Rate) -> str:
    low, high = rate.promised
    if not rate.is_promise:
        return "–"
    if low == high:
        return f"{low:g}"
    if low == 0:
        return f"at most {high:g}"
    if high == 1:
        return f"at least {low:g}"
    return f"{low:g} to {high:g}"


def share(value: float) -> str:
    return f"{value:.3f}"
