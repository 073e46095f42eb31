import json
import sqlite3
from contextlib import closing

import numpy as np
import pandas as pd
import pytest

from sdp_bench.bench.results.queries import keys
from sdp_bench.bench.results.record import Record, RunDescription, Selection, StoredNet, Unit
from sdp_bench.bench.results.store import Store
from sdp_ref.rules import Traits

PLAIN = """
SELECT m.experiment, n.network, n.activation, n.depth, u.net, COALESCE(n.seed, u.seed) AS seed, u.input,
       u.noise, u.sigma, u.dataset, u.objective, r.rule, t.label AS rule_label, t.sampling, t.marginal,
       t.reference, r.metric AS metric_spec, COALESCE(r.component, '') AS component, r.value, r.floor,
       r.floor95, r.stderr, r.unit_of_measure, r.seconds, n.accuracy,
       COALESCE(n.recipe_label, u.design) AS recipe, u.samples, r.unit, r.fingerprint, r.run, r.precision
FROM members m JOIN units u ON u.key = m.unit LEFT JOIN nets n ON n.digest = u.net
     JOIN records r ON r.unit = u.key JOIN rules t ON t.spec = r.rule
WHERE m.run = ? AND m.experiment = ? AND r.rule IN (SELECT value FROM json_each(?))
      AND r.metric IN (SELECT value FROM json_each(?))
ORDER BY n.depth, COALESCE(n.seed, u.seed), u.sigma, u.input, r.rule, r.metric, r.component, r.unit"""
"""What a frame is of one experiment, by one join."""

RULES = {"sdp": Traits("SDP"), "monte_carlo:samples=5": Traits("5 samples", sampling=5), "": Traits("none")}
METRICS = ("tv:cells=4", "tv:cells=16", "w1", "accuracy")
EXPERIMENTS = {
    "tv": Selection(METRICS[:2], tuple(RULES)),
    "w1": Selection(METRICS[1:3], ("sdp",)),
    "tasks": Selection(METRICS, ("sdp", "")),
    "none": Selection((), ()),
}


DESCRIBED = RunDescription(
    command="run", preset="smoke", settings={}, experiments=EXPERIMENTS, left_out=(), environment={}
)


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """A file of random records of units of every kind, in random order."""
    rng = np.random.default_rng(1)
    path = tmp_path_factory.mktemp("queries") / "store.sqlite"
    nets = [
        StoredNet(f"n{i}", "4-3", "relu", i % 3, i // 2, 0.5 + i / 20, {}, "sgd", "cache") for i in range(6)
    ]
    units = [
        Unit(f"{rng.integers(2**40):x}", f"n{rng.integers(6)}", place % 3, "gaussian", sigma, "mc", 10**6)
        for sigma in (0.1, 1.0, 10.0)
        for place in range(12)
    ]
    units += [Unit(f"task{i}", dataset="iris", seed=i % 3, design=None if i % 2 else "a") for i in range(8)]
    with Store(path, writing=True) as store:
        for chance in (0.8, 0.4):
            members = [(name, u.key) for name in EXPERIMENTS for u in units if rng.random() < chance]
            number = store.begin_run(DESCRIBED, nets=nets, units=units, rules=RULES, members=members)
        records = [
            Record(unit.key, rule, metric, component, *map(float, rng.random(4)), "1", *known)
            for unit in units
            for rule in RULES
            for metric in METRICS
            for component in ((None,) if metric == "w1" else (None, "", "10", "2")[:: rng.integers(2, 4)])
            for known in [(None, "mark", None) if rng.random() < 0.3 else (1e-3, "mark", "float64")]
        ]
        rng.shuffle(records)
        store.write_group(number, records, [], ())
        yield path


@pytest.mark.parametrize("number", [1, 2])
def test_a_typed_frame_is_the_plain_join(database, number):
    with Store(database) as store:
        frame = store.frame(store.run(number))
    with closing(sqlite3.connect(database)) as db:
        parts = [
            pd.read_sql_query(
                PLAIN, db, params=(number, name, json.dumps(own.rules), json.dumps(own.metrics))
            )
            for name, own in EXPERIMENTS.items()
        ]
    plain = pd.concat([part.astype(object) for part in parts if len(part)], ignore_index=True)
    assert len(frame) == len(plain) > 100
    assert keys(frame).tolist() == (plain["unit"] + "/" + plain["rule"] + "/" + plain["metric_spec"]).tolist()
    assert frame["metric"].tolist() == [spec.partition(":")[0] for spec in plain["metric_spec"]]
    assert [*frame] == [*plain, "metric"]
    for name in plain:
        known = plain[name].notna()
        assert frame[name].notna().tolist() == known.tolist()
        assert frame[name][known].tolist() == plain[name][known].tolist()
        assert frame[name].dtype != object


def test_of_several_runs_the_newest_says_what_a_measurement_is(database):
    subject = ["net", "input", "noise", "sigma", "dataset", "objective", "seed", "recipe"]
    called = ["experiment", *subject, "rule", "metric", "component"]
    row = ["experiment", "unit", "rule", "metric_spec", "component"]
    with Store(database) as store:
        runs = [store.run(number) for number in store.runs()]
        found = store.frame(*runs)
        each = [store.frame(run).astype(object).fillna("").assign(age=age) for age, run in enumerate(runs)]
    expected = pd.concat(each).sort_values("age").drop_duplicates(row, keep="last")
    expected = expected[expected["age"] == expected.groupby(called)["age"].transform("max")]
    assert max(map(len, each)) < len(expected) < len(pd.concat(each).drop_duplicates(row))
    by_row = [frame.astype(object).fillna("").sort_values(row) for frame in (found, expected)]
    assert by_row[0][[*found]].values.tolist() == by_row[1][[*found]].values.tolist()
    for name, own in found.groupby("experiment", observed=True):  # in the order of a single run's
        order = own[["depth", "seed", "sigma"]].astype(float).fillna(-1).values.tolist()
        assert order == sorted(order), name
