"""Damaged results and baselines: each is read as it was written, or named in one line."""

import errno
import json
import math
import os
import random
import shutil
import subprocess

import pandas as pd
import pytest

from sdp_bench.bench.gate.cases import GateScope
from sdp_bench.bench.results.checked import missing
from sdp_bench.bench.results.columns import CELL, NUMBERS
from sdp_bench.bench.results.folder import read, read_plan
from tests.attacks.calls import SMALL_RUN, called, command, complaint
from tests.bench.results.made_up import finished, plan
from tests.project import ROOT

SEED = 7
RUN = (
    "run",
    *SMALL_RUN,
    "--jobs",
    "1",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Folder of results with two runs, a net, and a file of measurements of each run."""
    folder = tmp_path_factory.mktemp("damage")
    for sigma in ("0.1,0.2", "0.3"):
        ended = command(*RUN, "--sigma", sigma, cwd=folder)
        assert ended.code == 0, ended.err
    return folder / "results"


@pytest.fixture
def folder(made, tmp_path):
    """A copy that a test may damage."""
    return shutil.copytree(made, tmp_path / "results")


def files_of(folder, part=""):
    return sorted(path for path in (folder / part).rglob("*") if path.is_file())


def numbers(folder):
    """Return all numbers, in an order of their keys."""
    frame = read(folder).measurements
    frame = frame[[*CELL, "component", *NUMBERS, "status", "fingerprint", "precision"]].astype(object)
    return frame.sort_values([*CELL, "component"], ignore_index=True)


def flip(path, random):
    content = bytearray(path.read_bytes())
    bit = random.randrange(len(content) * 8)
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    return bit


def content_of(path):
    """Return what a file says, or its bytes if it cannot be read."""
    try:
        return json.loads(path.read_text()) if path.suffix == ".json" else path.read_bytes()
    except ValueError:
        return path.read_bytes()


def lines_of(stored):
    return list(stored.faults) + [line for line in missing(stored) if "are missing" not in line]


@pytest.mark.parametrize("count", [40, pytest.param(400, marks=pytest.mark.slow)])
def test_each_flipped_bit_that_changes_content_is_named_and_the_rest_is_read(folder, count):
    draw = random.Random(SEED)
    whole, paths = read(folder), files_of(folder)
    assert {path.suffix for path in paths} == {".json", ".parquet", ".safetensors"}
    assert len(paths) == 7
    rows = whole.measurements.astype({"run": object})
    run_of = {path: pd.read_parquet(path)["run"][0] for path in paths if path.parent.name == "measured"}
    for number in range(count):
        path = paths[number % len(paths)]
        before, content = path.read_bytes(), content_of(path)
        bit = flip(path, draw)
        stored = read(folder)
        if content_of(path) == content:  # other white space
            assert lines_of(stored) == [], (path, bit)
            assert stored.runs == whole.runs
        else:
            (line,) = lines_of(stored)
            assert str(path.parent) in line, (path, bit)
            assert "\n" not in line
            expected = rows
            if path.parent.name == "measured":
                assert str(path) in line
                expected = rows[rows["run"] != run_of[path]]
            elif path.parent.name != "nets":
                assert {*whole.runs} - {*stored.runs} == {path.parent.name}
            values = stored.measurements["value"].tolist()
            assert sorted(values) == sorted(expected["value"].tolist()), (path, bit)
        path.write_bytes(before)
    pd.testing.assert_frame_equal(read(folder).measurements, whole.measurements)


def test_a_run_says_what_is_damaged_and_measures_it_again(folder, made):
    before = numbers(folder)
    (path, _) = files_of(folder, "measured")
    flip(path, random.Random(SEED))
    assert len(numbers(folder)) < len(before)
    lost = 2  # groups of the first run
    again = (*RUN, "--sigma", "0.1,0.2,0.3")
    ended = command(*again, cwd=folder.parent)
    assert ended.code == 0, ended.err
    assert f"results/measured/{path.name} is left out: its content is damaged; delete it" in ended.err
    assert f"{lost} groups in" in ended.err
    assert "1 of 3 groups are measured already" in ended.err
    assert numbers(folder).equals(before)
    checked = command("results", "check", "results", cwd=folder.parent)
    assert checked.code == 3
    assert path.name in checked.out
    path.unlink()
    checked = command("results", "check", "results", cwd=folder.parent)
    assert (checked.code, checked.err) == (0, "")
    assert checked.out == f"results is as it was written: {len(before)} measurements of 3 runs\n"


def test_a_damaged_net_is_named_by_the_check_and_written_again_by_a_run(folder):
    (path,) = files_of(folder, "nets")
    before = path.read_bytes()
    flip(path, random.Random(SEED))
    checked = command("results", "check", "results", cwd=folder.parent)
    assert checked.code == 3
    assert f"results/nets/{path.name} is left out: its content is damaged; delete it\n" in checked.out
    assert command(*RUN, "--sigma", "0.1", cwd=folder.parent).code == 0
    assert path.read_bytes() == before


def test_a_report_of_damaged_results_says_so(folder):
    (path, _) = files_of(folder, "measured")
    flip(path, random.Random(SEED))
    compared = command("diff", "results", "results", cwd=folder.parent)
    assert compared.code == 0
    assert path.name in compared.err
    damaged_run = files_of(folder, "runs")[0].parent
    (damaged_run / "run.json").write_text("{}")
    checked = command("results", "check", "results", cwd=folder.parent)
    assert checked.code == 3
    assert path.name in checked.out
    assert f"{damaged_run.name}/run.json is damaged, the run is left out" in checked.out


def test_missing_measurements_are_counted_by_the_check(folder):
    first, second = read(folder).runs.values()
    for path in files_of(folder, "measured"):
        path.unlink()
    checked = command("results", "check", "results", cwd=folder.parent)
    assert checked.code == 3
    for run in (first, second):
        cells = len(read_plan(run, CELL).drop_duplicates())
        assert f"run {run.id}: {cells} of {cells} measurements are missing; run it again" in checked.out


def test_the_check_counts_contradictions(tmp_path):
    rows = plan(units=1)
    for day, value in ((1, 0.4), (2, 0.6)):
        finished(tmp_path / "results", rows, day, value=value)
    checked = command("results", "check", "results", cwd=tmp_path)
    line = "4 measurements differ between runs of the same versions; the newer ones count"
    assert (checked.code, checked.out.splitlines()[0]) == (3, line)
    compared = command("diff", "results", "results", cwd=tmp_path)
    assert (compared.code, compared.err.count(line)) == (0, 2)


# Disks ----------------------------------------------------------------------------------------------


CODES = [(errno.EROFS, 4), (errno.EDQUOT, 4), (errno.EIO, 4)]
CODES += [(errno.ENOSPC, writes) for writes in (0, 1, 3, 4)]


@pytest.mark.parametrize(("code", "writes"), CODES)
def test_a_disk_that_fails_ends_a_run_with_a_line_and_the_next_run_resumes(
    made, tmp_path, monkeypatch, code, writes
):
    """The writes are those of the net, the plan, the description and the first groups."""
    words, plain, done = (*RUN, "--sigma", "0.1,0.2,0.3"), os.fsync, []

    def fails(file):
        if len(done) == writes:
            raise OSError(code, os.strerror(code))
        done.append(file)
        plain(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        ended = command(*words, cwd=tmp_path)
    assert complaint(ended.code, ended.out, _last_line(ended.err), (3,)) == ""
    assert os.strerror(code) in ended.err
    results = tmp_path / "results"
    assert not list(results.rglob(".*"))
    groups = max(0, writes - 3)
    assert len(files_of(results, "measured")) == groups
    ended = command(*words, cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert f"{3 - groups} groups in" in ended.err
    assert numbers(results).equals(numbers(made))


def _last_line(err):
    return err.splitlines()[-1]


@pytest.fixture
def mounted(tmp_path):
    """A function that mounts a small disk; a test that may not do this is skipped."""
    places = []

    def mount(options):
        place = tmp_path / "disk"
        place.mkdir(exist_ok=True)
        words = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        if (
            shutil.which("mount") is None
            or subprocess.run(words, capture_output=True, check=False).returncode
        ):
            pytest.skip("no right to mount a disk")
        places.append(place)
        return place

    yield mount
    for place in places:
        subprocess.run(["umount", str(place)], check=True)


def test_a_real_full_disk_ends_a_run_with_a_line_and_keeps_what_is_there(made, mounted, tmp_path):
    place = mounted("size=512k")
    shutil.copytree(made, place / "results")
    before = numbers(place / "results")
    free = shutil.disk_usage(place).free
    (place / "filler").write_bytes(bytes(max(0, free - 3 * 4096)))
    words = (*RUN, "--sigma", "0.5,0.6", "--database", str(place / "results"))
    ended = command(*words, cwd=tmp_path)
    assert complaint(ended.code, ended.out, _last_line(ended.err), (3,)) == ""
    assert "No space left on device" in ended.err
    assert not list((place / "results").rglob(".*"))
    assert set(before["unit"]) <= set(numbers(place / "results")["unit"])
    (place / "filler").unlink()
    assert command(*words, cwd=tmp_path).code == 0


def test_a_disk_that_cannot_be_written_is_one_line_and_can_be_read(made, mounted, tmp_path):
    place = mounted("size=1m")
    shutil.copytree(made, place / "results")
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    before = numbers(place / "results")
    for name in ("results", "new"):
        ended = command(*RUN, "--sigma", "0.5", "--database", str(place / name), cwd=tmp_path)
        assert complaint(ended.code, ended.out, _last_line(ended.err), (3,)) == ""
        assert "Read-only file system" in ended.err
    assert command("results", "check", str(place / "results"), cwd=tmp_path).code == 0
    assert numbers(place / "results").equals(before)


# Baselines ------------------------------------------------------------------------------------------

STRANGE = (math.nan, math.inf, 1e200, "0.5", None, [])
TEXTS = {
    "a rule twice": lambda text: text.replace('"rules": {', '"rules": {"sdp": {"predictions": {}},', 1),
    "brackets": lambda text: "[" * 100_000,
    "a number of 5000 digits": lambda text: text.replace('"version": ', '"version": 1' + "0" * 5000, 1),
    "another version": lambda text: json.dumps(json.loads(text) | {"version": 99}),
    "no rules": lambda text: json.dumps(json.loads(text) | {"rules": {}}),
}


def first(mapping):
    return next(iter(mapping.values()))


def test_a_damaged_baseline_is_rejected(tmp_path, monkeypatch):
    scope = GateScope.of_ci()
    monkeypatch.setattr(GateScope, "of_ci", lambda: scope)
    path, plain = tmp_path / "ci.json", json.loads((ROOT / "reports/baselines/ci.json").read_text())
    text = json.dumps(plain | {"rules": {"sdp": plain["rules"]["sdp"]}}, indent=1)
    damaged = {name: change(text) for name, change in TEXTS.items()}
    for value in STRANGE:  # anywhere, since each rule has a digest
        content = json.loads(text)
        first(content["rules"]["sdp"]["predictions"])["mean"][0] = value
        damaged[repr(value)] = json.dumps(content)
    for name, content in damaged.items():
        path.write_text(content)
        ended = called(["check", "--baseline", path, "--rules", "sdp"])
        assert complaint(*ended, (2,)) == "", name
        assert str(path) in ended.err, name
