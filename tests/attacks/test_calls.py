"""Whatever the command is called with, and however it ends: the right code, one line, no traceback."""

import asyncio
import errno
import os
import pathlib
import runpy
import shlex
import subprocess
import sys

import click
import hypothesis
import pytest
from hypothesis import strategies as st

from sdp_bench import cli
from sdp_bench.commands import options
from tests.attacks.calls import (
    BEGUN,
    FILES,
    GOOD,
    bad_calls,
    called,
    complaint,
    furnished,
    idle,
    leaves,
    wrong,
)

CALLS = list(bad_calls())
PICKED = [
    line.split()
    for line in (
        "run iris-tv --executor dask --scheduler tls://",
        "run iris-tv --executor dask --scheduler gopher://x",
        "run iris-tv --scheduler tcp://127.0.0.1:1",
        "run iris-tv --executor dask --scheduler tls://x:1",
        "run iris-tv --device meta",
        "run iris-tv --device cuda:99",
        "run iris-tv --bins 100000",
        "run iris-tv --samples 1",
        "run iris-tv --jobs 1000000000",
        "run iris-tv --memory-limit 0",
        "run iris-tv --group-limit nan",
        "runtime --device meta",
        "runtime --runtime random.bin/x",
        "train cnn3 --dataset mnist --device meta",
        "train cnn3 --dataset mnist --epochs 0",
        "train cnn3 --dataset mnist --minutes nan",
        "oracles verify --manifests deep.json",
        "oracles verify --manifests types.json",
        "oracles verify --manifests /dev/zero",
        "oracles show 0 --manifests nan.json",
        "oracles record --manifests random.bin/x",
        "check --baseline deep.json",
        "check --baseline latin.json",
        "check --baseline /dev/zero",
        "check --baseline random.bin/x --update",
        "export --database good.sqlite --paper random.bin/x",
        "export --database good.sqlite --paper out",
        "export --database missing.sqlite --paper out",
        "import folder --database loop",
        "import folder --database /dev/null",
        "merge good.sqlite --output random.bin/x",
        "validate sdp --output random.bin/x",
        "validate --net rule.py:MyRule --inputs shape.npy --sigma 1",
        "report --database good.sqlite --output random.bin/x",
        "check-rule sdp --json random.bin/x",
    )
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with files of every wrong kind, in which nothing is worked on."""
    place = furnished(tmp_path_factory.mktemp("calls"))
    with idle(place):
        yield place


def refused(attack, calls):
    with attack("bad calls") as tried:
        for words in calls:
            code, out, err = called(words)
            found = complaint(code, out, err, codes=(2, 3)) or (BEGUN in err and BEGUN)
            tried.tried(f"{shlex.join(words)[:150]!r}: {found}", held=not found)


def test_a_bad_value_is_refused_before_any_work(folder, attack):
    refused(attack, PICKED + CALLS[:: len(CALLS) // 300])


@pytest.mark.slow
def test_every_bad_value_of_every_option_is_refused_before_any_work(folder, attack):
    assert len(CALLS) >= 260
    refused(attack, CALLS)


@pytest.mark.parametrize("module", ["reports.results_page"])
def test_a_module_that_is_a_program_says_what_it_lacks(module, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [module])
    monkeypatch.delitem(sys.modules, f"sdp_bench.{module}", raising=False)  # which another test may have used
    with pytest.raises(SystemExit) as stop:
        runpy.run_module(f"sdp_bench.{module}", run_name="__main__")
    assert stop.value.code == 2
    assert "Missing argument" in capsys.readouterr().err


# Any call --------------------------------------------------------------------------------------

_TEXTS = st.one_of(
    st.text(max_size=20),
    st.text(st.characters(categories=["Cc", "Cs", "Cf", "Nd", "No"]), max_size=5),
    st.sampled_from(["sdp", "smoke", "iris-tv", "worst:3", "none", "cpu", "relu", "csv", "mnist", "x" * 999]),
)
_NUMBERS = st.one_of(
    st.integers().map(str),
    st.floats().map(repr),
    st.sampled_from(["1", "2", "100", "1,2", "1/2", "2%"]),
)


def values(kind):
    """Any values for a type of parameter."""
    if isinstance(kind, options.Place):  # nothing that leads out of the folder
        return st.sampled_from(FILES)
    texts = [_NUMBERS, _TEXTS, st.sampled_from(wrong(kind))]
    if isinstance(kind, click.Choice):
        texts.append(st.sampled_from(list(kind.choices)))
    return st.one_of(texts)


@st.composite
def calls(draw):
    """Any call: a command with some of its options and arguments, perhaps with what it cannot do without."""
    path, command = draw(st.sampled_from(list(leaves())))
    words = list(GOOD.get(path, ())) if draw(st.booleans()) else []
    for parameter in draw(st.lists(st.sampled_from(command.params), max_size=4)) if command.params else ():
        if getattr(parameter, "is_flag", False):
            words.append(draw(st.sampled_from([*parameter.opts, *parameter.secondary_opts])))
        elif parameter.param_type_name == "argument":
            words.append(draw(values(parameter.type)))
        else:
            words.append(f"{parameter.opts[-1]}={draw(values(parameter.type))}")
    return [*path, *words]


def any_call(attack, most):
    with attack("random calls") as tried:

        @hypothesis.settings(max_examples=most, database=None, phases=[hypothesis.Phase.generate])
        @hypothesis.given(calls())
        def one(words):
            found = complaint(*called(words))
            tried.tried(f"{words}"[:200] + f": {found}", held=not found)

        one()


def test_any_call_ends_well(folder, attack):
    any_call(attack, 40)


@pytest.mark.slow
def test_any_of_many_calls_ends_well(folder, attack):
    any_call(attack, 1000)


# Ways to end -----------------------------------------------------------------------------------


class Odd(BaseException):
    """Nothing that anybody expects."""


@pytest.mark.parametrize(
    ("error", "code", "is_ours"),
    [
        (KeyboardInterrupt(), 130, False),
        (click.Abort(), 130, False),
        (EOFError("the end"), 3, True),
        (SystemExit(None), 3, False),
        (SystemExit("text"), 3, False),
        (SystemExit(True), 3, False),
        (Odd("odd"), 3, True),
        (GeneratorExit(), 3, True),
        (asyncio.CancelledError(), 3, True),
        (OSError(errno.ENOSPC, "No space left on device"), 3, False),
        (OSError(errno.EMFILE, "Too many open files"), 3, False),
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
        (("list",), "ulimit -n 20", (0, 3)),
        (("run", "iris-tv", *TINY), "ulimit -n 20", (3,)),
        (("run", "iris-tv", *TINY, "--database", "/proc/x/y"), "", (3,)),
        (("report", "--output", "/proc/sdp-bench/x"), "", (3,)),
        (("runtime", "--preset", "smoke", "--runtime", "/proc/sdp-bench/x.csv"), "", (3,)),
        (("run", "iris-tv", "--executor", "dask", "--scheduler", "tls://"), "", (2,)),
        (("run", "iris-tv", "--executor", "dask", "--scheduler", "tcp://"), "", (2, 3)),
        (("run", "iris-tv", "--executor", "dask", "--scheduler", "x"), "", (2, 3)),
        (("cache", "list"), "unset HOME SDP_BENCH_CACHE", (0,)),
        (("list",), "mkdir gone; cd gone; rmdir ../gone", (0, 3)),
        (("list",), "exec >&-", (0, 3)),
        (("nonsense",), "exec 2>&-", (2,)),
        (("diff", "a", "b"), "export SDP_BENCH_CACHE=/dev/null HOME=/dev/null", (2,)),
    ],
)
def test_a_poor_machine_is_one_line(tmp_path, words, shell, codes):
    done = process(*words, cwd=tmp_path, shell=shell, stdout=subprocess.DEVNULL)
    assert done.returncode in codes, done.stderr
    assert "Traceback" not in done.stderr
    errors = sum(line.startswith("Error: ") for line in done.stderr.splitlines())
    assert errors == (done.returncode > 0 and "2>" not in shell)
