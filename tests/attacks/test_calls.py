"""Whatever the command is called with, and however it ends: the right code, one line, no traceback."""

import errno
import os
import pathlib
import subprocess
import sys

import click
import pytest

from sdp_bench import cli
from tests.attacks.calls import bad_calls, called, fallen, furnished, idle

CALLS = list(bad_calls())
PICKED = [
    line.split()
    for line in (
        "run iris-tv --executor dask --scheduler gopher://x",
        "run iris-tv --device meta",
        "run iris-tv --bins 100000",
        "run iris-tv --jobs 1000000000",
        "train cnn3 --dataset mnist --device meta",
        "oracles verify --manifests deep.json",
        "oracles record --manifests random.bin/x",
        "check --baseline deep.json",
        "check --baseline random.bin/x --update",
        "export --database good.sqlite --paper out",
        "export --database missing.sqlite --paper out",
        "import folder --database /dev/null",
        "validate sdp --output random.bin/x",
        "validate --net rule.py:MyRule --inputs shape.npy --sigma 1",
        "check-rule sdp --json random.bin/x",
    )
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with files of every wrong kind, in which nothing is worked on."""
    place = furnished(tmp_path_factory.mktemp("calls"))
    with idle(place):
        yield place


def test_a_bad_value_is_refused_before_any_work(folder):
    assert fallen(PICKED + CALLS[:: len(CALLS) // 200]) == []


@pytest.mark.slow
def test_every_bad_value_of_every_option_is_refused_before_any_work(folder):
    assert len(CALLS) >= 260
    assert fallen(CALLS) == []


# Ways to end -----------------------------------------------------------------------------------


class Odd(BaseException):
    """Nothing that anybody expects."""


@pytest.mark.parametrize(
    ("error", "code", "is_ours"),
    [
        (KeyboardInterrupt(), 130, False),
        (SystemExit("text"), 3, False),
        (Odd("odd"), 3, True),
        (OSError(errno.ENOSPC, "No space left on device"), 3, False),
        (MemoryError(), 3, False),
        (ZeroDivisionError("a mistake\nof ours"), 3, True),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 141, False),
        (click.UsageError("two\nlines \x1b[31m"), 2, False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_what_is_raised_is_told_apart_from_a_bad_verdict(monkeypatch, error, code, is_ours):
    def raising():
        raise error

    monkeypatch.setitem(cli.cli.commands, "odd", click.Command("odd", callback=raising))
    got, _, err = called(["odd"])
    assert got == code
    assert ("Traceback" in err) == is_ours
    assert "\x1b" not in err
    assert sum(line.startswith("Error: ") for line in err.splitlines()) <= 1


TINY = ("--preset", "smoke", "--depth", "1", "--rules", "sdp", "--samples", "2048", "--cells", "16")
COMMAND = [sys.executable, "-m", "sdp_bench"]


def process(*words, cwd, shell="", **rest):
    """The command as a process of its own, by way of a shell where something is set for it."""
    line = [*COMMAND, *words]
    if shell:
        line = ["bash", "-c", f'{shell}; exec "$@"', "bash", *line]
    return subprocess.run(line, cwd=cwd, stderr=subprocess.PIPE, text=True, timeout=300, check=False, **rest)


def test_a_reader_that_leaves_ends_the_command_without_a_word(tmp_path):
    read, write = os.pipe()
    os.close(read)
    try:
        done = process("--help", cwd=tmp_path, stdout=write)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize(
    "program",
    [
        "main()",
        # what code that is not ours has printed is written at the end
        "sys.argv[1] = 'odd'; cli.add_command(click.Command('odd', callback=lambda: print('x'))); main()",
    ],
)
def test_a_full_disk_is_one_line(tmp_path, program):
    text = f"import sys, click; from sdp_bench.cli import cli, main; sys.argv = ['x', '--help']; {program}"
    with pathlib.Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", text],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            check=False,
        )
    assert done.returncode == 3
    assert "No space left on device" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "shell", "codes"),
    [
        (("run", "iris-tv", *TINY, "--database", "/proc/x/y"), "", (3,)),
        (("runtime", "--preset", "smoke", "--runtime", "/proc/sdp-bench/x.csv"), "", (3,)),
        (("run", "iris-tv", "--executor", "dask", "--scheduler", "x"), "", (2, 3)),
        (("diff", "a", "b"), "export SDP_BENCH_CACHE=/dev/null HOME=/dev/null", (2,)),
    ],
)
def test_a_poor_machine_is_one_line(tmp_path, words, shell, codes):
    done = process(*words, cwd=tmp_path, shell=shell, stdout=subprocess.DEVNULL)
    assert done.returncode in codes, done.stderr
    assert "Traceback" not in done.stderr
    errors = sum(line.startswith("Error: ") for line in done.stderr.splitlines())
    assert errors == (done.returncode > 0)
