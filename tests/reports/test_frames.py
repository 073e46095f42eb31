import shutil
import warnings

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import sdp_bench
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.results.folder import read
from sdp_bench.reports import results
from tests.attacks.calls import called
from tests.reports import made_up

KEY = ["unit", "rule", "metric_spec", "component"]
NUMBERS = ["value", "floor", "floor95", "seconds"]
EXPERIMENTS = ("iris-tv", "iris-std", "iris-oracle")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Results of two runs that request the same, in experiments that share measurements."""
    path = tmp_path_factory.mktemp("folder") / "results"
    small = "--preset smoke --depth 1 --nets 1 --inputs 1 --sigma 0.1,10 --samples 2048 --pilot-samples 1024"
    small += " --cells 16 --bins 3 --difference-bins 8 --jobs 1 --rules sdp,monte_carlo:samples=10"
    for _ in range(2):
        ended = called(["run", *EXPERIMENTS, *small.split(), "--database", path], seconds=600)
        assert ended.code == 0, ended.err
    return path


def by_key(frame):
    """Numbers of measurements in the order of what they are known by."""
    plain = frame[[*KEY, *NUMBERS]].astype(dict.fromkeys(KEY, str))
    return plain.sort_values(KEY, ignore_index=True)


def check_once(path, frame):
    """Each measurement of `frame`, of which experiments share some, is one row of what is loaded."""
    loaded = sdp_bench.load(path)
    vary = frame["metric_spec"].astype(str).str.contains("tv_single|bin_range=joint")
    frame = frame.assign(stderr=frame["stderr"].mask(vary))  # errors given cells that depend on the samples
    assert frame.duplicated(KEY).any()
    assert not loaded.duplicated(KEY).any()
    pd.testing.assert_frame_equal(by_key(loaded), by_key(frame.drop_duplicates(KEY)), check_exact=True)
    for experiment, own in frame.groupby("experiment", observed=True):
        found = sdp_bench.load(path, suite=experiment)
        pd.testing.assert_frame_equal(by_key(found), by_key(own), check_exact=True)


def test_a_measurement_that_experiments_share_is_one_row(folder):
    stored = read(folder)
    assert len(stored.runs) == 2
    check_once(folder, results.results_of(stored, [*stored.runs]).frame)


@pytest.mark.slow
def test_each_committed_measurement_is_one_row():
    check_once("committed", results.committed_results().frame)


def check_columns(frame):
    assert list(frame) == list(sdp_bench.columns().index)
    assert [str(dtype) for dtype in frame.dtypes] == sdp_bench.columns()["dtype"].tolist()


def test_columns_are_as_they_are_described(folder):
    frame = sdp_bench.load(folder)
    check_columns(frame)
    assert set(frame["depth"]) == {1}
    assert set(frame["sampling"].dropna()) == {10}


def check_parquet(frame, path):
    frame.to_parquet(path)
    again = pd.read_parquet(path)
    pd.testing.assert_frame_equal(again, frame, check_exact=True)
    both = pd.concat([frame, again], ignore_index=True)
    assert both.dtypes.equals(frame.dtypes)


def test_parquet_keeps_the_dtypes_of_all_columns(folder, tmp_path):
    frame = sdp_bench.load(folder)
    assert frame["objective"].isna().all()  # a column of text without any
    check_parquet(frame, tmp_path / "all.parquet")
    first = next(iter(read(folder).runs))
    check_parquet(sdp_bench.load(folder, suite="iris-std", runs=[first]), tmp_path / "chosen.parquet")


def test_a_run_or_a_suite_can_be_chosen(folder):
    every = sdp_bench.load(folder)
    one, other = read(folder).runs
    for part in (one, one[:-1], other):
        chosen = sdp_bench.load(folder, runs=(part,))  # the second run found everything measured
        pd.testing.assert_frame_equal(chosen, every, check_exact=True)
    suites = sorted({name for text in every["suites"].cat.categories for name in text.split(", ")})
    assert len(suites) > 1
    parts = [sdp_bench.load(folder, suite=name) for name in suites]
    assert all(0 < len(part) < len(every) for part in parts)
    assert len(sdp_bench.load(folder, suite=suites)) == len(every)
    shared = every["suites"].str.contains(",").sum()
    assert sum(map(len, parts)) == len(every) + shared


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"path": "nothing"}, "there is no file or folder 'nothing'"),
        ({"path": ""}, "there is no file or folder ''"),
        ({"path": 3}, "takes a path or 'committed', got int"),
        ({"path": "."}, "is not a folder of results"),
        ({"path": "text.txt"}, "text.txt is a file; results are a folder"),
        ({"path": "old.sqlite"}, r"old.sqlite has results of sdp-bench 0\.32 or older"),
        ({"path": "exported"}, r"exported has results of sdp-bench 0\.32 or older"),
        ({"suite": "iris-tw"}, "no suite 'iris-tw' in .*there are "),
        ({"suite": 3}, "suite is the name of an experiment"),
        ({"runs": "1"}, "runs are ids of runs"),
        ({"runs": [1.0]}, "runs are ids of runs"),
        ({"runs": ["7x"]}, "no run 7x in"),
        ({"runs": ["T"]}, "'T' is part of 2 runs in"),
    ],
)
def test_bad_input_is_reported_in_one_line(arguments, line, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("no results")
    (tmp_path / "old.sqlite").write_bytes(b"SQLite format 3\0" + bytes(100))
    (tmp_path / "exported").mkdir()
    (tmp_path / "exported" / "records.csv").write_text("unit,rule\n")
    with pytest.raises(UserError, match=line) as told:
        sdp_bench.load(**{"path": folder} | arguments)
    assert str(told.value).isprintable()


def test_a_run_without_measurements_gives_no_rows(tmp_path):
    rows = pd.DataFrame([{"rule": "sdp", "metric_spec": "w1", "value": 0.1}])
    number = made_up.write_results(tmp_path, rows, measured=[False], finished=False)
    for runs in (None, [number]):
        found = sdp_bench.load(tmp_path, runs=runs)
        assert len(found) == 0
        check_columns(found)


def damaged(path, change):
    content = path.read_bytes()
    path.write_bytes(change(content))


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[: len(content) // 2],
        lambda content: content[:100] + bytes([content[100] ^ 1]) + content[101:],
        lambda content: b"",
    ],
    ids=["half", "a bit", "empty"],
)
def test_a_damaged_file_is_left_out_with_a_warning(change, folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    before = sdp_bench.load(copy)
    row = {"unit": "f" * 16, "rule": "sdp", "metric_spec": "w1", "value": 0.125, "net": "mine"}
    made_up.write_results(copy, [row])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(sdp_bench.load(copy)) == len(before) + 1
    (path,) = (copy / "measured").glob("made-up-*")
    damaged(path, change)
    with pytest.warns(UserWarning, match=rf"{path.name} is .*left out: .*; delete it"):
        found = sdp_bench.load(copy)
    pd.testing.assert_frame_equal(found, before, check_exact=True)


def test_a_run_with_a_damaged_file_is_left_out_with_a_warning(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    row = {"unit": "f" * 16, "rule": "sdp", "metric_spec": "w1", "value": 0.125, "net": "mine"}
    number = made_up.write_results(copy, [row])
    damaged(copy / "runs" / number / "plan.parquet", lambda content: content[:-1])
    with pytest.warns(UserWarning, match=rf"{number}.* is damaged, the run is left out"):
        found = sdp_bench.load(copy)
    assert number not in set(found["run"])
    with pytest.warns(UserWarning, match=number), pytest.raises(UserError, match=f"no run {number}"):
        sdp_bench.load(copy, runs=[number])


@pytest.mark.slow
def test_committed_measurements_are_those_in_the_files():
    """The reference reads Parquet files with pyarrow, and knows nothing of runs but their plans."""
    parts = [pq.read_table(path) for path in sorted((results.COMMITTED / "measured").glob("*.parquet"))]
    rows = pd.concat([part.to_pandas() for part in parts], ignore_index=True)
    for name in KEY:
        rows[name] = rows[name].astype(object)
    rows = rows[rows["status"] == "measured"].fillna({"component": ""})
    plans = sorted((results.COMMITTED / "runs").glob("*/plan.parquet"))
    cells = ["experiment", "unit", "rule", "metric_spec"]
    asked = pd.concat([pq.read_table(path, columns=cells).to_pandas().astype(object) for path in plans])
    suites = asked.drop_duplicates().groupby(KEY[:3])["experiment"].agg(set).rename("asked").reset_index()
    expected = rows.merge(suites, on=KEY[:3])
    assert not expected.duplicated(KEY).any()

    loaded = sdp_bench.load("committed")
    both = loaded.astype(dict.fromkeys(KEY, object)).merge(expected, on=KEY, suffixes=("", "_file"))
    # A newer run with other settings may replace what an older one measured of the same subject.
    assert len(both) == len(loaded)
    assert len(loaded) > 0.9 * len(expected)
    for name in NUMBERS:
        np.testing.assert_array_equal(both[name], both[f"{name}_file"])
    assert both["run"].astype(str).equals(both["run_file"].astype(str))
    suites = both["suites"].astype(object).map(lambda text: set(text.split(", ")))
    assert all(named <= known for named, known in zip(suites, both["asked"], strict=True))
