"""Results of runs, as the report uses them."""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from ..bench.errors import RunFailedError, UserError
from ..bench.experiments import experiments
from ..bench.reasons import Reason, reasons
from ..bench.results import joined
from ..bench.results.columns import CELL, UNDEFINED
from ..bench.results.folder import Stored, read
from ..bench.runtime.table import Row, load
from ..bench.settings import Settings
from .style.names import RuleTraits
from .style.theme import Style, styles
from .tables.frame import COLUMNS, VARIANTS, checked
from .tables.tables import Table, tables

COMMITTED_TITLE = "Committed results"
BASELINES = Path(__file__).with_name("baselines")
"""Folder of the files that come with the package; its README describes them."""
COMMITTED = BASELINES / "results"
"""Results that come with the package."""

FACTS = BASELINES / "rule_facts.json"
"""What takes too long to compute for a report."""

MEASUREMENT = [*CELL, "component"]
"""Columns that identify a measurement, whatever experiments share it."""

POOR_ACCURACY = 0.9
"""Training accuracy below which a net counts as not having learned."""


@dataclass(frozen=True, eq=False)
class Results:
    """Measurements, and metadata of the runs that made them.

    `frame` has one measurement per row, passes through :func:`sdp_bench.reports.tables.frame.checked`, and
    may be empty. `meta` may have the keys `command`, `preset`, `started`, `finished`, `seconds`, `options`,
    `environment`, `counts`, `left_out`, `nets` and `runs`; missing keys are not shown. `failures` has the
    columns of :func:`sdp_bench.bench.results.joined.failures`, and includes undefined metrics. `runtime` has
    the times of ``sdp-bench runtime``.

    `title` is empty for the report of a run. `published` marks results that come with the package; their page
    also has content that no run produces. `database` is the folder of the results, with the nets' weights;
    None for several folders. `committed` are the committed results, for comparison. `untabled` are
    experiments that a section shows instead of tables.
    """

    frame: pd.DataFrame
    meta: Mapping[str, Any] = field(default_factory=dict)
    failures: pd.DataFrame = field(default_factory=pd.DataFrame)
    runtime: tuple[Row, ...] = ()
    title: str = ""
    published: bool = False
    traits: RuleTraits = field(default_factory=RuleTraits)
    database: Path | None = None
    committed: Results | None = None
    untabled: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "frame", checked(self.frame))

    @functools.cached_property
    def _failures(self) -> list[dict[str, Any]]:
        """Failures, with empty text for unknown fields."""
        frame = self.failures
        return frame.astype(object).where(frame.notna(), "").to_dict("records")  # type: ignore[return-value]

    @property
    def failed(self) -> list[dict[str, Any]]:
        """Failures except undefined metrics."""
        return [row for row in self._failures if row["status"] != UNDEFINED]

    @property
    def undefined(self) -> list[Reason]:
        """Metrics that are undefined for the distributions of some rules, and the reasons."""
        return _reasons(row for row in self._failures if row["status"] == UNDEFINED)

    @property
    def failed_together(self) -> list[Reason]:
        return _reasons(self.failed)

    def columns_with_oracle(self, names: Collection[str]) -> pd.DataFrame:
        """The existing columns among `names` of measurements against an oracle."""
        # Select columns first, without copying; `loc` with both would copy the rows of every column.
        chosen = self.frame[[name for name in self.frame if name in names]]
        return chosen[~self.frame["experiment"].isin(_without_oracle())]

    def once_a_unit(self, names: Collection[str], by: Collection[str] = ()) -> pd.DataFrame:
        """Return columns of measurements against an oracle, with one row per unit and value of `by`.

        A unit has about a hundred measurements, and what depends only on the unit need not be computed for
        each.
        """
        keys = self.columns_with_oracle(("unit", *by))
        chosen = self.frame[[name for name in self.frame if name in names]]
        return chosen.loc[keys.index[~keys.duplicated()]]

    @property
    def tabled(self) -> pd.DataFrame:
        """Measurements shown in tables, with the columns that the report needs."""
        is_untabled = self.frame["experiment"].isin([*_without_oracle(), *self.untabled])
        return self.frame[[*COLUMNS, *VARIANTS]][~is_untabled]

    @functools.cached_property
    def tables(self) -> tuple[Table, ...]:
        tabled = set(self.frame["experiment"].unique()).difference(_without_oracle(), self.untabled)
        return tuple(tables(self.frame, self.traits, sorted(tabled)))

    @functools.cached_property
    def styles(self) -> Mapping[str, Style]:
        return styles(self.columns_with_oracle(["rule"])["rule"].unique(), self.traits)


def _without_oracle() -> list[str]:
    return [name for name, experiment in experiments().items() if not experiment.has_oracle]


def _reasons(failures: Iterable[Mapping[str, Any]]) -> list[Reason]:
    return reasons(
        (row["rule"], row.get("metric", ""), row["error"], row["group"], row["seconds"]) for row in failures
    )


@functools.cache
def facts() -> dict[str, Any]:
    """Return the content of :data:`FACTS`, which ``make rule-facts`` writes.

    It has `described` by name of the rule, verdicts of the `kit` by spec, and two computations. A description
    has a `summary`, paragraphs `about` the rule, and `sources`. A verdict has the words `verdict`, which
    follow the rule's name, the `version` of the kit, the `seed` of its cases, and `faults` that the rule
    declares, with reasons. Each case of the `theorem` has the fields of
    :class:`sdp_bench.oracles.Optimality`; `estimate_errors` is what the function of that name returned.
    """
    content: dict[str, Any] = json.loads(FACTS.read_text(encoding="utf-8"))
    return content


_DAMAGED = "the results that come with the package are damaged"


def committed_results() -> Results:
    """Return the results that come with the package; raises RunFailedError if they are missing or damaged."""
    try:
        runtime = tuple(load(BASELINES / "runtime.csv"))
        stored = read(COMMITTED)
        committed = results_of(stored, list(stored.runs), runtime)
    except (UserError, ValueError, OSError) as error:
        raise RunFailedError(f"{_DAMAGED}: {error}; reinstall it") from error
    if stored.faults:
        raise RunFailedError(f"{_DAMAGED}: {stored.faults[0]}; reinstall it")
    # The nets' weights do not come with the package.
    return replace(committed, title=COMMITTED_TITLE, published=True, database=None)


def results_of(stored: Stored, run_ids: Sequence[str] = (), runtime: tuple[Row, ...] = ()) -> Results:
    """Return what some runs requested, with metadata of the newest of them.

    `run_ids` may be parts of ids; by default the newest run of each folder counts. A measurement may
    come from another run that measured the same cell. If runs request the same thing with different settings,
    the newest counts. The metadata `started`, `seconds` and `command` are those of all runs together.
    """
    requested = run_ids or [stored.newest(folder) for folder in stored.folders]
    distinct_ids = {stored.run(run_id).id for run_id in requested}
    runs = [stored.runs[run_id] for run_id in sorted(distinct_ids)]
    newest = runs[-1]
    frame = checked(joined.joined_measurements(stored, runs))
    failures = joined.failures(stored, runs)
    left_out = [line for run in runs for line in run.left_out] + joined.unsupported(stored, runs)
    meta = {
        "command": "\n".join(dict.fromkeys(run.command for run in runs)),
        "preset": newest.preset,
        "started": runs[0].started,
        "finished": newest.finished,
        "seconds": sum(run.seconds or 0 for run in runs),
        "options": _options(Settings.from_dict(newest.settings), newest.experiments),
        "left_out": list(dict.fromkeys(left_out)),
        "environment": newest.environment,
        "nets": joined.nets(stored, runs).to_dict("records"),
        "runs": {run.id: {"finished": run.finished, "commit": run.environment.get("commit")} for run in runs},
        "counts": {
            "units": int(frame.unit.nunique()) if len(frame) else 0,
            "measurements": len(frame),
            "failures": int((failures["status"] != UNDEFINED).sum()),
        },
    }
    if len(runs) == 1:
        meta["run"] = newest.id
    traits = RuleTraits(joined.rules(stored))
    database = stored.folders[0] if len(stored.folders) == 1 else None
    return Results(frame, meta, failures, runtime, traits=traits, database=database)


def _options(settings: Settings, experiments: Collection[str]) -> dict[str, Any]:
    """Settings by name, as text or plain values for the report."""
    design = asdict(replace(settings.design, noise=None))
    sizes = {}
    for name, size in settings.sizes.items():
        if name not in experiments:
            continue
        counts = {"nets": size.nets, "inputs": size.inputs, "samples": size.samples, "epochs": size.epochs}
        words = [f"{count} {unit}" for unit, count in counts.items() if count is not None]
        sizes[name] = ", ".join([*words, *(size.datasets or ())])
    return {
        **design,
        "noise": settings.design.noise and settings.design.noise.text,
        "training": design["training"] or "each architecture's own recipe",
        **asdict(settings.sampling),
        **settings.metrics,
        "sizes": sizes or None,
        "rules": settings.rules,
        "plugins": [plugin.address for plugin in settings.plugins] or None,
        "slow_rules": settings.slow_rules,
    }
