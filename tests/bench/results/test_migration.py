"""Results of schema 2: every value arrives, nothing stands for "none", a file changes whole or not at all.

The file and the export were written by version 0.4: small nets under Gaussian and Cauchy noise, a user's rule
and one that fails, a user's net, and both tasks without an oracle.
"""

import hashlib
import json
import lzma
import math
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.results import exchange
from sdp_bench.bench.results.record import LeftOut
from sdp_bench.bench.results.schema import SCHEMA
from sdp_bench.bench.results.store import Store

HERE = Path(__file__).parent
EXPORT = HERE / "schema2_export"


@pytest.fixture(scope="module")
def content():
    return lzma.decompress((HERE / "schema2.sqlite.xz").read_bytes())


@pytest.fixture
def file(content, tmp_path):
    path = tmp_path / "results.sqlite"
    path.write_bytes(content)
    return path


@pytest.fixture
def of_schema_3(content, tmp_path):
    """A file as version 0.6 wrote it, which had no column for the precision."""
    path = tmp_path / "three.sqlite"
    path.write_bytes(content)
    with Store(path, writing=True):
        pass
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("ALTER TABLE records DROP COLUMN precision")
        db.execute("DROP TABLE checksums")
        db.execute("PRAGMA user_version = 3")
    return path


def rows(path, query):
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()


def schema_of(path):
    return rows(path, "PRAGMA user_version")[0][0]


@pytest.fixture(params=["read", "written", "imported"])
def opened(request, file, tmp_path):
    """A store of what was of schema 2, and where the old file is still to be read."""
    old = tmp_path / "old.sqlite"
    old.write_bytes(file.read_bytes())
    if request.param == "imported":
        with exchange.opened(EXPORT) as store:
            yield store, old
    else:
        with Store(file, writing=request.param == "written") as store:
            yield store, old


def test_every_record_arrives_value_by_value(opened):
    store, old = opened
    before = rows(
        old,
        "SELECT subject, rule, metric, component, value, floor, floor95, stderr, unit, fingerprint, run, "
        "seconds FROM records WHERE metric != 'class_tv'",  # there is the same under its own name
    )
    after = {}
    for row in store.tables()["records"].astype(object).itertuples(index=False):
        component = "" if row.component is None or row.component != row.component else row.component
        after[row.unit, row.rule, row.metric, component] = row
    assert len(before) == len(after) == 2509
    for unit, rule, metric, component, *numbers, measure, fingerprint, run, seconds in before:
        row = after[unit, rule, metric, component]
        now = [None if math.isnan(x) else x for x in (row.value, row.floor, row.floor95, row.stderr)]
        assert now == numbers
        assert (row.unit_of_measure, row.fingerprint, row.run) == (measure, fingerprint, run)
        assert row.seconds == seconds or (seconds == 0 and math.isnan(row.seconds))


def test_runs_and_members_are_those_of_before(opened):
    store, old = opened
    members = {tuple(row) for row in store.tables()["members"].itertuples(index=False)}
    assert members == set(rows(old, "SELECT run, suite, subject FROM members"))
    for number, command, started, seconds in rows(old, "SELECT id, command, started, seconds FROM runs"):
        run = store.run(number)
        assert (run.command, run.started, run.seconds) == (command, started, seconds)
        assert len(store.frame(run)) > 0
    first = store.run(1)
    assert first.experiments["iris-w1"].metrics == ("w1:w1_points=100,w1_pairs=8",)
    assert store.run(2).left_out == (
        LeftOut(
            "moment_matching",
            "sigmoid",
            "rule 'moment_matching' is slow on sigmoid nets; --slow-rules runs it",
        ),
        LeftOut("dvia", "sigmoid", "rule 'dvia' does not support Sigmoid (at '1' in the net)"),
    )


def test_nothing_stands_for_none(opened):
    store, _ = opened
    tables = store.tables()
    assert not tables["records"].component.isin([""]).any()
    assert not tables["failures"].isin(["*", ""]).any().any()
    assert tables["failures"].rule.isna().sum() == 1
    nets = tables["nets"].set_index("source").accuracy
    assert math.isnan(nets["yours"])
    assert nets["cache"].between(0, 1).all()
    assert len(tables["nets"]) == 5  # what tasks had put there is none


def test_one_metric_that_had_two_names_has_one(file):
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("DELETE FROM records WHERE metric = 'class_tv'")
        db.execute("UPDATE records SET metric = 'class_tv' WHERE metric = 'tv_class' AND rule = 'sdp'")
        db.execute("UPDATE runs SET suites = REPLACE(suites, 'tv_class', 'class_tv')")
    before = rows(file, "SELECT subject, value FROM records WHERE metric = 'class_tv'")
    with Store(file) as store:
        records, run = store.tables()["records"], store.run(1)
    after = records[(records.metric == "tv_class") & (records.rule == "sdp")]
    assert sorted(zip(after.unit, after.value, strict=True)) == sorted(before) != []
    assert "class_tv" not in set(records.metric)
    assert "tv_class" in run.experiments["iris-tv"].metrics


def test_units_say_what_they_are(opened):
    store, old = opened
    units = store.tables()["units"].set_index("key")
    cauchy = {key for (key,) in rows(old, "SELECT subject FROM members WHERE suite = 'iris-cauchy'")}
    assert set(units.index[units.noise == "cauchy"]) == cauchy != set()
    assert set(units.noise.dropna()) == {"gaussian", "cauchy"}
    tasks = units[units.net.isna()]
    assert tasks[["input", "noise", "sigma", "sampler", "samples"]].isna().all().all()
    found = set(zip(tasks.dataset, tasks.objective.fillna(""), tasks.seed, strict=True))
    objectives = ("softmax", "dirichlet", "pairwise_gaussian")
    assert found == {("yacht", "", 0), ("yacht", "", 1), *(("mnist", name, 0) for name in objectives)}
    assert tasks[tasks.dataset == "yacht"].design.unique() == [
        "UCI yacht: 308 rows, 6 features (yacht.txt); 15 settings, 2 epochs"
    ]


def test_rules_and_nets_are_named_for_people(opened):
    store, _ = opened
    rules = store.rules()
    assert (rules["monte_carlo:samples=10"].label, rules["monte_carlo:samples=10"].sampling) == (
        "MC estimate k=10",
        10,
    )
    assert rules["oracle_again"].reference
    assert rules["marginal_sdp"].marginal
    assert rules["shrunk"].label == "shrunk"
    labels = set(store.tables()["nets"].recipe_label)
    assert labels == {"sgd 0.01, raw features, 60 epochs", "yours, on x.npy"}
    frame = store.frame(store.run(4))
    assert set(frame.dataset) == {"yacht"}
    assert set(frame.seed) == {0, 1}
    assert frame.recipe.str.endswith("15 settings, 2 epochs").all()


def test_a_reader_changes_nothing_and_a_writer_all_of_it_once(file, content):
    with Store(file):
        pass
    assert file.read_bytes() == content
    with Store(file, writing=True) as store:
        first = store.tables()["records"]
    assert schema_of(file) == SCHEMA
    assert not any(name.startswith("old_") for (name,) in rows(file, "SELECT name FROM sqlite_master"))
    with Store(file, writing=True) as store:
        assert store.tables()["records"].equals(first)


def test_what_does_not_fit_together_stays_as_it_is(file):
    with closing(sqlite3.connect(file)) as db:
        db.execute("DELETE FROM runs")  # members refer to them
        db.commit()
    with pytest.raises(RunFailedError, match=f"{file} is damaged: .* cannot be brought to schema"):
        Store(file, writing=True)
    assert schema_of(file) == 2
    assert len(rows(file, "SELECT 1 FROM records")) == 2510


@pytest.mark.parametrize("writing", [False, True])
def test_a_number_that_cannot_be_is_a_failure_and_hides_no_other(of_schema_3, writing):
    with closing(sqlite3.connect(of_schema_3)) as db, db:
        cell = db.execute("SELECT unit, rule, metric FROM records WHERE metric LIKE 'w1%' LIMIT 1").fetchone()
        db.execute("UPDATE records SET value = 9e999 WHERE (unit, rule, metric) = (?, ?, ?)", cell)
    before = rows(of_schema_3, "SELECT unit, rule, metric, component, value FROM records")
    with Store(of_schema_3, writing=writing) as store:
        found = store.tables()
    after = found["records"][["unit", "rule", "metric", "component", "value"]].astype(object)
    after = {tuple(row) for row in after.where(after.notna(), None).itertuples(index=False)}
    assert after == {row for row in before if row[:3] != cell}
    failure = found["failures"].set_index(["unit", "rule", "metric"]).loc[cell]
    assert "inf" in failure.error
    assert "cannot be" in failure.error


def test_an_export_that_lacks_a_column_is_one_line(tmp_path):
    with exchange.opened(EXPORT) as store:
        exchange.export(store, tmp_path / "out")
    table = tmp_path / "out" / "units.csv"
    table.write_text(table.read_text().replace(",sigma,", ",", 1))
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    manifest["sha256"]["units.csv"] = hashlib.sha256(table.read_bytes()).hexdigest()
    (tmp_path / "out" / "manifest.json").write_text(json.dumps(manifest))
    with (
        pytest.raises(UserError, match=r"units\.csv is damaged: its columns are"),
        exchange.opened(tmp_path / "out"),
    ):
        pass


@pytest.mark.parametrize("writing", [False, True])
def test_a_file_of_schema_3_has_no_precision_and_is_else_the_same(of_schema_3, writing):
    query = "SELECT * FROM records ORDER BY unit, rule, metric, component"
    before = rows(of_schema_3, query)
    with Store(of_schema_3, writing=writing) as store:
        after = store.tables()["records"]
    assert len(after) == len(before) > 0
    assert after["precision"].isna().all()
    assert schema_of(of_schema_3) == (SCHEMA if writing else 3)
    if writing:
        assert rows(of_schema_3, query) == [(*row, None) for row in before]


def test_an_export_of_schema_3_is_imported_without_a_precision(of_schema_3, tmp_path):
    with Store(of_schema_3) as store:
        exchange.export(store, tmp_path / "export")
        count = len(store.tables()["records"])
    table = tmp_path / "export" / "records.csv"
    lines = table.read_text(encoding="utf-8").splitlines()
    assert lines[0].endswith(",run,precision")
    table.write_text("\n".join(line.rpartition(",")[0] for line in lines) + "\n", encoding="utf-8")
    manifest = tmp_path / "export" / exchange.MANIFEST
    content = json.loads(manifest.read_text(encoding="utf-8"))
    content["schema"] = 3
    content["sha256"]["records.csv"] = hashlib.sha256(table.read_bytes()).hexdigest()
    manifest.write_text(json.dumps(content), encoding="utf-8")
    with exchange.opened(tmp_path / "export") as store:
        records = store.tables()["records"]
    assert len(records) == count
    assert records["precision"].isna().all()
