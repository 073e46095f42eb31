from dataclasses import replace

import pandas as pd
import pytest

import sdp_bench
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.results import exchange
from sdp_bench.bench.results.store import Store
from sdp_bench.bench.settings import Size
from sdp_bench.reports import frames, results
from tests.bench.conftest import TINY, make_plan, run_all
from tests.project import ROOT

KEY = ["unit", "rule", "metric_spec", "component"]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A results file of two runs that ask for the same, and experiments that share measurements."""
    path = tmp_path_factory.mktemp("file") / "r.sqlite"
    sizes = {name: Size(1, 1) for name in ("iris-tv", "iris-std", "iris-oracle")}
    settings = replace(TINY, sizes=sizes)
    for _ in range(2):
        run_all(path, make_plan(settings, tuple(sizes)))
    return path


def by_key(frame):
    """Numbers of measurements in the order of what they are known by."""
    plain = frame[[*KEY, "value", "floor", "seconds"]].astype(dict.fromkeys(KEY, str))
    return plain.sort_values(KEY, ignore_index=True)


def check_once(path, frame):
    """Each measurement of `frame`, of which experiments share some, is one row of what is loaded."""
    loaded = sdp_bench.load(path)
    vary = frame["metric_spec"].astype(str).str.contains("tv_single|bin_range=joint")
    frame = frame.assign(stderr=frame["stderr"].mask(vary))  # errors given cells that depend on the samples
    assert frame.duplicated(KEY).any()
    assert not loaded.duplicated(KEY).any()
    pd.testing.assert_frame_equal(by_key(loaded), by_key(frame.drop_duplicates(KEY)), check_exact=True)
    for suite, own in frame.groupby("experiment", observed=True):
        found = sdp_bench.load(path, suite=suite)
        pd.testing.assert_frame_equal(by_key(found), by_key(own), check_exact=True)


def test_a_measurement_that_experiments_share_is_one_row(file):
    with Store(file) as store:
        frame = results.results_of(store, store.runs()).frame
    check_once(file, frame)


@pytest.mark.slow
def test_each_committed_measurement_is_one_row():
    check_once("committed", results.committed_results().frame)


def check_columns(frame):
    assert list(frame) == list(sdp_bench.columns().index)
    assert [str(dtype) for dtype in frame.dtypes] == sdp_bench.columns()["dtype"].tolist()


def test_columns_are_as_they_are_described(file):
    frame = sdp_bench.load(file)
    check_columns(frame)
    assert set(frame["depth"]) == {1}
    assert set(frame["sampling"].dropna()) == {10}


def check_parquet(frame, path):
    frame.to_parquet(path)
    again = pd.read_parquet(path)
    pd.testing.assert_frame_equal(again, frame, check_exact=True)
    both = pd.concat([frame, again], ignore_index=True)
    assert both.dtypes.equals(frame.dtypes)


def test_parquet_keeps_the_dtypes_of_all_columns(file, tmp_path):
    frame = sdp_bench.load(file)
    assert frame["objective"].isna().all()  # a column of text without any
    check_parquet(frame, tmp_path / "all.parquet")
    check_parquet(sdp_bench.load(file, suite="iris-std", runs=[1]), tmp_path / "chosen.parquet")


@pytest.mark.parametrize("fmt", exchange.FORMATS)
def test_exported_tables_give_what_the_file_gives(file, tmp_path, fmt):
    with Store(file) as store:
        exchange.export(store, tmp_path, fmt, weights=False)
    pd.testing.assert_frame_equal(sdp_bench.load(tmp_path), sdp_bench.load(file), check_exact=True)


def test_a_run_or_a_suite_can_be_chosen(file):
    every = sdp_bench.load(file)
    first = sdp_bench.load(file, runs=[1])
    pd.testing.assert_frame_equal(first.drop(columns="run"), every.drop(columns="run"), check_exact=True)
    suites = sorted({name for text in every["suites"].cat.categories for name in text.split(", ")})
    assert len(suites) > 1
    parts = [sdp_bench.load(file, suite=name) for name in suites]
    assert all(0 < len(part) < len(every) for part in parts)
    assert len(sdp_bench.load(file, suite=suites)) == len(every)
    shared = every["suites"].str.contains(",").sum()
    assert sum(map(len, parts)) == len(every) + shared


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"path": "nothing.sqlite"}, "there is no file or folder 'nothing.sqlite'"),
        ({"path": ""}, "there is no file or folder ''"),
        ({"path": 3}, "takes a path or 'committed', got int"),
        ({"path": "."}, "is not a folder of exported results"),
        ({"path": "text.txt"}, "is not a results file"),
        ({"suite": "iris-tw"}, "no suite 'iris-tw' in .*there are "),
        ({"suite": 3}, "suite is the name of an experiment"),
        ({"runs": "1"}, "runs are numbers"),
        ({"runs": [1.0]}, "runs are numbers"),
        ({"runs": [7]}, "no run 7 in"),
    ],
)
def test_bad_input_is_told_in_one_line(arguments, line, file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("no results")
    with pytest.raises(UserError, match=line) as told:
        sdp_bench.load(**{"path": file} | arguments)
    assert str(told.value).isprintable()


def test_a_file_without_measurements_gives_no_rows(tmp_path, file):
    empty = tmp_path / "empty.sqlite"
    empty.write_bytes(file.read_bytes())
    with Store(empty, writing=True) as store:
        store.begin_run(store.run(), nets=[], units=[], rules={}, members=[])
    found = sdp_bench.load(empty, runs=[3])
    assert len(found) == 0
    check_columns(found)


def test_the_documentation_has_the_columns():
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    rows = [f"| `{c.Index}` | {c.dtype} | {c.unit} | {c.meaning} |" for c in frames.COLUMNS.itertuples()]
    assert "\n".join(rows) in text
