"""Small made-up plans, runs and measurements, for tests of folders of results."""

import itertools
from dataclasses import replace

import pandas as pd

from sdp_bench.bench.results.columns import CELL, PLAN, measurements, outcome, typed
from sdp_bench.bench.results.folder import Run, Writer, write_run

VERSIONS = "rule 1, metric 1, oracle 1"
SUBJECT = {
    "network": "4-8-3",
    "activation": "relu",
    "depth": 1,
    "net": "net0",
    "net_source": "committed",
    "seed": 0,
    "noise": "gaussian",
    "sigma": 0.1,
    "sampler": "mc",
    "samples": 1024,
    "recipe": "sgd",
    "accuracy": 0.9,
    "sampling": None,
    "marginal": False,
    "reference": False,
    "rank": 0,
    "fingerprint": VERSIONS,
}


def plan(units=2, rules=("dvia", "sdp"), metrics=("tv_class", "w1"), experiments=("iris-tv",), **columns):
    """Return a plan that measures all rules and metrics on some units, one group per unit."""
    rows = [
        {
            **SUBJECT,
            "experiment": experiment,
            "group": f"group{unit}",
            "unit": f"unit{unit}",
            "input": unit,
            "rule": rule,
            "rule_label": rule.upper(),
            "metric_spec": metric,
            **columns,
        }
        for experiment, unit, rule, metric in itertools.product(experiments, range(units), rules, metrics)
    ]
    return typed(pd.DataFrame(rows), PLAN)


def measured(rows, value=0.5, **changed):
    """Return measurements of all rows of a plan with the same numbers."""
    numbers = {"value": value, "floor": 0.1, "floor95": 0.2, "stderr": 0.01, "unit_of_measure": "1"}
    cells = rows[CELL].drop_duplicates().itertuples(index=False, name=None)
    return measurements(rows, [outcome(*cell, **{**numbers, **changed}) for cell in cells])


def begun(folder, rows, day=1, **changed):
    """Return the writer of a run that began on a day."""
    run = Run(
        id=f"202601{day:02}T000000000-0000",
        started=f"2026-01-{day:02}T00:00:00+00:00",
        finished=None,
        seconds=None,
        command="sdp-bench run iris-tv",
        preset="smoke",
        settings={"samples": 1024},
        experiments=tuple(rows["experiment"].unique()),
        left_out=(),
        environment={"cpu": "some processor"},
        code="0123",
        plan_sha256="",
        folder=folder,
    )
    return Writer(write_run(replace(run, **changed), rows))


def groups(rows):
    """Return the rows of each group of a plan by its name."""
    return {str(name): part for name, part in rows.groupby("group")}


def finished(folder, rows, day=1, **numbers):
    """Store a whole run and return it."""
    writer = begun(folder, rows, day)
    for name, part in groups(rows).items():
        writer.write(name, measured(part, **numbers))
    writer.finish(1.0)
    return writer.run
