import dataclasses
import functools
import sqlite3
from contextlib import closing

import pytest

from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.results.record import Failure, Record, impossible
from sdp_bench.bench.results.schema import APPLICATION, SCHEMA
from sdp_bench.bench.results.store import Store
from tests.bench.conftest import begin


def record(unit, value=0.5, rule="sdp", component=None):
    return Record(unit, rule, "gaussian_kl", component, value, 0.1, 0.2, 0.01, "1", 1e-3, "mark")


def place(unit):
    return unit, "sdp", "gaussian_kl"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.sqlite"


@pytest.fixture
def begun(path, plan):
    """An open results file, a function that writes a group of its run, and a unit of the plan."""
    with Store(path, writing=True) as store:
        yield store, functools.partial(store.write_group, begin(store, plan)), plan.members[0][1]


def values(store, unit):
    return [row["value"] for row in store.find(unit)]


def test_records_come_back_as_they_went_in(path, begun):
    _, write, unit = begun
    write([record(unit, float("inf"), component="0"), record(unit, 0.25, component="1")], [], [place(unit)])
    with Store(path) as store:
        assert values(store, unit) == [float("inf"), 0.25]
        assert store.measured([unit]) == {(unit, "sdp", "gaussian_kl", "mark")}
        assert store.measured(["other"]) == set()


@pytest.mark.parametrize(
    "change",
    [
        *({"value": -0.1}, {"value": float("nan")}, {"floor": -1.0}, {"floor95": float("inf")}),
        *({"stderr": -1e-3}, {"metric": "tv_class", "value": 1.001}, {"metric": "w1", "value": float("inf")}),
    ],
)
def test_what_cannot_be_is_recognised(change):
    assert not impossible(record("unit"))
    assert impossible(dataclasses.replace(record("unit"), **change))


def test_rounding_puts_nothing_out_of_range(begun):
    store, write, unit = begun
    rounded = dataclasses.replace(record(unit), metric="tv_class", value=1 + 1e-15, floor=-1e-17)
    theirs = dataclasses.replace(record(unit), metric="theirs", value=-7.5)
    write([rounded, theirs], [], [])
    assert len(store.find(unit)) == 2


def test_a_damaged_unit_is_not_written_to(path, begun, plan):
    _, write, unit = begun
    other = next(each.key for each in plan.units if each.key != unit)
    write([record(unit), record(other)], [], [])
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE records SET floor = floor / 2 WHERE unit = ?", (unit,))
    with pytest.raises(RunFailedError, match=f"is damaged: the records of '{unit}'"):
        write([record(unit)], [], [place(unit)])
    write([record(other, 0.75)], [], [place(other)])


def test_a_reader_sees_one_state_while_another_writes(path, begun):
    _, write, unit = begun
    with Store(path) as reader:
        write([record(unit)], [], [place(unit)])
        assert reader.find(unit) == []
    with Store(path) as reader:
        assert values(reader, unit) == [0.5]


def test_a_new_measurement_replaces_all_components_of_the_old(begun):
    store, write, unit = begun
    write([record(unit, component=component) for component in "012"], [], [place(unit)])
    write([record(unit, 0.75, component="0")], [], [place(unit)])
    assert values(store, unit) == [0.75]


def test_a_group_is_written_whole_or_not_at_all(begun):
    store, write, unit = begun
    with pytest.raises(RunFailedError, match="cannot write"):
        write([record(unit), record("a unit that is not there")], [], [place(unit)])
    assert values(store, unit) == []
    write([record(unit)], [], [place(unit)])
    assert values(store, unit) == [0.5]


def test_failures_stand_until_the_rule_succeeds(begun):
    store, write, unit = begun
    write([], [Failure(unit, "sdp", None, "boom", 1.0)], [place(unit)])
    assert store.failures(store.run()).error.tolist() == ["boom"]
    write([record(unit)], [], [place(unit)])
    assert store.failures(store.run()).empty


def test_a_failed_group_leaves_no_old_number(begun):
    store, write, unit = begun
    write([record(unit)], [], [place(unit)])
    write([], [Failure(unit, None, None, "died", 1.0)], [place(unit)])
    assert values(store, unit) == []
    assert store.failures(store.run()).error.tolist() == ["died"]
    write([record(unit)], [], [place(unit)])
    # What was not set out for stays.
    write([], [Failure(unit, None, None, "died", 1.0)], [(unit, "dvia", "w1")])
    assert values(store, unit) == [0.5]


def test_runs_are_listed_newest_first(path, plan):
    with Store(path, writing=True) as store:
        first, second = begin(store, plan), begin(store, plan)
        assert store.run().id == second
        assert store.run(first).finished is None
        store.finish_run(first, 2.5)
        assert store.run(first).seconds == 2.5
        with pytest.raises(UserError, match="no run 99"):
            store.run(99)
        assert len(store.nets(store.run())) == 2


def test_a_second_writer_is_refused_and_a_reader_is_not(path, plan):
    with Store(path, writing=True) as store:
        begin(store, plan)
        with pytest.raises(RunFailedError, match="another run is writing"):
            Store(path, writing=True)
        with Store(path) as reader:
            assert reader.run().id == 1
    Store(path, writing=True).close()


@pytest.mark.parametrize("writing", [True, False])
@pytest.mark.parametrize(
    ("pragmas", "line"),
    [
        ({}, "another program"),
        ({"application_id": APPLICATION, "user_version": SCHEMA + 1}, "update sdp-bench"),
        ({"application_id": APPLICATION, "user_version": SCHEMA - 1}, r"sdp-bench 0\.22 reads it"),
        (None, "not a results file"),
    ],
)
def test_a_file_that_is_not_ours_is_left_as_it_is(path, pragmas, line, writing):
    path.write_text("a shopping list\n" if pragmas is None else "")
    if pragmas is not None:
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("CREATE TABLE bookmarks (url TEXT)")
            for name, value in pragmas.items():
                db.execute(f"PRAGMA {name} = {value}")
    before = path.read_bytes()
    with pytest.raises(UserError, match=line):
        Store(path, writing=writing)
    assert path.read_bytes() == before


def test_a_file_left_by_a_run_that_was_killed_while_making_it_is_taken_up(path, plan):
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.close()
    assert path.stat().st_size
    with Store(path, writing=True) as store:
        assert begin(store, plan) == 1


def test_a_copy_without_its_log_is_reported(path, begun):
    """A new file holds nothing until SQLite moves its log into it."""
    copy = path.with_name("copy.sqlite")
    copy.write_bytes(path.read_bytes())
    with closing(sqlite3.connect(copy)) as db:
        assert not db.execute("SELECT 1 FROM sqlite_master").fetchall()
    before = copy.read_bytes()
    with pytest.raises(
        UserError, match=r"copy\.sqlite holds no tables; .* copy its log copy\.sqlite-wal too$"
    ):
        Store(copy)
    assert copy.read_bytes() == before


def test_missing_results_and_folders(tmp_path):
    with pytest.raises(UserError, match="sdp-bench run"):
        Store(tmp_path / "none.sqlite")
    new = tmp_path / "new" / "folder" / "r.sqlite"
    with Store(new, writing=True) as store, pytest.raises(UserError, match="no run in"):
        store.run()
    assert not new.exists()  # nothing was begun
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFailedError, match="cannot write"):
        Store(tmp_path / "file" / "r.sqlite", writing=True)
