import math
import shutil

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.replay import replay
from sdp_bench.bench.results import exchange, tables
from sdp_bench.bench.results.exchange import compare
from sdp_bench.bench.results.queries import keys
from sdp_bench.bench.results.record import same_number
from sdp_bench.bench.results.schema import TABLES
from sdp_bench.bench.results.store import Store
from sdp_bench.bench.runs import driver as run
from tests.bench import conftest
from tests.bench.conftest import TINY, change, make_plan, run_all


@pytest.fixture(scope="module")
def whole(tiny_file, tmp_path_factory):
    return shutil.copy(tiny_file, tmp_path_factory.mktemp("whole") / "r.sqlite")


def _made(path, settings=TINY, shard=(1, 1)):
    run_all(path, make_plan(settings).shard(*shard))
    return path


@pytest.fixture
def file(whole, tmp_path):
    """A copy of a whole run that a test may spoil."""
    return shutil.copy(whole, tmp_path / "copy.sqlite")


def records(path):
    with Store(path) as store:
        frame = store.tables()["records"].drop(columns=["run", "seconds"])
    return frame.sort_values(["unit", "rule", "metric", "component"]).reset_index(drop=True)


def spoil(path, value="value + 1"):
    change(path, f"UPDATE records SET value = {value} WHERE metric LIKE 'w1%'")


def test_shards_merge_to_the_whole(whole, tmp_path):
    parts = [_made(tmp_path / f"{i}.sqlite", shard=(i, 3)) for i in (1, 2, 3)]
    for part in parts:  # equal times, so the runs differ only in their units
        change(part, "UPDATE runs SET started = '2026-01-01T00:00:00+00:00', finished = NULL, seconds = NULL")
    count = exchange.merge(parts, tmp_path / "all.sqlite")
    pd.testing.assert_frame_equal(records(tmp_path / "all.sqlite"), records(whole), check_exact=True)
    assert count == len(records(whole))
    with Store(tmp_path / "all.sqlite") as store:
        assert len(store.tables()["runs"]) == 3
        key = keys(store.frame(store.run())).iloc[0]
        assert all(replay.identical(*pair) for pair in replay.replay(store, key, lambda _: None))


def test_conflicts_are_named_and_nothing_is_written(whole, file, tmp_path):
    spoil(file)
    content = file.read_bytes()
    with pytest.raises(UserError, match="exists"):
        exchange.merge([whole], file)
    assert file.read_bytes() == content
    with pytest.raises(UserError, match=r"measurements differ from those here .*w1"):
        exchange.merge([whole, file], tmp_path / "all.sqlite")
    assert not list(tmp_path.glob("*all.sqlite*"))

    before = records(whole)
    with Store(file) as other, Store(whole, writing=True) as store:
        assert store.add(other.tables(), keep=True) == 0
    pd.testing.assert_frame_equal(records(whole), before, check_exact=True)


@pytest.mark.parametrize("fmt", exchange.FORMATS)
def test_an_export_fills_another_file(whole, tmp_path, fmt):
    with Store(whole) as store:
        files = exchange.export(store, tmp_path / "out", fmt)
    assert len(files) == len(TABLES) + 1
    with Store(tmp_path / "new.sqlite", writing=True) as store:
        assert store.add(exchange.Export(tmp_path / "out").tables()) == len(records(whole))
        assert store.add(exchange.Export(tmp_path / "out").tables()) == 0
        key = keys(store.frame(store.run())).iloc[0]
        assert all(replay.identical(*pair) for pair in replay.replay(store, key, lambda _: None))
    pd.testing.assert_frame_equal(records(tmp_path / "new.sqlite"), records(whole), check_exact=True)


def test_a_second_import_of_an_export_adds_nothing(whole, tmp_path):
    with Store(whole) as store:
        exchange.export(store, tmp_path / "out")
    with Store(tmp_path / "new.sqlite", writing=True) as store:
        store.add(exchange.Export(tmp_path / "out").tables())
        twice = exchange.Export(tmp_path / "out").tables()
        for name, number in (("runs", "id"), ("members", "run")):  # as older versions stored it
            again = twice[name].assign(**{number: twice[name][number] + 1})
            twice[name] = pd.concat([twice[name], again], ignore_index=True)
        before = store.tables()
        for again in (exchange.Export(tmp_path / "out").tables(), twice):
            assert store.add(again) == 0
            for name, table in store.tables().items():
                pd.testing.assert_frame_equal(table, before[name])


@pytest.mark.parametrize("fmt", exchange.FORMATS)
def test_a_run_that_was_cut_off_before_it_measured_anything_is_not_exported(whole, file, tmp_path, fmt):
    later = make_plan(TINY.but(nets=3))
    with Store(file, writing=True) as store:
        conftest.begin(store, later)
        exchange.export(store, tmp_path / "out", fmt)
        assert len(store.runs()) == 2
    with Store(tmp_path / "new.sqlite", writing=True) as store:
        store.add(exchange.Export(tmp_path / "out").tables())
        kept = store.tables()
    with Store(whole) as store:
        for name, table in store.tables().items():
            pd.testing.assert_frame_equal(kept[name], table)


def test_a_run_that_was_cut_off_later_is_exported_and_ends_with_a_later_export(file, tmp_path):
    with Store(file, writing=True) as store:
        plan = make_plan(TINY.but(nets=3))
        number, group = conftest.begin(store, plan), plan.groups[-1]
        cells = group.left({})
        run.store_result(store, number, group, run.run_group(group, cells), cells)
        exchange.export(store, tmp_path / "out")
        before = store.tables()
    with Store(tmp_path / "new.sqlite", writing=True) as store:
        store.add(exchange.Export(tmp_path / "out").tables())
        assert {name: len(table) for name, table in store.tables().items()} == {
            name: len(table) for name, table in before.items()
        }
        with Store(file, writing=True) as original:
            original.finish_run(number, 7.0)
            exchange.export(original, tmp_path / "out")
            ended = original.table("runs")
        assert store.add(exchange.Export(tmp_path / "out").tables()) == 0
        pd.testing.assert_frame_equal(store.table("runs"), ended)
        store.verify()


TEXTS = ("a\rb", "c\nd", 'e,"f"\r\n\u2028 \x85 \x1c', "ü 𝄞")
"""What ends a line or a cell somewhere, alone and together, and what takes more than a byte."""


@pytest.mark.parametrize("fmt", exchange.FORMATS)
def test_texts_survive_an_export(file, tmp_path, fmt):
    expected = dict(zip(sorted(set(records(file).metric)), TEXTS, strict=False))
    for metric, text in expected.items():
        written = f"CAST(X'{text.encode().hex()}' AS TEXT)"
        change(file, f"UPDATE records SET unit_of_measure = {written} WHERE metric = '{metric}'")
    with Store(file) as store:
        exchange.export(store, tmp_path / "out", fmt)
    read = exchange.Export(tmp_path / "out").table("records")
    assert len(expected) == len(TEXTS)
    for metric, text in expected.items():
        assert set(read.unit_of_measure[read.metric == metric]) == {text}


@pytest.mark.parametrize("fmt", exchange.FORMATS)
def test_digits_are_left_out_of_errors_and_times_and_not_where_numbers_are_compared(whole, tmp_path, fmt):
    with Store(whole) as store:
        exchange.export(store, tmp_path / "out", fmt, weights=False, digits=4)
    with Store(tmp_path / "new.sqlite", writing=True) as store:
        store.add(exchange.Export(tmp_path / "out").tables())
    with Store(whole) as a, Store(tmp_path / "new.sqlite") as b:
        order = ["unit", "rule", "metric", "component"]
        before, after = (each.tables()["records"].sort_values(order, ignore_index=True) for each in (a, b))
    noise, exact = ["stderr", "seconds"], ["value", "floor", "floor95"]
    same = [name for name in before if name not in (*noise, *exact)]
    pd.testing.assert_frame_equal(after[same], before[same], check_exact=True)
    pd.testing.assert_frame_equal(after[exact], before[exact], rtol=5.01e-10, atol=0)
    written = (
        after[exact]
        .stack()
        .map(lambda value: len(repr(value).partition("e")[0].strip("-0.").replace(".", "")))
    )
    assert written.max() == 10
    with Store(whole, writing=True) as store:  # they are no other numbers to what is there
        assert store.add(exchange.Export(tmp_path / "out").tables()) == 0
    pd.testing.assert_frame_equal(after[noise], before[noise], rtol=5e-4, atol=0)
    assert (after[noise] != before[noise]).any().all()


@pytest.mark.parametrize("older", ["old", "rule 0, metric 1, oracle 1"])
def test_newer_versions_replace_older_ones_in_both_directions(whole, file, tmp_path, older):
    spoil(file)
    change(file, f"UPDATE records SET fingerprint = '{older}', component = 'x' WHERE metric LIKE 'w1%'")
    cells = records(whole).query("metric.str.startswith('w1')").groupby(["unit", "rule", "metric"]).ngroups
    replaced = []
    for number, sources in enumerate([(file, whole), (whole, file)]):
        target = tmp_path / f"{number}.sqlite"
        assert exchange.merge(sources, target, replaced.append) == len(records(whole))
        pd.testing.assert_frame_equal(records(target), records(whole), check_exact=True)
    assert replaced == [cells]


@pytest.mark.parametrize("versions", ["rule 0, metric 2, oracle 1", "method 1"])
def test_versions_without_an_order_are_refused(whole, file, tmp_path, versions):
    change(file, f"UPDATE records SET fingerprint = '{versions}'")
    with pytest.raises(UserError, match="differ from those here"):
        exchange.merge([whole, file], tmp_path / "all.sqlite")


def test_differences_are_counted_and_ranked(whole, file, tmp_path):
    spoil(file, "value + 2 * stderr")
    with Store(whole) as a, Store(file) as b:
        found = compare(a, b)
    changed = records(whole).metric.str.startswith("w1").sum()
    assert (found.equal, found.different) == (len(records(whole)) - changed, changed)
    assert found.largest["standard errors"].between(1.99, 2.01).all()
    assert found.fields == {"value": changed}
    narrow = TINY.but(rules=("sdp",))
    part = _made(tmp_path / "part.sqlite", narrow)
    with Store(whole) as a, Store(part) as b:
        found = compare(a, b)
    assert (found.equal, found.different, found.only_b) == (len(records(part)), 0, 0)
    assert found.only_a == len(records(whole)) - len(records(part))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ("floor = floor + 1", "floor"),
        ("floor95 = NULL", "floor95"),
        ("unit_of_measure = 'nat'", "unit_of_measure"),
        ("precision = 'float16'", "precision"),
    ],
)
def test_every_field_is_compared_and_merged(whole, file, tmp_path, change, field):
    conftest.change(file, f"UPDATE records SET {change} WHERE metric LIKE 'w1%'")
    with Store(whole) as a, Store(file) as b:
        found = compare(a, b)
    changed = records(whole).metric.str.startswith("w1").sum()
    assert (found.different, found.fields) == (changed, {field: changed})
    with pytest.raises(UserError, match="differ from those here"):
        exchange.merge([whole, file], tmp_path / "all.sqlite")


def test_other_code_and_time_are_no_other_numbers(whole, file):
    conftest.change(file, "UPDATE records SET seconds = seconds + 1, fingerprint = 'old', run = 7")
    with Store(whole) as a, Store(file) as b:
        found = compare(a, b)
    count = len(records(whole))
    assert (found.equal, found.different, found.other_code, found.other_time) == (count, 0, count, count)


@pytest.mark.parametrize("change", ["units SET sigma = sigma * 2", "nets SET depth = depth + 1"])
def test_units_and_nets_that_differ_are_refused(whole, file, tmp_path, change):
    conftest.change(file, f"UPDATE {change}")
    with pytest.raises(UserError, match=r"(units|nets) differ from those here"):
        exchange.merge([whole, file], tmp_path / "all.sqlite")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("fmt", exchange.FORMATS)
def test_an_export_has_the_same_bytes_wherever_its_results_were(whole, tmp_path, fmt):
    with Store(whole) as store:
        exchange.export(store, tmp_path / "out", fmt)
    exchange.export(exchange.Export(tmp_path / "out"), tmp_path / "again", fmt)
    assert contents(tmp_path / "again") == contents(tmp_path / "out")


def test_rounding_is_no_difference(whole, file, tmp_path):
    spoil(file, "value * (1 + 1e-12)")
    with Store(whole) as a, Store(file) as b:
        found = compare(a, b)
    assert (found.equal, found.different) == (len(records(whole)), 0)
    assert exchange.merge([whole, file], tmp_path / "c.sqlite") == len(records(whole))  # once
    assert not same_number(1.0, 1.0 + 1e-6)
    assert same_number(math.inf, math.inf)
    assert same_number(0.5, 0.5001, stderr=0.02)
    assert not same_number(0.5, 0.5003, stderr=0.02)


VALUES = st.sampled_from([0.0, 1.0, 1 + 1e-10, 1 + 1e-8, -1.0, 1e-13, 1e300, math.inf, -math.inf])


@given(VALUES, VALUES, st.none() | st.sampled_from([0.0, 1e-9, 1e-3, 150.0]))
def test_tables_differ_where_their_numbers_do(a, b, stderr):
    row = ("unit", "rule", "metric", None, a, None, None, stderr, "1", None, "versions", 1, None)
    here = tables.from_rows("records", [row])
    there = tables.from_rows("records", [(*row[:4], b, *row[5:])])
    found = tables.differing(here, there)
    assert found["value"].item() is not same_number(a, b, stderr)
    assert not found.drop(columns="value").any(axis=None)


def test_weights_that_come_later_are_kept(whole, tmp_path):
    with Store(whole) as store:
        exchange.export(store, tmp_path / "out", weights=False)
    with Store(tmp_path / "new.sqlite", writing=True) as store:
        store.add(exchange.Export(tmp_path / "out").tables())
        assert store.tables()["nets"].weights.isna().all()
        key = keys(store.frame(store.run())).iloc[0]
        with pytest.raises(RunFailedError, match=r"do not contain the .*weights"):
            replay.replay(store, key, lambda _: None)
    with Store(whole) as source, Store(tmp_path / "new.sqlite", writing=True) as store:
        store.add(source.tables())
        assert store.tables()["nets"].weights.notna().all()
