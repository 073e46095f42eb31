"""Whatever the command is called with, and however it ends: the right code, one line, no traceback."""

import contextlib
import errno
import os
import pathlib
import subprocess
import sys

import click
import numpy as np
import pytest

import sdp_bench
from sdp_bench import cli
from sdp_bench.bench.errors import UserError
from tests.attacks.calls import bad_calls, called, fallen, furnished

PICKED = [
    line.split()
    for line in (
        "run iris-tv --executor dask --scheduler gopher://x",
        "run iris-tv --device meta",
        "run iris-tv --bins 100000",
        "train cnn3 --dataset mnist --device meta",
        "check --baseline deep.json",
        "check --baseline random.bin/x --update",
        "export --database good --paper out --run 1999",
        "results check /dev/null",
        "validate sdp --output random.bin/x",
        "validate --net rule.py:MyRule --inputs shape.npy --sigma 1",
    )
]

NOISES = (
    "",
    "no-such-thing",
    "gaussian:1",
    "stable",
    "stable:x",
    "stable:2.1",
    "stable:nan",
    "\x1b[31m",
    "student_t:",
    "student_t:0",
    "student_t:inf",
    "mixture",
    "mixture:1*",
    "mixture:0.9*1+0.2*5",
    "mixture:1*-1",
    "mixture:1*nan",
    "scales:1/2/3",
    "scales:1//2",
    "scales:0/0/0/0",
    "scales:inf/1/1/1",
    "covariance",
    "residuals:",
    "x" * 999,
)
"""Wrong noise of nets with four inputs."""

ARRAYS = {
    "nan": np.full((4, 4), np.nan),
    "zero": np.zeros((4, 4)),
    "asymmetric": np.eye(4) + np.triu(np.ones((4, 4)), 1) / 2,
    "indefinite": np.eye(4) - np.ones((4, 4)),
    "wide": np.eye(5),
    "none": np.zeros((0, 4)),
    "complex": np.eye(4) * 1j,
    "large": np.eye(4) * 1e30,
}
FITTING = ("residuals:asymmetric.npy", "residuals:indefinite.npy")
FILES = [f"{name}.npy" for name in (*ARRAYS, "objects", "cut")]
FILES += ["missing", "folder", "several.npz"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The working folder, with invalid files and arrays, and without data."""
    place = furnished(tmp_path_factory.mktemp("calls"))
    for name, array in ARRAYS.items():
        np.save(place / f"{name}.npy", array)
    np.save(place / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.savez(place / "several.npz", np.eye(4), np.eye(4))
    (place / "cut.npy").write_bytes((place / "wide.npy").read_bytes()[:-8])
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(place):
        patch.setenv("SDP_BENCH_DATA", str(place / "folder"))
        yield place


def test_every_bad_value_of_every_option_is_refused(folder):
    calls = list(bad_calls())
    assert len(calls) >= 260
    assert fallen(PICKED + calls) == []


RUN = "run iris-tv --preset smoke --nets 1 --inputs 1 --sigma 1 --rules sdp --net-source committed"


@pytest.mark.parametrize(
    ("path", "reason"), [("old.sqlite", "0.32"), ("old-export", "0.32"), ("photos", "not a folder")]
)
def test_results_of_older_versions_and_other_folders_are_refused_by_every_command(folder, path, reason):
    before = sorted(map(str, pathlib.Path(path).rglob("*")))
    calls = [
        [*RUN.split(), "--database", path],
        ["report", "--database", path, "--output", "page"],
        ["report", "--leaderboard", path, "--output", "page"],
        ["export", "--database", path, "--paper", "paper"],
        ["diff", path, "good"],
        ["diff", "good", path],
        ["replay", "0123/sdp", "--database", path],
        ["replay", path, "--share", "10%"],
        ["results", "check", path],
        ["validate", "sdp", "--no-conformance", "--database", path],
    ]
    assert fallen(calls) == []
    for words in calls:
        assert reason in called(words).err, words
    with pytest.raises(UserError, match=reason) as raised:
        sdp_bench.load(path)
    assert "\n" not in str(raised.value)
    assert sorted(map(str, pathlib.Path(path).rglob("*"))) == before


def test_bad_noise_is_refused(folder):
    named = [f"{kind}:{name}" for kind in ("scales", "covariance", "residuals") for name in FILES]
    calls = [["run", "iris-tv", f"--noise={text}"] for text in (*NOISES, *named) if text not in FITTING]
    together = (
        "run iris-tv --noise stable:1.5 --sampler sobol",
        "run uci --noise laplace",
        "run iris-tv --noise uniform --sigma 1e-400",
        "run iris-tv --noise scales:1e17/1/1/1 --sigma 1e17",
        "validate sdp --no-conformance --noise covariance:wide.npy",
    )
    assert fallen([*calls, *(call.split() for call in together)], codes=(2,)) == []


@pytest.mark.parametrize(
    ("error", "code", "is_ours"),
    [
        (KeyboardInterrupt(), 130, False),
        (SystemExit("text"), 3, False),
        (OSError(errno.ENOSPC, "No space left on device"), 3, False),
        (MemoryError(), 3, False),
        (ZeroDivisionError("a mistake\nof ours"), 3, True),
        (click.UsageError("two\nlines \x1b[31m"), 2, False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_errors_have_exit_codes_and_only_mistakes_of_ours_a_traceback(monkeypatch, error, code, is_ours):
    def raising():
        raise error

    monkeypatch.setitem(cli.cli.commands, "odd", click.Command("odd", callback=raising))
    got, _, err = called(["odd"])
    assert got == code
    assert ("Traceback" in err) == is_ours
    assert "\x1b" not in err
    assert sum(line.startswith("Error: ") for line in err.splitlines()) <= 1


def test_a_reader_that_leaves_ends_the_command_without_a_word(tmp_path):
    read, write = os.pipe()
    os.close(read)
    try:
        words = [sys.executable, "-m", "sdp_bench", "--help"]
        done = subprocess.run(
            words, cwd=tmp_path, stdout=write, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_one_line(tmp_path):
    program = "cli.add_command(click.Command('odd', callback=lambda: print('x'))); main()"
    text = f"import sys, click; from sdp_bench.cli import cli, main; sys.argv = ['x', 'odd']; {program}"
    with pathlib.Path("/dev/full").open("w") as full:
        words = [sys.executable, "-c", text]
        done = subprocess.run(
            words, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 3
    assert "No space left on device" in done.stderr
    assert len(done.stderr.splitlines()) == 1
