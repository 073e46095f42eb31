"""The leaderboard: rules of several entries ranked by the same code as any report, as static files."""

from __future__ import annotations

import functools
import itertools
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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
from ..bench.text import table as spreadsheet
from .folder import check, inside, write
from .site import PAGE
from .statistics.ranking import Overall, rank_intervals
from .statistics.stability import SplitHalves, split_halves
from .style import labels
from .style.names import RuleTraits
from .writing import TEMPLATES, rendered

CSV = "leaderboard.csv"
"""File of all ranks and scores, next to the page."""

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
    problems are missing, and `plugin` its code if the rule is not built in. `source` says where its code is:
    ``built in``, ``package``, ``file in the entry`` or ``file not given``. `repetitions` are runs in other
    folders that measured the same numbers again, and `repeated` is the share of the numbers that they have.
    """

    name: str
    rule: str
    file: str
    traits: Traits
    frame: pd.DataFrame
    run: Run
    left_out: tuple[str, ...]
    plugin: Plugin | None
    source: str
    repetitions: tuple[Run, ...] = ()
    repeated: float = 0.0

    @property
    def label(self) -> str:
        return self.traits.label if self.name == self.rule else f"{self.traits.label} ({self.file})"

    @functools.cached_property
    def seconds(self) -> float:
        """Geometric mean over settings of the shortest time (s) for one input; NaN without times."""
        least = self.frame.groupby("setting")["seconds"].min().dropna()
        return float(np.exp(np.log(least[least > 0]).mean())) if (least > 0).any() else math.nan

    @property
    def kinds(self) -> tuple[str, ...]:
        """Properties of the rule, for the filter of the page."""
        kinds = {"sampling": self.traits.sampling is not None, "marginal": self.traits.marginal}
        return tuple(kind for kind, applies in kinds.items() if applies)


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
    """Read entries from folders of results.

    If several folders have the same numbers for a rule, except for rounding, they are one entry. Runs that
    measured some of its numbers again are its repetitions.
    """
    read_entries: list[Entry] = []
    for path in paths:
        stored = read_results(path)
        if stored.faults:
            raise UserError(stored.faults[0])
        entries = list(_entries(stored, path))
        if not entries:
            raise UserError(f"{path} has no measurement of {NAME}: sdp-bench run {NAME} --rules RULE")
        read_entries += entries
    distinct: list[Entry] = []
    for entry in sorted(read_entries, key=lambda entry: -len(entry.frame)):
        whole = next((other for other in distinct if _is_part(entry, other)), None)
        if whole is None:
            distinct.append(entry)
        elif entry.run.id not in {run.id for run in (whole.run, *whole.repetitions)}:
            share = len(entry.frame) / len(whole.frame)
            distinct[distinct.index(whole)] = replace(
                whole, repetitions=(*whole.repetitions, entry.run), repeated=max(share, whole.repeated)
            )
    return _with_distinct_names(distinct)


def _is_part(entry: Entry, whole: Entry) -> bool:
    """Whether another entry of the same rule has all numbers of an entry, with the tolerances of replay."""
    if (entry.rule, entry.plugin) != (whole.rule, whole.plugin):
        return False
    both = entry.frame.merge(whole.frame, on=["unit", "metric_spec", "component"], suffixes=("", "_whole"))
    if len(both) < len(entry.frame):
        return False
    tolerance = np.maximum(1e-5 * both["value"].abs(), 0.1 * both["stderr_whole"].fillna(0.0))
    return bool(((both["value"] - both["value_whole"]).abs() <= tolerance).all())


def _with_distinct_names(entries: Sequence[Entry]) -> list[Entry]:
    """Name entries by their rule, with the file and a number as far as necessary."""
    rules = Counter(entry.rule for entry in entries)
    names = [entry.rule if rules[entry.rule] == 1 else f"{entry.rule} ({entry.file})" for entry in entries]
    counts = Counter(names)
    named = []
    for number, (name, entry) in enumerate(zip(names, entries, strict=True), 1):
        named.append(replace(entry, name=name if counts[name] == 1 else f"{name} {number}"))
    return named


def _entries(stored: Stored, folder: Path) -> Iterator[Entry]:
    """Yield the rules of results that were measured on the problem set."""
    file = folder.resolve().name
    runs = [run for run in stored.runs.values() if NAME in run.experiments]
    if not runs:
        return
    frame = joined_measurements(stored, runs)
    frame = frame[frame["experiment"] == NAME].drop_duplicates(["unit", "rule", "metric_spec", "component"])
    texts = ["unit", "rule", "metric_spec", "component", "metric"]
    frame = frame[[*texts, "value", "floor", "stderr", "seconds", "run"]].astype(
        dict.fromkeys([*texts, "run"], str)
    )
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
        source = _source(plugin, folder)
        yield Entry(name, name, file, traits[name], measurements, run, left_out, plugin, source)


def _source(plugin: Plugin | None, folder: Path) -> str:
    """Say where the code of a rule is; `folder` is that of its entry."""
    if plugin is None:
        return "built in"
    module, _, _ = plugin.address.partition(":")
    if not module.endswith(".py"):
        return "package"
    return "file in the entry" if (folder / Path(module).name).is_file() else "file not given"


@dataclass(frozen=True, eq=False)
class SettingScore:
    """Mean score of an entry in a setting, as readers see it.

    `spread` is the standard deviation over inputs (geometric for factors), NaN for one input. `floor` is the
    mean score of the exact distribution, which is due to sampling error.
    """

    mean: float
    spread: float
    floor: float


@dataclass(frozen=True, eq=False)
class LeaderboardRow:
    """Position of an entry in the table of a use.

    `value`, `low` and `high` are its score and the ends of its 95 % interval (NaN if unknown), `settings` its
    scores by setting. It solved `measured` of `of` problems. `position` is its rank among the
    `among` entries that solved all of these problems (equal means have equal ranks), `first` and `last` are
    the ends of the 95 % interval of this rank, and `same_rank` is the share of random halves of the settings
    in which it has this rank (NaN if unknown). `is_on_front` says whether no entry that solved all problems
    is both more accurate and faster; it is False for entries that did not solve all of them.
    """

    entry: Entry
    value: float
    low: float
    high: float
    settings: dict[str, SettingScore]
    measured: int
    of: int
    position: int
    first: int
    last: int
    among: int
    same_rank: float
    is_on_front: bool = False

    @property
    def tied(self) -> bool:
        """Whether no other entry is significantly better."""
        return self.first == 1

    @property
    def is_complete(self) -> bool:
        return self.measured == self.of


@dataclass(frozen=True, eq=False)
class LeaderboardTable:
    """Rows of one use, best first, and the cheapest of the rules tied with the best on all problems.

    `resolved` are the smallest differences of scores that are significant, for each pair of entries that
    solved all problems, as readers see scores. `halves` compares the order of these entries in halves of the
    settings; None with too few of either.
    """

    use: ScoredUse
    rows: tuple[LeaderboardRow, ...]
    cheapest: Entry | None
    resolved: tuple[float, ...] = ()
    halves: SplitHalves | None = None


@dataclass(frozen=True, eq=False)
class _Contest:
    """Entries ranked on problems that they all solved."""

    overall: Overall
    intervals: Mapping[str, tuple[int, int]]
    halves: SplitHalves | None


def table_of(entries: Sequence[Entry], use: ScoredUse) -> LeaderboardTable:
    """Rank one entry or more for a use, by position, then by the number of solved problems."""
    of_use = _problems_of(use)
    scores = _scores(entries, of_use)
    solved = _solved(scores)
    contests = _contests(scores, solved, RuleTraits({entry.name: entry.traits for entry in entries}))
    count = of_use["unit"].nunique()
    rows = []
    for entry in entries:
        if entry.name in solved:
            units = solved[entry.name]
            rows.append(_row(entry, use, scores, units, contests[units], count))
    rows = [replace(row, is_on_front=_is_on_front(row, rows)) for row in rows]
    rows.sort(key=lambda row: (row.position, -row.measured, row.value))
    best = [row for row in rows if row.tied and row.is_complete]
    timed = [row.entry for row in best if math.isfinite(row.entry.seconds)]
    cheapest = min(timed or [row.entry for row in best[:1]], key=lambda entry: entry.seconds, default=None)
    contest = contests.get(frozenset(of_use["unit"]))
    if contest is None:
        return LeaderboardTable(use, tuple(rows), cheapest)
    overall = contest.overall
    pairs = itertools.combinations(overall.rules, 2)
    differences = [overall.significant_difference(rule, other) for rule, other in pairs]
    resolved = sorted(use.shown(d) for d in differences if d > overall.rounding)
    return LeaderboardTable(use, tuple(rows), cheapest, tuple(resolved), contest.halves)


def _is_on_front(row: LeaderboardRow, rows: Sequence[LeaderboardRow]) -> bool:
    """Whether an entry solved all problems and no other one did so with a better score in less time."""

    def point(other: LeaderboardRow) -> tuple[float, float]:
        return other.value, other.entry.seconds

    timed = [other for other in rows if other.is_complete and not math.isnan(other.entry.seconds)]
    if row not in timed:
        return False
    score, seconds = point(row)
    rivals = [point(other) for other in timed if point(other) != (score, seconds)]
    return not any(rival_score <= score and rival_seconds <= seconds for rival_score, rival_seconds in rivals)


def _problems_of(use: ScoredUse) -> pd.DataFrame:
    all_problems = problems()
    has_metric = all_problems["metric_spec"].str.partition(":")[0].isin(use.metrics)
    has_noise = (all_problems["noise"] == CAUCHY.family) == use.heavy
    return all_problems[has_metric & has_noise]


def _scores(entries: Sequence[Entry], of_use: pd.DataFrame) -> pd.DataFrame:
    """Return the measurements of some problems with scores as values and floors, and entries as rules."""
    frame = pd.concat([entry.frame.assign(rule=entry.name) for entry in entries])
    frame = frame.merge(of_use[["unit", "metric_spec"]], on=["unit", "metric_spec"])
    scores = frame["value"].to_numpy(float, copy=True)
    floors = frame["floor"].to_numpy(float, copy=True)
    for name in frame["metric"].unique():
        of_metric = (frame["metric"] == name).to_numpy()
        metric = recorded_metric(name)
        floor = floors[of_metric]
        scores[of_metric] = np.minimum(metric.score(scores[of_metric], floor), _WORST)
        floors[of_metric] = np.minimum(metric.score(floor, floor), _WORST)
    return frame.assign(value=scores, floor=floors)


def _solved(scores: pd.DataFrame) -> dict[str, frozenset[str]]:
    """Return the problems that entries solved: with every component that any entry has."""
    counts = scores.groupby(["rule", "unit"])["component"].size().unstack("unit", fill_value=0)
    whole = counts == scores.groupby("unit")["component"].nunique()
    solved = {}
    for name, is_whole in whole.iterrows():
        if is_whole.any():
            solved[str(name)] = frozenset(is_whole.index[is_whole])
    return solved


def _contests(
    scores: pd.DataFrame, solved: Mapping[str, frozenset[str]], traits: RuleTraits
) -> dict[frozenset[str], _Contest]:
    """Rank entries on each set of problems that one of them solved, against all others that solved it too."""
    contests = {}
    for units in set(solved.values()):
        rivals = [name for name, problems_of_rival in solved.items() if problems_of_rival >= units]
        rows = scores[scores["unit"].isin(units) & scores["rule"].isin(rivals)]
        overall = Overall.from_measurements(rows, lambda _, values, __: values, traits, setting=(), least=1)
        if overall is not None:
            by_setting = rows.groupby(["setting", "net", "rule"])["value"].mean().unstack("rule")
            nets = by_setting.index.get_level_values("net").factorize()[0]
            halves = split_halves(overall.rules, by_setting[list(overall.rules)].to_numpy(), nets)
            contests[units] = _Contest(overall, rank_intervals(overall, overall.rules), halves)
    return contests


def _row(
    entry: Entry,
    use: ScoredUse,
    scores: pd.DataFrame,
    units: frozenset[str],
    contest: _Contest,
    count: int,
) -> LeaderboardRow:
    """Return the position of an entry that solved `units` of `count` problems."""
    overall = contest.overall
    mean, half = overall.mean(entry.name), overall.half_width(entry.name)
    low, high = np.clip((mean - half, mean + half), 0.0, use.most).tolist()
    rows = scores[(scores["rule"] == entry.name) & scores["unit"].isin(units)]
    inputs = rows.groupby(["setting", "input"], sort=False)[["value", "floor"]].mean()
    settings = {}
    for name, of_setting in inputs.groupby("setting", sort=False):
        spread = use.shown(of_setting["value"].std())
        means = of_setting.mean().map(use.shown)
        settings[str(name)] = SettingScore(means["value"], spread, means["floor"])
    first, last = contest.intervals[entry.name]
    return LeaderboardRow(
        entry,
        value=use.shown(mean),
        low=use.shown(low),
        high=use.shown(high),
        settings=settings,
        measured=len(units),
        of=count,
        position=1 + sum(overall.mean(name) < mean - overall.rounding for name in overall.rules),
        first=first,
        last=last,
        among=len(overall.rules),
        same_rank=contest.halves.same_rank[entry.name] if contest.halves else math.nan,
    )


BADGES = "badges"


def build(paths: Sequence[Path], folder: Path) -> Path:
    """Write the leaderboard of entries (folders of results) with a table as CSV and badges; return its page.

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
    check(folder, (PAGE, CSV))
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
            "badges": BADGES,
            "csv": CSV,
            "provenance": provenance,
        }
        write(folder / CSV, as_csv(tables))
        return write(folder / PAGE, rendered("leaderboard.html", RuleTraits(), variables))


def as_csv(tables: Sequence[LeaderboardTable]) -> str:
    """Return ranks and scores as CSV, over all settings and in every setting."""
    settings = problems().drop_duplicates("setting")[["setting", "net", "noise", "sigma"]]
    about_setting: dict[str, dict[str, Any]] = {}
    for values in settings.to_numpy().tolist():
        about_setting[values[0]] = dict(zip(settings.columns, values, strict=True))
    rows: list[dict[str, Any]] = []
    for table in tables:
        for row in table.rows:
            entry = row.entry
            about: dict[str, Any] = {
                "use": table.use.name,
                "unit": table.use.unit,
                "rule": entry.label,
                "spec": entry.rule,
            }
            rows.append(
                about
                | {
                    **dict.fromkeys(("setting", "net", "noise", "sigma")),
                    "setting": "all",
                    "score": row.value,
                    "low": row.low,
                    "high": row.high,
                    "spread": None,
                    "floor": None,
                    "rank": row.position,
                    "rank_low": row.first,
                    "rank_high": row.last,
                    "among": row.among,
                    "tied_with_best": row.tied,
                    "same_rank_in_halves": row.same_rank,
                    "problems_solved": row.measured,
                    "problems": row.of,
                    "seconds_per_input": entry.seconds,
                    "on_front": row.is_on_front,
                    **provenance(entry),
                }
            )
            for name, score in row.settings.items():
                numbers = {"score": score.mean, "spread": score.spread, "floor": score.floor}
                rows.append(about | about_setting[name] | numbers)
    frame = pd.DataFrame(rows)
    counts = ["rank", "rank_low", "rank_high", "among", "problems_solved", "problems"]
    frame = frame.astype(dict.fromkeys(counts, "Int64"))
    return spreadsheet(frame).to_csv(index=False, lineterminator="\n")


def provenance(entry: Entry) -> dict[str, Any]:
    """Return where the numbers and the code of an entry come from, by column of the CSV."""
    return {
        "numbers": "measured again" if entry.repetitions else "reported",
        "share_measured_again": entry.repeated,
        "code": entry.source,
        "code_hash": entry.plugin.version if entry.plugin else "",
        "entry": entry.file,
        "measured": entry.run.started[:10],
        "measured_again": max((run.started[:10] for run in entry.repetitions), default=""),
        "sdp_bench": entry.run.environment.get("sdp-bench", ""),
        "processor": entry.run.environment.get("cpu", ""),
    }


def badge(entry: Entry, first: LeaderboardTable) -> str:
    """Return the SVG badge for a rule's README: the problem set, and the ranks by the whole distribution."""
    row = next((row for row in first.rows if row.entry is entry), None)
    if row is None:
        return Badge(NAME, "entered", good=None).svg
    share = "" if row.is_complete else f" on {row.measured}/{row.of}"
    ranks = f"rank {row.first}" if row.first == row.last else f"ranks {row.first}–{row.last}"
    text = f"TV {labels.number(row.value)}{share}, {ranks} of {row.among}"
    return Badge(NAME, text, good=True).svg
