"""Rules of a user's that end, hang, shout or rewrite what they run in: they harm their own numbers alone."""

import contextlib
import json
import sqlite3
import textwrap
from dataclasses import dataclass

import pytest
from click.testing import CliRunner

from sdp_bench.bench.errors import UserError
from sdp_bench.cli import cli

FINE, WRONG, REFUSED, FAILED = 0, 1, 2, 3
STALE = "a report of yesterday, when all was well"

SHORT = 4.0
"""Seconds that a rule gets which never comes to an end."""


@dataclass(frozen=True)
class Hostile:
    """A plug-in, and the exit codes of ``check-rule`` and ``run``.

    `top` and `body` are lines of the module and of `propagate`, which ends with the right answer. `says` is a
    part of the message.
    """

    name: str
    kit: int
    run: int
    top: str = ""
    body: str = "pass"
    says: str = ""
    memory: float | None = None
    seconds: float | None = None

    @property
    def source(self):
        return (
            f"import atexit, ctypes, os, signal, sys, threading, time\nimport torch\nimport sdp_ref\n\n"
            f"{self.top}\n\n\nclass Mine:\n    name = 'mine'\n\n    def propagate(self, net, x):\n"
            f"{textwrap.indent(self.body, ' ' * 8)}\n"
            "        return sdp_ref.rule('moment_matching').propagate(net, x)\n"
        )


DIED = "the worker process died"

AT_IMPORT = (
    Hostile("_exit(0) at import", FAILED, FAILED, top="os._exit(0)", says=DIED),
    Hostile("sys.exit(0) at import", REFUSED, REFUSED, top="sys.exit(0)", says="sys.exit(0)"),
)
WHEN_CALLED = (
    Hostile("_exit(0) when called", FAILED, FAILED, body="os._exit(0)", says=DIED),
    Hostile("segfault when called", FAILED, FAILED, body="ctypes.string_at(0)", says=DIED),
    Hostile(
        *("endless when called", FAILED, FAILED),
        body="while True: pass",
        says="stopped at the time limit",
        seconds=SHORT,
    ),
    Hostile("sys.exit(0) when called", WRONG, FAILED, body="sys.exit(0)", says="xit"),
    Hostile(
        *("memory without end", FAILED, FAILED),
        body="held = []\nwhile True:\n    held.append(bytearray(2**25)); time.sleep(.01)",
        says="stopped at the memory limit of 2 GiB",
        memory=2.0,
    ),
)
QUIET = (
    Hostile("endless at exit", FINE, FINE, top="atexit.register(time.sleep, 600)"),
    Hostile(
        *("a false verdict on standard output", FINE, FINE),
        top="os.write(1, b' ' * 10**6 + b'verdict: FALSE'); print('verdict: FALSE')",
    ),
    Hostile(
        *("another SDP", FINE, FINE),
        top="kind = type(sdp_ref.rule('sdp'))\nright = kind.prepare\n"
        "def wrong(self, net):\n    asked = right(self, net)\n"
        "    return lambda x: sdp_ref.Gaussian(asked(x).mean + 1, asked(x).covariance)\n"
        "kind.prepare = wrong",
    ),
)

ALL = (*AT_IMPORT, *WHEN_CALLED, *QUIET)
QUICK = ("_exit(0) when called", "another SDP")

RUN = ["run", "iris-tv", "--preset", "smoke", "--depth", "1", "--nets", "1", "--inputs", "1", "--sigma", "1"]
RUN += ["--samples", "4096", "--pilot-samples", "4096", "--cells", "64"]
RUN += ["--net-source", "committed", "--jobs", "1"]


def called(*arguments):
    """Exit code of a command, what it says, and its error if it has but one line to say."""
    result = CliRunner().invoke(cli, list(map(str, arguments)))
    if isinstance(result.exception, UserError):
        line = str(result.exception)
        assert line.isprintable(), line
        return result.exception.exit_code, line
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    result.output.encode()
    return result.exit_code, result.output


def numbers(database, rule):
    """What a results file has of a rule."""
    with contextlib.closing(sqlite3.connect(database)) as db:
        query = "SELECT unit, metric, component, value, floor FROM records WHERE rule = ? ORDER BY 1, 2, 3"
        return db.execute(query, (rule,)).fetchall()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with what a run without plug-ins measures."""
    folder = tmp_path_factory.mktemp("plugins")
    code, said = called(*RUN, "--rules", "sdp", "--database", folder / "clean.sqlite")
    assert code == 0, said
    assert numbers(folder / "clean.sqlite", "sdp")
    return folder


def by_kit(hostile, place):
    """What is wrong with the answer of ``check-rule``."""
    report = place / "report.json"
    report.write_text(STALE)
    code, said = called(
        *("check-rule", f"{place / 'mine.py'}:Mine", "--only", "batch", "--only", "determinism"),
        *("--json", report, *limits(hostile)),
    )
    if code != hostile.kit or (code and hostile.says not in said):
        return [f"exit code {code}: {said[-300:]}"]
    if report.exists() and json.loads(report.read_text())["passed"] is not (code == FINE):
        return ["another verdict in the report"]
    return []


def by_run(hostile, place):
    """What is wrong with what ``run`` stores."""
    database = place / "attacked.sqlite"
    database.unlink(missing_ok=True)
    options = ["--group-limit", hostile.seconds] if hostile.seconds else []
    options += ["--memory-limit", hostile.memory] if hostile.memory else []
    code, said = called(*RUN, "--rules", f"sdp,{place / 'mine.py'}:Mine", "--database", database, *options)
    wrong = []
    if code != hostile.run:
        wrong.append(f"exit code {code}: {said[-300:]}")
    if database.exists():
        if numbers(database, "sdp") != numbers(place / "clean.sqlite", "sdp"):
            wrong.append("other numbers of a built-in rule")
    elif code in (FINE, WRONG) or hostile not in AT_IMPORT:
        wrong.append("no results")
    return wrong


def limits(hostile):
    """Options of ``check-rule``."""
    options = ["--time-limit", hostile.seconds] if hostile.seconds else []
    return options + (["--memory-limit", hostile.memory] if hostile.memory else [])


def marked(hostile):
    return pytest.param(hostile, id=hostile.name, marks=() if hostile.name in QUICK else pytest.mark.slow)


@pytest.mark.parametrize("hostile", map(marked, ALL))
def test_hostile_plugins_harm_themselves_alone(place, hostile):
    for wrong_by in (by_kit, by_run):
        (place / "mine.py").write_text(hostile.source)
        assert wrong_by(hostile, place) == []
