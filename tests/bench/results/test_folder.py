import errno
import hashlib
import json
import math
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.results.checked import missing
from sdp_bench.bench.results.columns import CELL, MEASUREMENT, PLAN, STATUSES, typed
from sdp_bench.bench.results.folder import (
    LeftOut,
    damaged_nets,
    net_of,
    new_run,
    read,
    read_plan,
    write_measurements,
    write_net,
)
from tests.bench.results.made_up import begun, finished, groups, measured, plan
from tests.project import ROOT


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "results"


def files_of(folder, part="measured"):
    return sorted(path for path in (folder / part).iterdir() if not path.name.startswith("."))


def cells_of(stored):
    return set(stored.measurements[CELL].astype(object).itertuples(index=False, name=None))


def sealed(folder, frame, name="foreign"):
    """Write a table of any columns, with its digest in its name."""
    path = folder / "measured" / "table.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return path.rename(path.with_name(f"{name}-{digest}.parquet"))


# Writing ------------------------------------------------------------------------------------------


def test_each_group_is_a_parquet_file_with_its_digest_in_its_name(folder):
    rows = plan(units=3)
    writer = begun(folder, rows)
    for count, (name, part) in enumerate(groups(rows).items(), 1):
        writer.write(name, measured(part))
        assert len(files_of(folder)) == count
        assert len(read(folder).measurements) == 4 * count
    for path in files_of(folder):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        assert re.fullmatch(rf"group\d-{digest[:16]}\.parquet", path.name)
        frame = pq.read_table(path).to_pandas()
        assert [*frame] == [*MEASUREMENT]
        assert set(frame["run"]) == {writer.run.id}


def test_files_of_groups_become_one_when_a_run_ends(folder):
    rows = plan(units=5)
    run = finished(folder, rows)
    (path,) = files_of(folder)
    assert hashlib.sha256(path.read_bytes()).hexdigest()[:16] in path.name
    stored = read(folder)
    assert (stored.faults, stored.contradictions, len(stored.measurements)) == ((), 0, 20)
    assert stored.runs[run.id].seconds == 1.0
    assert stored.runs[run.id].finished is not None


def test_a_run_of_one_group_has_its_file(folder):
    finished(folder, plan(units=1))
    assert len(files_of(folder)) == 1


def test_files_become_few_while_a_run_goes_on(folder):
    rows = plan(units=103, rules=("sdp",), metrics=("w1",))
    writer = begun(folder, rows)
    counts = []
    for name, part in groups(rows).items():
        writer.write(name, measured(part))
        counts.append(len(files_of(folder)))
    assert counts == [*range(1, 100), 1, 2, 3, 4]
    assert len(read(folder).measurements) == 103
    writer.finish(1.0)
    assert len(files_of(folder)) == 1
    assert len(read(folder).measurements) == 103


def test_a_run_comes_back_as_it_was_described(folder):
    rows = plan(experiments=("iris-tv", "iris-w1"))
    left_out = (LeftOut("sdp", "relu", "a reason"), LeftOut(None, "iris-w1", "no data"))
    described = {"settings": {"sigmas": [0.1, 1e-30]}, "environment": {"ü": None}, "left_out": left_out}
    writer = begun(folder, rows, **described)
    (stored,) = read(folder).runs.values()
    assert stored == writer.run
    assert (stored.finished, stored.seconds, stored.left_out) == (None, None, left_out)
    pd.testing.assert_frame_equal(typed(read_plan(stored), PLAN).fillna(0), rows.fillna(0))


def test_a_new_run_is_named_by_its_start_and_brings_its_nets(folder):
    described = {"command": "c", "preset": "", "settings": {}, "experiments": (), "left_out": ()}
    described |= {"environment": {}, "code": ""}
    first = new_run(folder, plan(), {"net0": b"weights"}, **described)
    second = new_run(folder, plan(), {"net0": b"weights"}, **described)
    assert first.id != second.id
    assert {*read(folder).runs} == {first.id, second.id}
    assert re.fullmatch(r"\d{8}T\d{9}-[0-9a-f]{4}", first.id)
    assert net_of([folder], "net0") == b"weights"
    assert len(files_of(folder, "nets")) == 1


_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
_values = {
    "text": st.none() | _text,
    "integer": st.none() | st.integers(-(2**53), 2**53),
    "number": st.floats(),
    "flag": st.booleans(),
}
_required = ("unit", "rule", "metric_spec", "rule_label", "fingerprint")


@given(st.lists(st.fixed_dictionaries(_values), min_size=1, max_size=4), _text, st.sampled_from(STATUSES[1:]))
def test_any_measurements_survive_a_file(rows, text, status):
    """Columns of a kind have the same values in another order; numbers of measurements have ranges."""
    columns = {}
    for shift, (name, kind) in enumerate(MEASUREMENT.items()):
        columns[name] = [rows[(number + shift) % len(rows)][kind] for number in range(len(rows))]
    columns |= {name: [f"{name} {text} {number}" for number in range(len(rows))] for name in _required}
    frame = typed(pd.DataFrame(columns).assign(status=status, run="run", rank=1), MEASUREMENT)
    with tempfile.TemporaryDirectory() as directory:
        write_measurements(Path(directory), "group", frame)
        stored = read(Path(directory))
    assert stored.faults == ()
    for name, kind in MEASUREMENT.items():
        read_column, column = stored.measurements[name], frame[name]
        assert read_column.isna().tolist() == column.isna().tolist()
        if kind == "number":
            np.testing.assert_array_equal(read_column.to_numpy(), column.to_numpy())
        else:
            assert read_column.dropna().tolist() == column.dropna().tolist()
        if kind == "text":
            assert read_column.cat.categories.tolist() == sorted(set(column.dropna()))


def test_read_measurements_can_be_written_again_with_the_same_content(folder, tmp_path):
    finished(folder, plan(units=3))
    stored = read(folder)
    write_measurements(tmp_path / "copy", "copy", stored.measurements)
    pd.testing.assert_frame_equal(read(tmp_path / "copy").measurements, stored.measurements)


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_one_line_and_loses_nothing(folder, monkeypatch):
    rows = plan(units=4)
    parts = groups(rows)
    writer = begun(folder, rows)
    writer.write("group0", measured(parts["group0"]))
    writer.write("group1", measured(parts["group1"]))
    before = files_of(folder)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        for call in (lambda: writer.write("group2", measured(parts["group2"])), lambda: writer.finish(1.0)):
            with pytest.raises(RunFailedError, match=r"^cannot write \S+: No space left on device$"):
                call()
            assert files_of(folder) == before
    assert not any(folder.rglob(".*"))
    assert len(read(folder).measurements) == 8
    writer.write("group2", measured(parts["group2"]))
    writer.finish(1.0)
    assert len(read(folder).measurements) == 12


def test_a_folder_below_a_file_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFailedError, match=r"^cannot write \S+"):
        begun(tmp_path / "file" / "results", plan())


# Several processes --------------------------------------------------------------------------------


def test_a_reader_loses_nothing_if_files_are_joined_while_it_reads(folder, monkeypatch):
    rows = plan(units=6)
    writer = begun(folder, rows)
    for name, part in groups(rows).items():
        writer.write(name, measured(part))
    plain = Path.read_bytes
    joins = []

    def joining(path):
        content = plain(path)
        if path.parent.name == "measured" and not joins:
            joins.append(path)
            writer.finish(1.0)
        return content

    monkeypatch.setattr(Path, "read_bytes", joining)
    stored = read(folder)
    assert len(files_of(folder)) == 1
    assert (len(stored.measurements), stored.faults, stored.contradictions) == (24, (), 0)


def test_a_listing_that_has_neither_small_files_nor_the_one_of_them_all_is_repeated(folder, monkeypatch):
    rows = plan(units=3)
    writer = begun(folder, rows)
    for name, part in groups(rows).items():
        writer.write(name, measured(part))
    plain = Path.glob
    listings = []

    def listed(path, pattern, **options):
        lines = sorted(plain(path, pattern, **options))
        if path.name == "measured":
            listings.append(lines)
            if len(listings) == 1:
                writer.finish(1.0)
                return lines[:1]
        return lines

    monkeypatch.setattr(Path, "glob", listed)
    assert len(read(folder).measurements) == 12


def test_files_left_by_a_kill_between_joining_and_removing_count_once(folder):
    rows = plan(units=3)
    writer = begun(folder, rows)
    for name, part in groups(rows).items():
        writer.write(name, measured(part))
    small = {path: path.read_bytes() for path in files_of(folder)}
    writer.finish(1.0)
    for path, content in small.items():
        path.write_bytes(content)
    (folder / "measured" / ".group0-0123456789abcdef.parquet.0a1b2c3d").write_bytes(b"PAR1 half a file")
    stored = read(folder)
    assert (len(stored.measurements), stored.faults, stored.contradictions) == (12, (), 0)
    assert missing(stored) == []


def test_a_folder_that_a_kill_left_without_a_run_can_be_read_and_written(folder):
    write_net(folder, "net0", b"weights")
    (folder / "runs" / "20260101T000000000-0000").mkdir(parents=True)
    (folder / "runs" / "20260101T000000000-0000" / "plan.parquet").write_bytes(b"half a plan")
    for remaining in ("runs", "nets"):
        stored = read(folder)
        assert (len(stored.measurements), stored.runs, stored.faults) == (0, {}, ())
        with pytest.raises(UserError, match="no run in"):
            stored.run()
        shutil.rmtree(folder / remaining)
    assert read(folder).measurements.empty
    (folder / ".gitkeep").touch()
    assert read(folder).measurements.empty
    finished(folder, plan())
    assert len(read(folder).measurements) == 8


def test_copying_files_joins_results(folder, tmp_path):
    rows = plan(units=4, experiments=("iris-tv", "iris-w1"))
    whole = read_after(finished(tmp_path / "whole", rows))
    shards = []
    for number in range(2):
        part = rows[rows["group"].isin([f"group{number}", f"group{number + 2}"])].reset_index(drop=True)
        shards.append(tmp_path / f"shard{number}")
        finished(shards[-1], part, day=number + 1)
        write_net(shards[-1], f"net{number}", b"weights")
    both = read(*shards)
    for shard in shards:
        shutil.copytree(shard, folder, dirs_exist_ok=True)
    for stored in (both, read(folder), read(folder, folder)):
        assert (len(stored.runs), stored.faults, stored.contradictions) == (2, (), 0)
        assert sorted_rows(stored).equals(sorted_rows(whole))
        assert missing(stored) == []
    assert [net_of([folder], f"net{number}") for number in range(3)] == [b"weights", b"weights", None]


def test_a_run_that_is_finished_in_one_of_the_folders_is_finished(folder, tmp_path):
    writer = begun(folder, plan(units=1))
    shutil.copytree(folder, tmp_path / "early")
    writer.finish(2.0)
    for folders in ((folder, tmp_path / "early"), (tmp_path / "early", folder)):
        assert read(*folders).run().seconds == 2.0


def read_after(run):
    return read(run.folder)


def sorted_rows(stored):
    names = [*CELL, "component", "value", "status", "floor"]
    return stored.measurements[names].astype(object).sort_values(CELL, ignore_index=True)


PROCESSES = 20
WRITING = """
import os, sys, traceback
from pathlib import Path
from sdp_bench.bench.results.folder import read
from tests.bench.results.made_up import begun, groups, measured, plan

folder, groups_of_a_run, runs = Path(sys.argv[1]), 6, 3

def write(process, told):
    for number in range(runs):
        rows = plan(units=groups_of_a_run, rules=("sdp",), metrics=("w1", "tv_class"))
        rows["unit"] = f"{process}-{number}-" + rows["unit"]
        writer = begun(folder, rows, 1 + number, id=f"run-{process}-{number}")
        for name, part in groups(rows).items():
            writer.write(f"{process}-{number}-{name}", measured(part))
            os.write(told, (part["unit"].iloc[0] + "\\n").encode())
        writer.finish(1.0)

reading, writing = os.pipe()
children = []
for process in range(int(sys.argv[2])):
    child = os.fork()
    if child == 0:
        try:
            write(process, writing)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    children.append(child)
os.close(writing)
announced, rounds, rest = set(), 0, b""
os.set_blocking(reading, True)
while piece := os.read(reading, 2**16):
    *lines, rest = (rest + piece).split(b"\\n")
    announced |= {line.decode() for line in lines}
    stored = read(folder)
    assert not stored.faults, stored.faults
    assert not stored.contradictions
    units = stored.measurements["unit"].astype(object).value_counts()
    assert announced <= set(units.index), announced - set(units.index)
    assert set(units) == {2}, units
    rounds += 1
for child in children:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert rounds > 1
print(len(announced))
"""


@pytest.mark.slow
def test_twenty_processes_write_to_a_folder_and_a_reader_misses_nothing_finished(folder):
    words = [sys.executable, "-c", WRITING, str(folder), str(PROCESSES)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{PROCESSES * 18}\n"), done.stderr[-2000:]
    stored = read(folder)
    assert len(stored.runs) == PROCESSES * 3
    assert len(files_of(folder)) == PROCESSES * 3
    assert len(stored.measurements) == PROCESSES * 18 * 2
    assert missing(stored) == []


# What counts --------------------------------------------------------------------------------------


@pytest.fixture
def twice(folder):
    """A function that stores the same cell in two runs and returns what is read."""

    def stored(first, second):
        rows = plan(units=1, rules=("sdp",), metrics=("w1",))
        for day, (numbers, columns) in enumerate((first, second), 1):
            finished(folder, rows.assign(**columns), day, **numbers)
        return read(folder)

    return stored


FAILURE = {"status": "failed", "reason": "boom"}
UNDEFINED = {"status": "undefined", "reason": "no density"}


@pytest.mark.parametrize("order", [1, -1])
def test_the_newer_of_two_measurements_counts_wherever_it_lies(folder, order):
    rows = plan(units=1, rules=("sdp",), metrics=("w1",))
    for day in (1, 2, 3)[::order]:
        finished(folder, rows, day, value=float(day))
    stored = read(folder)
    assert stored.measurements["value"].tolist() == [3.0]
    assert stored.measurements["run"].tolist() == ["20260103T000000000-0000"]


@pytest.mark.parametrize(
    ("first", "second", "contradictions"),
    [
        ({"value": 1.0}, {"value": 2.0}, 1),
        ({"value": 1.0}, {"value": 1.0 + 1e-12}, 0),
        ({"value": 1.0, "stderr": 0.1}, {"value": 1.0005, "stderr": 0.1}, 0),
        ({"value": 1.0}, {"value": 1.0, "seconds": 9.0}, 0),
        (FAILURE, {"value": 1.0}, 0),
        (FAILURE, FAILURE, 0),
        (UNDEFINED, {"value": 1.0}, 0),
        (UNDEFINED, UNDEFINED, 0),
    ],
)
def test_measurements_of_the_same_versions_that_differ_are_counted(twice, first, second, contradictions):
    stored = twice((first, {}), (second, {}))
    assert len(stored.measurements) == 1
    assert stored.contradictions == contradictions
    assert len(stored.notes) == contradictions
    if contradictions:
        assert stored.notes == [
            "1 measurements differ between runs of the same versions; the newer ones count"
        ]


def test_components_are_compared_with_their_own(folder):
    rows = plan(units=1, rules=("sdp",), metrics=("w1",))
    for day in (1, 2):
        writer = begun(folder, rows, day)
        frame = pd.concat([measured(rows, value=float(part), component=str(part)) for part in range(3)])
        frame.loc[frame["component"] == "2", "value"] += day
        writer.write("group0", frame)
    stored = read(folder)
    assert (len(stored.measurements), stored.contradictions) == (3, 1)


def test_other_versions_do_not_contradict(twice):
    stored = twice(({"value": 1.0}, {"fingerprint": "rule 1"}), ({"value": 2.0}, {"fingerprint": "rule 2"}))
    assert (stored.measurements["value"].tolist(), stored.contradictions) == ([2.0], 0)


def test_a_newer_failure_does_not_displace_a_measurement_of_the_same_versions(twice):
    stored = twice(({"value": 1.0}, {}), (FAILURE, {}))
    assert stored.measurements["status"].tolist() == ["measured"]
    assert stored.measurements["value"].tolist() == [1.0]


def test_a_failure_of_newer_versions_counts(twice):
    stored = twice(({"value": 1.0}, {"fingerprint": "rule 1"}), (FAILURE, {"fingerprint": "rule 2"}))
    assert stored.measurements["status"].tolist() == ["failed"]


def test_a_new_measurement_replaces_all_components(folder):
    rows = plan(units=1, rules=("sdp",), metrics=("w1",))
    first = begun(folder, rows, 1)
    first.write("group0", pd.concat([measured(rows, component=str(part)) for part in range(3)]))
    finished(folder, rows, 2, value=0.75, component="0")
    assert read(folder).measurements["value"].tolist() == [0.75]


@pytest.mark.parametrize(
    "columns", [(*CELL, "fingerprint", "status", "run"), ("value",), ("unit", "component")]
)
def test_fewer_columns_are_those_of_the_measurements_that_count(folder, columns):
    rows = plan(units=3)
    finished(folder, rows, 1, value=0.3)
    finished(folder, rows[rows["unit"] != "unit0"], 2, value=0.4)
    sealed(folder, read(folder).measurements.head(1).assign(value=-1.0, unit="other"))
    stored, part = read(folder), read(folder, columns=columns)
    assert part.faults == stored.faults != ()
    assert part.contradictions == stored.contradictions == 8
    assert [*part.measurements] == [*columns]
    for name in columns:
        assert part.measurements[name].tolist() == stored.measurements[name].tolist()


def test_a_run_is_found_by_a_part_of_its_name(folder):
    for day in (1, 2, 12):
        begun(folder, plan(units=1), day)
    stored = read(folder)
    assert stored.run().id == "20260112T000000000-0000"
    assert stored.run("0102T").id == "20260102T000000000-0000"
    for part, line in (("2026", "part of 3 runs"), ("2027", "no run 2027 in"), ("", "part of 3 runs")):
        with pytest.raises(UserError, match=line):
            stored.run(part)


# Damaged and foreign files ------------------------------------------------------------------------


def changed(folder, change):
    """Write a foreign table: the measurements of the folder with a change."""
    return sealed(folder, change(read(folder).measurements.astype({"status": object, "unit": object})))


def empty_of(folder, content, name="group-0123456789abcdef.parquet"):
    path = folder / "measured" / name
    path.write_bytes(content)
    return path


def linked(folder, target):
    path = folder / "measured" / "link-0123456789abcdef.parquet"
    path.symlink_to(target)
    return path


def piped(folder):
    path = folder / "measured" / "pipe-0123456789abcdef.parquet"
    os.mkfifo(path)
    return path


def nested(folder, name="folder-0123456789abcdef.parquet"):
    path = folder / "measured" / name
    path.mkdir()
    (path / "file").write_text("")
    return path


def cut(folder):
    path = shutil.copy(files_of(folder)[0], folder / "measured" / "cut-0123456789abcdef.parquet")
    os.truncate(path, path.stat().st_size // 2)
    return path


def parquet_cut_with_its_digest(folder):
    content = files_of(folder)[0].read_bytes()[:-20]
    return empty_of(folder, content, f"cut-{hashlib.sha256(content).hexdigest()[:16]}.parquet")


NOTHING = hashlib.sha256(b"").hexdigest()[:16]
FOREIGN = {
    "empty": lambda folder: empty_of(folder, b""),
    "empty, with its digest": lambda folder: empty_of(folder, b"", f"group-{NOTHING}.parquet"),
    "cut": cut,
    "cut, with its digest": parquet_cut_with_its_digest,
    "no digest": lambda folder: empty_of(folder, b"text", "notes.txt"),
    "a net": lambda folder: empty_of(folder, b"", f"net-{NOTHING}.safetensors"),
    "a folder": nested,
    "a folder of another name": lambda folder: nested(folder, "old"),
    "a pipe": piped,
    "a dangling link": lambda folder: linked(folder, "nowhere"),
    "a link to itself": lambda folder: linked(folder, "link-0123456789abcdef.parquet"),
    "a link to a folder": lambda folder: linked(folder, ".."),
    "other columns": lambda folder: sealed(folder, pd.DataFrame({"a": [1]})),
    "a column less": lambda folder: changed(folder, lambda rows: rows.drop(columns="floor95")),
    "text as numbers": lambda folder: changed(folder, lambda rows: rows.assign(value="much")),
    "lists as text": lambda folder: changed(folder, lambda rows: rows.assign(rule=[["sdp"]] * len(rows))),
    "unknown status": lambda folder: changed(folder, lambda rows: rows.assign(status="fine")),
    "no status": lambda folder: changed(folder, lambda rows: rows.assign(status=None)),
    "no unit": lambda folder: changed(folder, lambda rows: rows.assign(unit=[None, *rows["unit"][1:]])),
    "no run": lambda folder: changed(folder, lambda rows: rows.assign(run=None)),
    "NaN": lambda folder: changed(folder, lambda rows: rows.assign(value=math.nan)),
    "a negative distance": lambda folder: changed(folder, lambda rows: rows.assign(value=-1.0)),
    "an infinite error": lambda folder: changed(folder, lambda rows: rows.assign(stderr=math.inf)),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_files_are_named_in_a_line_and_the_rest_is_read(folder, name):
    run = finished(folder, plan())
    before = read(folder)
    path = FOREIGN[name](folder)
    stored = read(folder)
    (line,) = stored.faults
    assert line.startswith(f"{path} is left out: ")
    assert line.endswith("; delete it")
    assert "\n" not in line
    pd.testing.assert_frame_equal(stored.measurements, before.measurements)
    assert stored.run().id == run.id
    assert os.path.lexists(path)


def test_a_link_to_a_file_of_another_folder_is_read(folder, tmp_path):
    finished(folder, plan())
    (path,) = files_of(folder)
    target = tmp_path / "elsewhere.parquet"
    path.rename(target)
    path.symlink_to(target)
    stored = read(folder)
    assert (stored.faults, len(stored.measurements)) == ((), 8)


def description(change, seal=True):
    """Change of the description of a run, by default with its digest."""

    def changed(path):
        values = json.loads(path.read_text())
        del values["sha256"]
        values = change(values)
        if seal and isinstance(values, dict):
            digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
            values = {**values, "sha256": digest}
        path.write_text(json.dumps(values))

    return changed


def without(values, name):
    return {key: value for key, value in values.items() if key != name}


NONSENSE = {
    "empty": lambda path: path.write_text(""),
    "text": lambda path: path.write_text("nonsense"),
    "binary": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "brackets": lambda path: path.write_text("[" * 100_000),
    "a list": description(lambda values: [values]),
    "a number": description(lambda values: 5),
    "null": description(lambda values: None),
    "no digest": description(lambda values: values, seal=False),
    "a number of 5000 digits": lambda path: path.write_text('{"sha256": ' + "9" * 5000 + "}"),
    "another digest": lambda path: path.write_text(path.read_text().replace('"sha256": "', '"sha256": "0')),
    "another command": lambda path: path.write_text(path.read_text().replace("iris-tv", "iris-w1")),
    "a name twice": lambda path: path.write_text(path.read_text().replace("{", '{"id": "x",', 1)),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "another id": description(lambda values: values | {"id": "20250101T000000000-0000"}),
    "no settings": description(lambda values: without(values, "settings")),
    "settings are a number": description(lambda values: values | {"settings": 5}),
    "environment is a list": description(lambda values: values | {"environment": []}),
    "seconds are a text": description(lambda values: values | {"seconds": "1"}),
    "the start is no time": description(lambda values: values | {"started": "yesterday"}),
    "the end is no time": description(lambda values: values | {"finished": "now"}),
    "a command is missing": description(lambda values: values | {"command": None}),
    "more fields": description(lambda values: values | {"colour": "red"}),
    "left out is text": description(lambda values: values | {"left_out": ["sdp"]}),
    "a reason is a number": description(
        lambda values: values | {"left_out": [{"rule": None, "where": "", "reason": 5}]}
    ),
    "experiments are a number": description(lambda values: values | {"experiments": 5}),
    "another plan": lambda path: (path.parent / "plan.parquet").write_bytes(b"PAR1"),
    "no plan": lambda path: (path.parent / "plan.parquet").unlink(),
    "a plan is a folder": lambda path: (
        (path.parent / "plan.parquet").unlink(),
        (path.parent / "plan.parquet").mkdir(),
    ),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_instead_of_a_run_is_named_and_other_runs_and_numbers_are_read(folder, name):
    rows = plan()
    finished(folder, rows, 1)
    run = finished(folder, rows.assign(unit=rows["unit"] + "b"), 2)
    path = folder / "runs" / run.id / "run.json"
    NONSENSE[name](path)
    stored = read(folder)
    (line,) = stored.faults
    assert line.startswith(f"{path} is damaged, the run is left out: ")
    assert "\n" not in line
    assert {*stored.runs} == {"20260101T000000000-0000"}
    assert len(stored.measurements) == 16


def test_a_plan_with_other_columns_is_reported_where_it_is_used(folder):
    run = begun(folder, plan()).run
    path = folder / "runs" / run.id / "plan.parquet"
    pd.DataFrame({"unit": ["u"]}).to_parquet(path)
    write_json = replace(run, plan_sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    with pytest.raises(RunFailedError, match=rf"^{path} is damaged: [^\n]*measure again$"):
        read_plan(write_json)
    path.unlink()
    with pytest.raises(RunFailedError, match=rf"^{path} is damaged: [^\n]*measure again$"):
        read_plan(run)


def test_a_file_that_is_damaged_before_it_is_joined_is_not_taken_for_a_sound_one(folder):
    rows = plan(units=102, rules=("sdp",), metrics=("w1",))
    writer = begun(folder, rows)
    for name, part in groups(rows).items():
        writer.write(name, measured(part))
    (joined,) = [path for path in files_of(folder) if path.name.startswith(writer.run.id)]
    content = bytearray(joined.read_bytes())
    content[len(content) // 2] ^= 1
    joined.write_bytes(content)
    writer.finish(1.0)
    stored = read(folder)
    assert len(stored.measurements) == 2
    assert [line.startswith(str(joined)) for line in stored.faults] == [True]
    assert missing(stored) == [f"run {writer.run.id}: 100 of 102 measurements are missing; run it again"]


def test_a_damaged_net_is_named_not_used_and_written_again(folder):
    write_net(folder, "net0", b"weights")
    (path,) = files_of(folder, "nets")
    assert damaged_nets(folder) == []
    path.write_bytes(b"Weights")
    assert net_of([folder], "net0") is None
    (line,) = damaged_nets(folder)
    assert line == f"{path} is left out: its content is damaged; delete it"
    (folder / "nets" / "model.safetensors").write_bytes(b"")
    assert missing(read(folder)) == damaged_nets(folder)
    assert len(damaged_nets(folder)) == 2
    write_net(folder, "net0", b"weights")
    assert net_of([folder], "net0") == b"weights"


def test_measurements_that_are_missing_are_counted_for_finished_runs(folder):
    rows = plan(units=3)
    finished(folder, rows, 1)
    begun(folder, rows.assign(unit=rows["unit"] + "b"), 2)
    assert missing(read(folder)) == []
    for path in files_of(folder):
        path.unlink()
    assert missing(read(folder)) == [
        "run 20260101T000000000-0000: 12 of 12 measurements are missing; run it again"
    ]


# Folders that hold something else -----------------------------------------------------------------


def test_results_files_and_exports_of_older_versions_are_refused_with_what_reads_them(tmp_path):
    with closing(sqlite3.connect(tmp_path / "old.sqlite")) as db, db:
        db.execute("CREATE TABLE records (unit TEXT)")
    for name in ("parquet", "csv"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"records.{name}").write_bytes(b"")
    for name in ("old.sqlite", "parquet", "csv"):
        path = tmp_path / name
        for call in (lambda path=path: read(path), lambda path=path: new_run(path, plan(), {})):
            with pytest.raises(UserError, match=rf"^{path} has [^\n]*0\.32[^\n]*pip install[^\n]*$"):
                call()


def test_a_folder_without_results_is_refused(tmp_path):
    (tmp_path / "file").write_text("text")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "1.jpg").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe")
    lines = {
        "file": "is a file; results are a folder",
        "photos": "is not a folder of results",
        "pipe": "is not a folder of results",
        "none": "no results at",
    }
    for name, line in lines.items():
        with pytest.raises(UserError, match=line) as raised:
            read(tmp_path / name)
        assert str(tmp_path / name) in str(raised.value)
        assert "\n" not in str(raised.value)
