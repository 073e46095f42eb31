"""The leaderboard: rules of several entries ranked by the same code as any report, as static files."""

from __future__ import annotations

import functools
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from sdp_ref.rules import Traits

from ..bench.badge import Badge
from ..bench.errors import UserError
from ..bench.experiments.problem_set import DIGEST, NAME, problem_set
from ..bench.files import writing
from ..bench.metrics import recorded_metric
from ..bench.noise import CAUCHY
from ..bench.plugins.plugin import Plugin, plugin_of
from ..bench.results.folder import Run, Stored
from ..bench.results.folder import read as read_results
from ..bench.results.joined import joined_measurements, rules, unsupported
from ..bench.settings import Settings
from .folder import check, inside, write
from .site import PAGE
from .statistics.ranking import Overall, Ranking, rank
from .style import labels
from .style.names import RuleTraits
from .writing import TEMPLATES, rendered

_WORST = math.log(100.0)
"""Bound on |log ratio|: the ratio is 0 for events that were predicted to be impossible."""


@dataclass(frozen=True)
class ScoredUse:
    """A use of predictions, judged by one of several metrics; `heavy` marks that for Cauchy noise."""

    name: str
    title: str
    unit: str
    metrics: tuple[str, ...]
    about: str
    heavy: bool = False

    @property
    def most(self) -> float:
        """The largest possible score."""
        return _WORST if self.unit == "factor" else 1.0

    def shown(self, score: float) -> float:
        """Convert a mean score to the number for readers."""
        return math.exp(score) if self.unit == "factor" else score


USES = tuple(
    ScoredUse(**use)
    for use in tomllib.loads((TEMPLATES / "leaderboard.toml").read_text(encoding="utf-8"))["uses"]
)


@dataclass(frozen=True, eq=False)
class Entry:
    """One rule of one entry.

    `name` identifies it on the page: the spec of the rule, with the name of its file if several files have
    different measurements of it. `frame` has its measurements of the problem set, `left_out` the reasons why
    problems are missing, and `plugin` its code if the rule is not built in.
    """

    name: str
    rule: str
    file: str
    traits: Traits
    frame: pd.DataFrame
    run: Run
    left_out: tuple[str, ...]
    plugin: Plugin | None

    @property
    def label(self) -> str:
        return self.traits.label if self.name == self.rule else f"{self.traits.label} ({self.file})"


@functools.cache
def problems() -> pd.DataFrame:
    """Return the problems with the key of their oracle, setting, net, input, noise, sigma and metrics."""
    rows = []
    for setting in problem_set().settings:
        for key, row in zip(setting.keys, setting.rows, strict=True):
            problem = (key, setting.name, setting.net, row, setting.noise, setting.scale)
            rows += [(*problem, metric) for metric in setting.metrics]
    columns = ["unit", "setting", "net", "input", "noise", "sigma", "metric_spec"]
    return pd.DataFrame(rows, columns=columns)


def read(paths: Sequence[Path]) -> list[Entry]:
    """Read entries from folders of results; identical measurements of a rule are read once."""
    read_entries: list[Entry] = []
    for path in paths:
        stored = read_results(path)
        if stored.faults:
            raise UserError(stored.faults[0])
        entries = list(_entries(stored, path.resolve().name))
        if not entries:
            raise UserError(f"{path} has no measurement of {NAME}: sdp-bench run {NAME} --rules RULE")
        read_entries += entries
    distinct: dict[tuple[str, str], Entry] = {}
    for entry in read_entries:
        values = entry.frame[["unit", "metric_spec", "component", "value"]].to_csv(index=False)
        distinct.setdefault((entry.rule, values), entry)
    return _with_distinct_names(list(distinct.values()))


def _with_distinct_names(entries: Sequence[Entry]) -> list[Entry]:
    """Name entries by their rule, with the file and a number as far as necessary."""
    rules = Counter(entry.rule for entry in entries)
    names = [entry.rule if rules[entry.rule] == 1 else f"{entry.rule} ({entry.file})" for entry in entries]
    counts = Counter(names)
    named = []
    for number, (name, entry) in enumerate(zip(names, entries, strict=True), 1):
        named.append(replace(entry, name=name if counts[name] == 1 else f"{name} {number}"))
    return named


def _entries(stored: Stored, file: str) -> Iterator[Entry]:
    """Yield the rules of results that were measured on the problem set."""
    runs = [run for run in stored.runs.values() if NAME in run.experiments]
    if not runs:
        return
    frame = joined_measurements(stored, runs)
    frame = frame[frame["experiment"] == NAME].drop_duplicates(["unit", "rule", "metric_spec", "component"])
    texts = ["unit", "rule", "metric_spec", "component", "metric"]
    frame = frame[[*texts, "value", "floor", "seconds", "run"]].astype(dict.fromkeys([*texts, "run"], str))
    # What a problem is follows from its key; the file may claim another net or noise.
    frame = frame.merge(problems(), on=["unit", "metric_spec"])
    frame = frame.sort_values(["unit", "metric_spec", "component"], ignore_index=True)
    traits = rules(stored)
    lines = [line for run in runs for line in run.left_out] + unsupported(stored, runs)
    for rule, measurements in frame.groupby("rule", sort=True):
        name = str(rule)
        if traits[name].reference:
            continue
        run = next(run for run in reversed(runs) if run.id in set(measurements["run"]))
        left_out = tuple(dict.fromkeys(line.reason for line in lines if line.rule == name))
        plugin = plugin_of(name, Settings.from_dict(run.settings).plugins)
        yield Entry(name, name, file, traits[name], measurements, run, left_out, plugin)


@dataclass(frozen=True, eq=False)
class LeaderboardRow:
    """Position of an entry in the table of a use.

    `value`, `low` and `high` are its score and the ends of its 95 % interval (NaN if unknown), `settings` its
    mean score in each setting. It solved `measured` of `of` problems. `position` counts from 1 among the
    `among` entries that solved all of these problems, `tied` says whether it is statistically tied with the
    best of them.
    """

    entry: Entry
    value: float
    low: float
    high: float
    settings: dict[str, float]
    measured: int
    of: int
    position: int
    among: int
    tied: bool


@dataclass(frozen=True, eq=False)
class LeaderboardTable:
    """Rows of one use, best first, and the cheapest of the rules tied with the best on all problems."""

    use: ScoredUse
    rows: tuple[LeaderboardRow, ...]
    cheapest: Entry | None


def table_of(entries: Sequence[Entry], use: ScoredUse) -> LeaderboardTable:
    """Rank one entry or more for a use, by position, then by the number of solved problems."""
    of_use = _problems_of(use)
    scores = _scores(entries, of_use)
    solved = _solved(scores)
    rankings = _rankings(scores, solved, RuleTraits({entry.name: entry.traits for entry in entries}))
    count = of_use["unit"].nunique()
    rows = []
    for entry in entries:
        if entry.name in solved:
            units = solved[entry.name]
            rows.append(_row(entry, use, scores, units, rankings[units], count))
    rows.sort(key=lambda row: (row.position, -row.measured, row.value))
    cheapest = None
    of_all_problems = rankings.get(frozenset(of_use["unit"]))
    if of_all_problems:
        _, ranking = of_all_problems
        name = ranking.cheapest({entry.name: seconds_of(entry.frame) for entry in entries})
        cheapest = next(entry for entry in entries if entry.name == name)
    return LeaderboardTable(use, tuple(rows), cheapest)


def _problems_of(use: ScoredUse) -> pd.DataFrame:
    all_problems = problems()
    has_metric = all_problems["metric_spec"].str.partition(":")[0].isin(use.metrics)
    has_noise = (all_problems["noise"] == CAUCHY.family) == use.heavy
    return all_problems[has_metric & has_noise]


def _scores(entries: Sequence[Entry], of_use: pd.DataFrame) -> pd.DataFrame:
    """Return the measurements of some problems with scores as their values, and names of entries as rules."""
    frame = pd.concat([entry.frame.assign(rule=entry.name) for entry in entries])
    frame = frame.merge(of_use[["unit", "metric_spec"]], on=["unit", "metric_spec"])
    scores = frame["value"].to_numpy(float, copy=True)
    floors = frame["floor"].to_numpy(float)
    for name in frame["metric"].unique():
        of_metric = (frame["metric"] == name).to_numpy()
        metric = recorded_metric(name)
        scores[of_metric] = np.minimum(metric.score(scores[of_metric], floors[of_metric]), _WORST)
    return frame.assign(value=scores)


def _solved(scores: pd.DataFrame) -> dict[str, frozenset[str]]:
    """Return the problems that entries solved: with every component that any entry has."""
    counts = scores.groupby(["rule", "unit"])["component"].size().unstack("unit", fill_value=0)
    whole = counts == scores.groupby("unit")["component"].nunique()
    solved = {}
    for name, is_whole in whole.iterrows():
        if is_whole.any():
            solved[str(name)] = frozenset(is_whole.index[is_whole])
    return solved


def _rankings(
    scores: pd.DataFrame, solved: Mapping[str, frozenset[str]], traits: RuleTraits
) -> dict[frozenset[str], tuple[Overall, Ranking]]:
    """Rank entries on each set of problems that one of them solved, against all others that solved it too."""
    rankings = {}
    for units in set(solved.values()):
        rivals = [name for name, problems_of_rival in solved.items() if problems_of_rival >= units]
        rows = scores[scores["unit"].isin(units) & scores["rule"].isin(rivals)]
        overall = Overall.from_measurements(rows, lambda _, values, __: values, traits, setting=(), least=1)
        if overall is not None:
            rankings[units] = overall, rank(overall, overall.rules)
    return rankings


def _row(
    entry: Entry,
    use: ScoredUse,
    scores: pd.DataFrame,
    units: frozenset[str],
    ranked: tuple[Overall, Ranking],
    count: int,
) -> LeaderboardRow:
    """Return the position of an entry that solved `units` of `count` problems."""
    overall, ranking = ranked
    mean, half = overall.mean(entry.name), overall.half_width(entry.name)
    low, high = np.clip((mean - half, mean + half), 0.0, use.most).tolist()
    rows = scores[(scores["rule"] == entry.name) & scores["unit"].isin(units)]
    settings = rows.groupby("setting", sort=False)["value"].mean().map(use.shown)
    return LeaderboardRow(
        entry,
        value=use.shown(mean),
        low=use.shown(low),
        high=use.shown(high),
        settings={str(name): value for name, value in settings.items()},
        measured=len(units),
        of=count,
        position=1 + sum(overall.mean(name) < mean for name in overall.rules),
        among=len(overall.rules),
        tied=entry.name in ranking.best,
    )


def seconds_of(frame: pd.DataFrame) -> float:
    """Geometric mean over settings of the shortest time (s) for one input; NaN without times."""
    least = frame.groupby("setting")["seconds"].min().dropna()
    return float(np.exp(np.log(least[least > 0]).mean())) if (least > 0).any() else math.nan


BADGES = "badges"


def build(paths: Sequence[Path], folder: Path) -> Path:
    """Write the leaderboard of entries (folders of results) with badges; return its page.

    Raises UserError if an entry cannot be read or foreign files are in the way.
    """
    entries = read(paths)
    tables = [table_of(entries, use) for use in USES]
    first = tables[0]
    # In the order of the first use; entries without any of its problems come last.
    ranked = [row.entry for row in first.rows]
    ordered = list(dict.fromkeys(ranked + entries))
    slugs: dict[Entry, str] = {}  # distinct names for files and links
    for entry in ordered:
        slug = re.sub(r"[^a-z0-9]+", "-", entry.name.lower()).strip("-")[:80] or "rule"
        slugs[entry] = slug if slug not in slugs.values() else f"{slug}-{len(slugs) + 1}"
    check(folder, (PAGE,))
    with writing(folder):
        for entry in ordered:
            write(inside(folder, BADGES) / f"{slugs[entry]}.svg", badge(entry, first))
        variables = {
            "name": NAME,
            "digest": DIGEST,
            "problems": problems(),
            "entries": ordered,
            "slugs": slugs,
            "tables": tables,
            "rows": {(table.use.name, row.entry): row for table in tables for row in table.rows},
            "seconds": {entry: seconds_of(entry.frame) for entry in entries},
            "badges": BADGES,
        }
        return write(folder / PAGE, rendered("leaderboard.html", RuleTraits(), variables))


def badge(entry: Entry, first: LeaderboardTable) -> str:
    """Return the SVG badge for a rule's README: the problem set, and the rank by the whole distribution."""
    row = next((row for row in first.rows if row.entry is entry), None)
    if row is None:
        return Badge(NAME, "entered", good=None).svg
    share = "" if row.measured == row.of else f" on {row.measured}/{row.of}"
    text = f"TV {labels.number(row.value)}{share}, {row.position} of {row.among}"
    return Badge(NAME, text, good=True).svg
