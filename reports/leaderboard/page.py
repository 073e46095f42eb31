"""The leaderboard as static files: a page, its tables as JSON, the submissions, and badges."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sdp_bench.bench.badge import Badge
from sdp_bench.bench.files import writing
from sdp_bench.bench.problems.problem_set import ProblemSet
from sdp_bench.bench.submissions.making import TIMED
from sdp_bench.bench.submissions.submission import Submission
from sdp_bench.reports.folder import check, inside, write
from sdp_bench.reports.leaderboard.standings import USES, Entry, Standing, entries, standings
from sdp_bench.reports.parts import PAGE
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.rules import RuleTraits
from sdp_bench.reports.writing import environment

DATA = "leaderboard.json"
SUBMISSIONS, BADGES = "submissions", "badges"
_TEMPLATE = Path(__file__).with_name("template.html")


def build(submissions: Sequence[Submission], problems: ProblemSet, folder: Path) -> Path:
    """Write the leaderboard of a problem set and return its page.

    `folder` receives ``index.html``, ``leaderboard.json`` and the folders of submissions and badges. Raises
    UserError if foreign files are in the way or two submissions have the same name, and RunFailedError if the
    folder is not writable.
    """
    found = entries(submissions, problems)
    tables = {use: standings(found, use) for use in USES}
    check(folder, (PAGE, DATA))
    with writing(folder):
        for each in found:
            write(inside(folder, SUBMISSIONS) / f"{each.slug}.json", each.submission.text())
            write(inside(folder, BADGES) / f"{each.slug}.svg", badge(each, tables[USES[0]]))
        write(folder / DATA, json.dumps(as_data(found, problems), indent=1, ensure_ascii=False) + "\n")
        templates = environment(RuleTraits())
        page = templates.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
            problems=problems,
            entries=found,
            # In the order of the first use; entries without any of its problems come last.
            ordered=dict.fromkeys((*(standing.entry for standing in tables[USES[0]]), *found)),
            tables=tables,
            columns={
                use.name: [place.name for place in problems.places if _taken(place.name, table)]
                for use, table in tables.items()
            },
            places=[name for name in TIMED if any(name in each.costs for each in found)],
            ranks={
                use.name: {standing.entry.slug: standing for standing in table}
                for use, table in tables.items()
            },
            data=DATA,
            submissions=SUBMISSIONS,
            badges=BADGES,
        )
        return write(folder / PAGE, page)


def _taken(place: str, table: Sequence[Standing]) -> bool:
    return any(place in standing.score.places for standing in table)


def as_data(found: Sequence[Entry], problems: ProblemSet) -> dict[str, Any]:
    return {
        "digest": problems.digest,
        "problem_set": problems.name,
        "uses": {use.name: {"title": use.title, "unit": use.unit, "about": use.about} for use in USES},
        "standings": {use.name: [_standing(each) for each in standings(found, use)] for use in USES},
        "rules": {
            each.slug: {
                "rule": each.submission.rule.name,
                "label": each.label,
                "version": each.submission.rule.version,
                "submission": f"{SUBMISSIONS}/{each.slug}.json",
                "badge": f"{BADGES}/{each.slug}.svg",
                "cost": {
                    name: {
                        "median": cost.median,
                        "lower": cost.lower,
                        "upper": cost.upper,
                        "passes": cost.passes,
                    }
                    for name, cost in each.costs.items()
                },
                "guarantees": [str(one) for one in each.submission.guarantees],
                "violated": [str(one.guarantee) for one in each.broken],
            }
            for each in found
        },
    }


def _standing(standing: Standing) -> dict[str, Any]:
    score = standing.score
    low, high = score.interval
    return {
        "rule": standing.entry.slug,
        "rank": standing.rank,
        "among": standing.among,
        "level_with_best": standing.level,
        "value": _finite(score.value),
        "interval": [_finite(low), _finite(high)],
        "problems": score.measured,
        "asked": score.asked,
    }


def _finite(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


def badge(entry: Entry, table: Sequence[Standing]) -> str:
    """SVG badge for a rule's README: the problem set, and the rank by the whole distribution."""
    mine = next((each for each in table if each.entry is entry), None)
    name = entry.submission.problem_set.name
    if entry.broken:
        return Badge(name, "guarantee violated", good=False).svg
    if mine is None or mine.rank is None:
        return Badge(name, "entered", good=None).svg
    share = "" if mine.score.whole else f" at {mine.score.measured}/{mine.score.asked}"
    said = f"TV {labels.number(mine.score.value)}{share}, {mine.rank} of {mine.among}"
    return Badge(name, said, good=True).svg
