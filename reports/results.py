"""Results of runs, as a report takes them."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from sdp_bench.bench.errors import NOT_DEFINED, RunFailedError, UserError
from sdp_bench.bench.experiments import experiments
from sdp_bench.bench.results.exchange import opened
from sdp_bench.bench.results.record import Run
from sdp_bench.bench.results.store import Store
from sdp_bench.bench.runs.reasons import Reason, Told, reasons
from sdp_bench.bench.runtime.table import Row, load
from sdp_bench.bench.settings import Settings, Size
from sdp_bench.reports.committed import TITLE, Committed
from sdp_bench.reports.style.drawing import Style, styles
from sdp_bench.reports.style.rules import RuleTraits
from sdp_bench.reports.tables.frame import COLUMNS, VARIANTS, checked
from sdp_bench.reports.tables.tables import Table, tables

BASELINES = Path(__file__).with_name("baselines")
"""Exported results that come with the package; see its README for what they are."""

MEASUREMENT = ["unit", "rule", "metric_spec", "component"]
"""What a row of a results file is known by, whatever the suites that share it."""

POOR_ACCURACY = 0.9
"""Training accuracy below which a net counts as one that did not learn."""


@dataclass(frozen=True, eq=False)
class Results:
    """Measurements and what is known of how they were made.

    Attributes
    ----------
    frame : DataFrame
        Long format, one row each, as the store gives them; may be empty. It is checked as
        :func:`sdp_bench.reports.tables.frame.checked` does.
    meta : mapping
        `command`, `preset`, `started`, `finished`, `seconds`, `options`, `environment`, `counts`,
        `left_out`, `nets` and `runs`. What is not there is not shown.
    failures : DataFrame
        Columns `group`, `rule`, `metric`, `error` and `seconds`; may be empty. Measurements of laws for
        which a metric is not defined are among them.
    runtime : tuple of Row
        What ``sdp-bench runtime`` timed; may be empty.
    title : str
        Of the page, where it is not that of a run.
    published : bool
        Whether they come with the package: on their page stands, too, what no run enters.
    traits : RuleTraits
        Of its rules; by default of the package's own alone.
    database : Path, optional
        Results file with the nets' weights, for the commands that go on from it; None where there is none.
    committed : Committed, optional
        Those that come with the package, which stand beside these.
    untabled : frozenset of str
        Experiments that are shown otherwise than as tables.

    Raises
    ------
    ValueError
        If a non-empty frame lacks columns.
    """

    frame: pd.DataFrame
    meta: Mapping[str, Any] = field(default_factory=dict)
    failures: pd.DataFrame = field(default_factory=pd.DataFrame)
    runtime: tuple[Row, ...] = ()
    title: str = ""
    published: bool = False
    traits: RuleTraits = field(default_factory=RuleTraits)
    database: Path | None = None
    committed: Committed | None = None
    untabled: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "frame", checked(self.frame))

    @functools.cached_property
    def failed(self) -> list[dict[str, Any]]:
        """Failures, with empty text for what is not known of one, without what is not defined."""
        return [row for row in self._failures if not row["error"].startswith(NOT_DEFINED)]

    @functools.cached_property
    def undefined(self) -> list[Reason]:
        """Which metrics are not defined for the laws of which rules, and why."""
        return _reasons(row for row in self._failures if row["error"].startswith(NOT_DEFINED))

    @functools.cached_property
    def failed_together(self) -> list[Reason]:
        """Failures, those of one rule for one reason together."""
        return _reasons(self.failed)

    @functools.cached_property
    def _failures(self) -> list[dict[str, Any]]:
        frame = self.failures
        return [
            {str(key): value for key, value in row.items()}
            for row in frame.astype(object).where(frame.notna(), "").to_dict("records")
        ]

    # Of most results these are nearly all: kept, they would take the frame's memory again.
    @property
    def with_oracle(self) -> pd.DataFrame:
        """Measurements of laws against an oracle."""
        return self.columns_with_oracle(self.frame.columns)

    def columns_with_oracle(self, names: Collection[str]) -> pd.DataFrame:
        """Some columns of measurements of laws against an oracle: of these names those that there are."""
        without = [name for name, known in experiments().items() if not known.has_oracle]
        chosen = [name for name in self.frame if name in names]
        # Columns first, which are not copied: `loc` with both takes the rows of every column.
        return self.frame[chosen][~self.frame["experiment"].isin(without)]

    def once_a_unit(self, names: Collection[str], apart: Collection[str] = ()) -> pd.DataFrame:
        """Some columns of measurements against an oracle, one for each unit and what stands in others.

        What is asked of a unit need not be asked of each of its measurements, which are a hundred times more.

        Parameters
        ----------
        names : collection of str
            Of the columns.
        apart : collection of str
            Columns in which measurements of one unit differ.

        Returns
        -------
        DataFrame
            Of all measurements where it is not known which units they are of.
        """
        if "unit" not in self.frame:
            return self.columns_with_oracle(names)
        known = self.columns_with_oracle(("unit", *apart))
        return self.frame[[name for name in self.frame if name in names]].loc[
            known.index[~known.duplicated()]
        ]

    @property
    def tabled(self) -> pd.DataFrame:
        """Measurements that tables are made of, with the columns that the report needs."""
        return self.frame[[*COLUMNS, *VARIANTS]][self.frame["experiment"].isin(self._tabled)]

    @property
    def _tabled(self) -> list[str]:
        """Experiments that are shown as tables."""
        without = {name for name, known in experiments().items() if not known.has_oracle} | self.untabled
        return sorted(set(self.frame["experiment"].unique()) - without)

    @functools.cached_property
    def tables(self) -> tuple[Table, ...]:
        """Tables by noise level and rule."""
        return tuple(tables(self.frame, self.traits, self._tabled))

    @functools.cached_property
    def styles(self) -> Mapping[str, Style]:
        """How each rule is drawn."""
        return styles(self.columns_with_oracle(["rule"])["rule"].unique(), self.traits)


def _reasons(failures: Iterable[Mapping[str, Any]]) -> list[Reason]:
    return reasons(
        Told(row["rule"], row.get("metric", ""), row["error"], row["group"], row["seconds"])
        for row in failures
    )


def committed_results() -> Results:
    """Results that come with the package.

    Returns
    -------
    Results

    Raises
    ------
    RunFailedError
        If they are missing or damaged.
    """
    try:
        timed = tuple(load(BASELINES / "runtime.csv"))
        with opened(BASELINES) as store:
            committed = results_of(store, store.runs(), timed)
    except (UserError, ValueError, OSError) as error:
        raise RunFailedError(
            f"the results that come with the package are damaged: {error}; reinstall it"
        ) from error
    # The file they were read into is gone.
    return replace(committed, title=TITLE, published=True, database=None)


def results_of(store: Store, numbers: Sequence[int] = (), runtime: tuple[Row, ...] = ()) -> Results:
    """Measurements of some runs together; the newest one speaks of settings and environment.

    What several of them measured, perhaps with other settings, counts once, as the newest measured it.

    Parameters
    ----------
    store : Store
    numbers : sequence of int
        Of the runs; without any, the newest.
    runtime : tuple of Row
        As `Results` has it.

    Returns
    -------
    Results
    """
    runs = [store.run(number) for number in sorted(set(numbers))] or [store.run()]
    frame = checked(store.frame(*runs))
    failures = pd.concat([store.failures(run) for run in runs], ignore_index=True).drop_duplicates()
    metas = [_meta_of(store, run) for run in runs]
    if len(metas) > 1:
        metas[-1].pop("run")  # that of one; here no measurement is of another run
    meta = metas[-1] | {
        "command": "\n".join(dict.fromkeys(m["command"] for m in metas)),
        "started": metas[0]["started"],
        "seconds": sum(m["seconds"] or 0 for m in metas),
        "left_out": list(dict.fromkeys(each for m in metas for each in m["left_out"])),
        "nets": list({net["digest"]: net for m in metas for net in m["nets"]}.values()),
        "runs": {run.id: {"finished": run.finished, "commit": run.environment.get("commit")} for run in runs},
        "counts": {
            "units": int(frame.unit.nunique()) if len(frame) else 0,
            "measurements": len(frame),
            "failures": int((~failures["error"].str.startswith(NOT_DEFINED)).sum()) if len(failures) else 0,
        },
    }
    return Results(frame, meta, failures, runtime, traits=RuleTraits(store.rules()), database=store.path)


def _meta_of(store: Store, run: Run) -> dict[str, Any]:
    """What a run recorded of itself, as `Results` has it."""
    settings = Settings.from_dict(run.settings)
    return {
        "run": run.id,
        "command": run.command,
        "preset": run.preset,
        "started": run.started,
        "finished": run.finished,
        "seconds": run.seconds,
        "options": _options(settings, run.experiments),
        "left_out": run.left_out,
        "environment": run.environment,
        "nets": store.nets(run),
    }


def _options(settings: Settings, experiments: Collection[str]) -> dict[str, Any]:
    """Settings by the names of their options, for people."""
    design = asdict(replace(settings.design, noise=None))
    sizes = {name: _size(size) for name, size in settings.sizes.items() if name in experiments}
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


def _size(size: Size) -> str:
    """Size in words: ``2 nets, 1 inputs``."""
    counts = [f"{getattr(size, name)} {name}" for name in ("nets", "inputs", "samples", "epochs")]
    return ", ".join([*(each for each in counts if not each.startswith("None")), *(size.datasets or ())])
