"""Calls of the command, made from its own tree of commands: each option with values of every wrong kind."""

import contextlib
import io
import shlex
import signal
import sqlite3
import sys
from typing import NamedTuple

import click
import pytest

from sdp_bench import cli, values
from tests.bench.results.made_up import finished, plan

SMALL_RUN = (
    "iris-std",
    "--preset",
    "smoke",
    "--depth",
    "1",
    "--inputs",
    "2",
    "--rules",
    "sdp,unscented",
    "--samples",
    "1024",
    "--pilot-samples",
    "1024",
    "--cells",
    "16",
)
"""Experiment and options of a run that takes seconds."""
SECONDS = 60
"""No refusal takes as long."""


def leaves(command=cli.cli, path=()):
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from leaves(each, (*path, name))
    else:
        yield path, command


def resolved(words):
    """The command that words name, and the words after it."""
    command, words = cli.cli, [*map(str, words)]
    while isinstance(command, click.Group):
        _, command, words = command.resolve_command(click.Context(command), words)
    return command, words


def parsed(words):
    """Parse a call as click does, without running it."""
    command, rest = resolved(words)
    return command.make_context(command.name, rest)


def furnished(folder):
    """Fill a folder with files that are not what they should be; returns it."""
    (folder / "random.bin").write_bytes(bytes(range(256)) * 20)
    (folder / "deep.json").write_text("[" * 100_000)
    (folder / "text.csv").write_text("a,b\n1,2\n")
    (folder / "rule.py").write_text("class MyRule: pass\n")
    (folder / "binary.py").write_bytes(b"\xff\xfe\x00")
    (folder / "shape.npy").write_bytes(
        b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999, 9)}".ljust(128)
    )
    (folder / "folder").mkdir()
    (folder / "folder.py").mkdir()
    (folder / "loop").symlink_to("loop")
    finished(folder / "good", plan())
    (folder / "photos").mkdir()
    (folder / "photos" / "1.jpg").write_bytes(b"")
    (folder / "old-export").mkdir()
    (folder / "old-export" / "records.csv").write_text("unit,rule,metric,value\n")
    with contextlib.closing(sqlite3.connect(folder / "old.sqlite")) as db, db:
        db.execute("CREATE TABLE records (unit TEXT)")
    return folder


_HUGE = "9" * 5000
_NO_NUMBERS = ("", "x", "²", "0x10", "1,,2", "nan", "1e400")
_NO_TEXTS = ("", " ", "\x1b[31m", "\udcff", "no-such-thing")
_BAD = {
    values.Choice: ("", "no-such-thing", "\x1b[31m"),
    values.Shard: ("1/²", "0/1", "2/1", f"1/{_HUGE}", "", "/", "1/2/3", "-1/2"),
    values.Share: ("0", "-1%", "101%", "inf", *_NO_NUMBERS[:6]),
    values.RuleSpecs: (
        *_NO_TEXTS,
        "missing.py:X",
        "binary.py:X",
        "folder.py:X",
        "rule.py:MyRule",
        "rule.py:",
        "sdp:x=1",
        "sys:exit",
        "monte_carlo:samples=0",
        "monte_carlo:samples=nan",
        ":X",
        "monte_carlo:samples={10,x}",
    ),
    values.Real: (*_NO_NUMBERS, "inf", "-inf", "9" * 400),
    values.Whole: (*_NO_NUMBERS, "1.5", "inf", _HUGE, str(2**63)),
    values.Word: (*_NO_TEXTS, "x" * 300),
}


def wrong(kind):
    """Values that a parameter of this kind cannot have."""
    if isinstance(kind, values.ListOf) and not isinstance(kind, values.RuleSpecs):
        return (*wrong(kind.item), ",", "1,")
    if isinstance(kind, values.Location):
        return ("", "x" * 300, "loop", "nul\0", "new\nline", "text.csv" if kind.is_folder else "folder")
    bad = next(texts for known, texts in _BAD.items() if isinstance(kind, known))
    least, most = getattr(kind, "low", None), getattr(kind, "high", None)
    if least is not None or most is not None:
        bad += ("-1",) if least is None or least >= 0 else ()
        bad += ("0",) if least is None or least > 0 or getattr(kind, "is_open", False) else ()
        bad += (str(int(most) * 10),) if most is not None else ()
    return bad


GOOD = {
    ("run",): ("iris-tv",),
    ("check",): ("--baseline", "good.json"),
    ("export",): ("--database", "good", "--paper", "out"),
    ("replay",): ("0123/sdp", "--database", "good"),
    ("diff",): ("good", "good"),
    ("results", "check"): ("good",),
    ("recipes",): ("--output", "recipes.csv"),
    ("train",): ("cnn3", "--dataset", "mnist"),
    ("check-rule",): ("sdp",),
    ("validate",): ("sdp", "--no-conformance"),
    ("report",): ("--database", "good"),
}
"""What each command cannot be called without."""


def words_of(path, command, parameter, value):
    """Call of a command that is fine but for one value."""
    rest = list(GOOD.get(path, ()))
    if parameter.param_type_name == "argument":
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        place = arguments.index(parameter)
        rest[place : place + 1] = []
        places = [rest[i : i + 1] for i in range(len(arguments) - 1)]
        named = rest[len(arguments) - 1 :]
        values = [*places[:place], [value], *places[place:]]
        return [*path, *named, "--", *(word for each in values for word in each)]
    for name in parameter.opts:
        if name in rest:
            del rest[rest.index(name) : rest.index(name) + 2]
    return [*path, *rest, f"{parameter.opts[-1]}={value}"]


def bad_calls():
    for path, command in leaves():
        for parameter in command.params:
            if not getattr(parameter, "is_flag", False):
                for value in wrong(parameter.type.kind):
                    yield words_of(path, command, parameter, value)


class Ended(NamedTuple):
    code: object
    out: str
    err: str

    @property
    def said(self):
        return self.out + self.err


def called(words, seconds=SECONDS):
    """Call the command in this process; a call that hangs ends with a traceback."""

    def hangs(*_):
        raise TimeoutError(f"more than {seconds} s")

    out, err = io.StringIO(), io.StringIO()
    before, interrupts = signal.signal(signal.SIGALRM, hangs), signal.getsignal(signal.SIGINT)
    signal.alarm(seconds)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["sdp-bench", *map(str, words)])
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    cli.main()
                except SystemExit as stop:
                    return Ended(stop.code, out.getvalue(), err.getvalue())
                except BaseException as error:
                    return Ended(f"{type(error).__name__} came through", out.getvalue(), err.getvalue())
        return Ended("no exit", out.getvalue(), err.getvalue())
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        signal.signal(signal.SIGINT, interrupts)


def command(*words, cwd):
    """Call the command in a folder."""
    with contextlib.chdir(cwd):
        return called(words, seconds=600)


def fallen(calls, codes=(2, 3)):
    """Calls that were not refused in one line, and what they did."""
    found = []
    for words in calls:
        code, out, err = called(words)
        if wrong := complaint(code, out, err, codes):
            found.append(f"{shlex.join(words)[:150]!r}: {wrong}")
    return found


def complaint(code, out, err, codes=(0, 2, 3)):
    """What is wrong with the end of a call; empty if nothing is."""
    if code not in codes:
        return f"exit code {code}: {err[-200:]}"
    if "Traceback" in out + err:
        return f"a traceback: {err[-200:]}"
    if any((ord(each) < 32 and each not in "\n\t") or "\ud800" <= each <= "\udfff" for each in out + err):
        return "a control character"
    if code in (2, 3):
        notices = ("Usage: ", "Try ", " ", "--jobs ")  # the last says that there are fewer cores
        said = [line for line in err.splitlines() if line and not line.startswith(notices)]
        if len(said) != 1 or not said[0].startswith("Error: ") or len(said[0]) > 1100:
            return f"not one line: {said[:3]}"
    return ""
