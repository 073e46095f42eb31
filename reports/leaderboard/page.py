"""The leaderboard as static files: a page, its tables as JSON, and a badge for each rule."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sdp_bench.bench.badge import Badge
from sdp_bench.bench.experiments.problem_set import DIGEST, NAME
from sdp_bench.bench.files import writing
from sdp_bench.reports.folder import check, inside, write
from sdp_bench.reports.leaderboard.standings import USES, Entry, Table, problems, read, seconds_of, table
from sdp_bench.reports.parts import PAGE
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.rules import RuleTraits
from sdp_bench.reports.writing import environment

DATA, BADGES = "leaderboard.json", "badges"
_TEMPLATE = Path(__file__).with_name("template.html")


def build(paths: Sequence[Path], folder: Path) -> Path:
    """Write the leaderboard of entries (results files or export folders) and return its page.

    `folder` receives ``index.html``, ``leaderboard.json`` and the folder ``badges``. Raises UserError if an
    entry cannot be read or foreign files are in the way, and RunFailedError if the folder is not writable.
    """
    entries = read(paths)
    tables = [table(entries, use) for use in USES]
    first = tables[0]
    # In the order of the first use; entries without any of its problems come last.
    ordered = list(dict.fromkeys((*(standing.entry for standing in first.standings), *entries)))
    slugs = _slugs(ordered)
    check(folder, (PAGE, DATA))
    with writing(folder):
        for entry in ordered:
            write(inside(folder, BADGES) / f"{slugs[entry]}.svg", badge(entry, first))
        data = as_data(ordered, tables, slugs)
        write(folder / DATA, json.dumps(data, indent=1, ensure_ascii=False) + "\n")
        template = environment(RuleTraits()).from_string(_TEMPLATE.read_text(encoding="utf-8"))
        page = template.render(
            name=NAME,
            digest=DIGEST,
            problems=problems(),
            entries=ordered,
            slugs=slugs,
            tables=tables,
            found={
                (each.use.name, standing.entry): standing for each in tables for standing in each.standings
            },
            columns={
                each.use.name: list(dict.fromkeys(s for own in each.standings for s in own.settings))
                for each in tables
            },
            seconds={entry: seconds_of(entry.frame) for entry in entries},
            data=DATA,
            badges=BADGES,
        )
        return write(folder / PAGE, page)


def _slugs(entries: Sequence[Entry]) -> dict[Entry, str]:
    """Distinct names of entries for files and links."""
    slugs: dict[Entry, str] = {}
    for entry in entries:
        slug = re.sub(r"[^a-z0-9]+", "-", entry.name.lower()).strip("-")[:80] or "rule"
        slugs[entry] = slug if slug not in slugs.values() else f"{slug}-{len(slugs) + 1}"
    return slugs


def as_data(entries: Sequence[Entry], tables: Sequence[Table], slugs: dict[Entry, str]) -> dict[str, Any]:
    """Return the content of ``leaderboard.json``."""
    return {
        "digest": DIGEST,
        "problem_set": NAME,
        "uses": {
            each.use.name: {"title": each.use.title, "unit": each.use.unit, "about": each.use.about}
            for each in tables
        },
        "standings": {
            each.use.name: [
                {
                    "rule": slugs[standing.entry],
                    "rank": standing.position,
                    "among": standing.among,
                    "tied_with_best": standing.tied,
                    "value": _finite(standing.value),
                    "interval": [_finite(standing.low), _finite(standing.high)],
                    "problems": standing.measured,
                    "of": standing.of,
                }
                for standing in each.standings
            ]
            for each in tables
        },
        "cheapest": {each.use.name: each.cheapest and slugs[each.cheapest] for each in tables},
        "rules": {
            slugs[entry]: {
                "rule": entry.rule,
                "label": entry.label,
                "entry": entry.file,
                "badge": f"{BADGES}/{slugs[entry]}.svg",
                "seconds": _finite(seconds_of(entry.frame)),
            }
            for entry in entries
        },
    }


def _finite(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


def badge(entry: Entry, first: Table) -> str:
    """Return the SVG badge for a rule's README: the problem set, and the rank by the whole distribution."""
    mine = next((standing for standing in first.standings if standing.entry is entry), None)
    if mine is None:
        return Badge(NAME, "entered", good=None).svg
    share = "" if mine.whole else f" on {mine.measured}/{mine.of}"
    text = f"TV {labels.number(mine.value)}{share}, {mine.position} of {mine.among}"
    return Badge(NAME, text, good=True).svg
