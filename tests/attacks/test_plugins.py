"""Rules of a user's that end, hang, shout or rewrite what they run in: they harm their own numbers alone."""

import contextlib
import json
import sqlite3
import textwrap
from dataclasses import dataclass
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.gate.cells import Scope
from sdp_bench.cli import cli
from tests.bench.gate.gate_rules import few_cells, write_rule

FINE, WRONG, REFUSED, FAILED = 0, 1, 2, 3
STALE = "<testsuites><!-- of yesterday, when all was well --></testsuites>"

SHORT = 4.0
"""Seconds that a rule gets which never comes to an end."""


@dataclass(frozen=True)
class Hostile:
    """A plug-in, and the exit codes that it must lead to.

    Attributes
    ----------
    name : str
    kit, gate, run : int
        Exit codes of ``check-rule``, ``check`` and ``run``.
    top, init, body : str
        Lines of the module, of ``__init__``, and of `propagate`, which ends with the right answer.
    declared : str
        Lines of the class; the rule's name by default.
    says : str
        Part of what a user is told, where a command fails.
    options : tuple of str
        Of the first two commands.
    seconds : float or None
        Limit of time.
    """

    name: str
    kit: int
    gate: int
    run: int
    top: str = ""
    init: str = "pass"
    body: str = "pass"
    declared: str = "name = 'mine'"
    says: str = ""
    memory: float | None = None
    seconds: float | None = None

    @property
    def source(self):
        """Of its module."""
        inner = textwrap.indent(self.declared, "    ")
        init, body = (textwrap.indent(each, " " * 8) for each in (self.init, self.body))
        return (
            f"import atexit, ctypes, os, signal, sys, threading, time\nimport torch\nimport sdp_ref\n\n"
            f"{self.top}\n\n\nclass Mine:\n{inner}\n\n    def __init__(self):\n{init}\n\n"
            f"    def propagate(self, net, x):\n{body}\n"
            "        return sdp_ref.rule('moment_matching').propagate(net, x)\n"
        )


def prop(name, line):
    """A property that does something when it is read."""
    return f"name = 'mine'\n\n@property\ndef {name}(self):\n    {line}"


LOOP, CRASH = "while True: pass", "ctypes.string_at(0)"
DIED, SLOW = "the worker process died", "stopped at the time limit"
ENDS = "which ends a process"

AT_IMPORT = (
    Hostile("_exit(0) at import", FAILED, FAILED, FAILED, top="os._exit(0)", says=DIED),
    Hostile("segfault at import", FAILED, FAILED, FAILED, top=CRASH, says=DIED),
    Hostile("endless import", FAILED, FAILED, FAILED, top=LOOP, says=SLOW, seconds=SHORT),
    Hostile("sys.exit(0) at import", REFUSED, REFUSED, REFUSED, top="sys.exit(0)", says="sys.exit(0)"),
    Hostile("interrupt at import", FAILED, FAILED, FAILED, top="raise KeyboardInterrupt", says=ENDS),
    Hostile("GeneratorExit at import", FAILED, FAILED, FAILED, top="raise GeneratorExit", says=ENDS),
    Hostile(
        "surrogate in an import's error",
        *(REFUSED, REFUSED, REFUSED),
        top=r"raise ValueError('\ud800\x00')",
        says=r"ValueError: \ud800\x00",
    ),
    Hostile("_exit(0) in __init__", FAILED, FAILED, FAILED, init="os._exit(0)", says=DIED),
    Hostile("endless __init__", FAILED, FAILED, FAILED, init=LOOP, says=SLOW, seconds=SHORT),
    Hostile("_exit(0) by its name", FAILED, FAILED, FAILED, declared=prop("name", "os._exit(0)"), says=DIED),
    Hostile("endless name", *(FAILED, FAILED, FAILED), declared=prop("name", LOOP), says=SLOW, seconds=SHORT),
    Hostile("segfault by its spec", FAILED, FAILED, FAILED, declared=prop("spec", CRASH), says=DIED),
    Hostile("surrogate in its name", *(REFUSED,) * 3, declared=r"name = 'mi\ud800ne'", says=r"'mi\ud800ne'"),
    Hostile(
        "surrogate in its spec", *(REFUSED,) * 3, declared="name = 'm'\nspec = 'm:a=\\ud800'", says=r"\ud800"
    ),
    Hostile(
        "name of a class of its own",
        *(FAILED,) * 3,
        top="class Text(str):\n    def __str__(self): return self",
        declared="name = Text('mine')",
        says="its answer cannot be read",
    ),
)

ASKED = (
    Hostile("_exit(0) when asked", FAILED, FAILED, FAILED, body="os._exit(0)", says=DIED),
    Hostile("segfault when asked", FAILED, FAILED, FAILED, body=CRASH, says=DIED),
    Hostile("endless when asked", FAILED, FAILED, FAILED, body=LOOP, says=SLOW, seconds=SHORT),
    Hostile("sys.exit(0) when asked", WRONG, FAILED, FAILED, body="sys.exit(0)", says="xit"),
    Hostile("interrupt when asked", FAILED, FAILED, FAILED, body="raise KeyboardInterrupt", says=ENDS),
    Hostile("GeneratorExit when asked", FAILED, FAILED, FAILED, body="raise GeneratorExit", says=ENDS),
    Hostile(
        "BaseException of its own",
        *(FAILED,) * 3,
        top="class End(BaseException): pass",
        body=r"raise End('\ud800')",
        says=r"End: \ud800",
    ),
    Hostile(
        "surrogate in an error",
        *(WRONG, FAILED, FAILED),
        body=r"raise ValueError('\ud800\x00\x1b[31m')",
        says=r"\ud800\x00\x1b[31m",
    ),
    Hostile(
        "escape in the kind of an error",
        *(WRONG, FAILED, FAILED),
        body=r"raise type('E\x1b', (Exception,), {})('no')",
        says=r"E\x1b",
    ),
    Hostile(
        "error that cannot be read",
        *(WRONG, FAILED, FAILED),
        top="class Mute(Exception):\n    def __str__(self): raise ValueError('no')",
        body="raise Mute",
        says="its message cannot be read",
    ),
    Hostile(
        "error of ten megabytes", WRONG, FAILED, FAILED, body="raise ValueError('no ' * 4_000_000)", says="no"
    ),
    Hostile(
        "error that cannot be sent",
        *(WRONG, FAILED, FAILED),
        top="class Odd(Exception):\n    def __reduce__(self): os._exit(0)",
        body="raise Odd('no')",
        says="Odd: no",
    ),
    Hostile(
        "refusal with a surrogate",
        *(WRONG, FAILED, FINE),
        body=r"raise sdp_ref.UnsupportedError('mine', 'a\ud800\x07')",
        says=r"a\ud800\x07",
    ),
    Hostile(
        "recursion without end",
        *(FAILED,) * 3,
        top="sys.setrecursionlimit(10**9)\n"
        "class Deep:\n    def __getattr__(self, n): return repr(self)\n    __repr__ = lambda s: '%r' % s",
        body="repr(Deep())",
        says=DIED,
    ),
    Hostile("all pipes closed", *(FAILED,) * 3, body="os.closerange(0, 4096); os._exit(0)", says=DIED),
    Hostile(
        "memory without end",
        *(FAILED,) * 3,
        body="held = []\nwhile True:\n    held.append(bytearray(2**25)); time.sleep(.01)",
        says="stopped at the memory limit of 2 GiB",
        memory=2.0,
    ),
)

QUIET = (
    Hostile("_exit(0) at exit", FINE, FINE, FINE, top="atexit.register(os._exit, 0)"),
    Hostile("endless at exit", FINE, FINE, FINE, top="atexit.register(time.sleep, 600)"),
    Hostile(
        "thread without end", FINE, FINE, FINE, top="threading.Thread(target=time.sleep, args=(600,)).start()"
    ),
    Hostile(
        "deaf to signals",
        *(FINE,) * 3,
        top="for s in (signal.SIGTERM, signal.SIGINT): signal.signal(s, signal.SIG_IGN)",
    ),
    Hostile(
        "traits that no file takes",
        *(FINE,) * 3,
        declared="name = 'mine'\nlabel = '\\ud800'\ncolour = '\\x00'\nrank = 10**40\nsampling = -10**40",
    ),
    Hostile("_exit(0) by its traits", FINE, FINE, FINE, declared=prop("label", "os._exit(0)")),
    Hostile(
        "closed outputs",
        *(FINE,) * 3,
        top="sys.stdout.close(); sys.stderr.close(); sys.stdout = sys.stderr = None; os.closerange(1, 3)",
    ),
    Hostile(
        "a false verdict on standard output",
        *(FINE,) * 3,
        top="os.write(1, b' ' * 10**6 + b'verdict: FALSE'); print('verdict: FALSE')",
    ),
    Hostile("elsewhere", FINE, FINE, FINE, top="os.chdir('/'); os.environ.clear()"),
    Hostile(
        "another state of torch",
        *(FINE,) * 3,
        body="torch.manual_seed(1); torch.set_num_threads(3); torch.set_grad_enabled(False)",
    ),
    Hostile(
        "another default dtype",
        *(FINE,) * 3,
        top="torch.set_default_dtype(torch.float64); torch.use_deterministic_algorithms(True)",
    ),
    Hostile(
        "a child of its own",
        *(FINE,) * 3,
        top="if os.fork() == 0:\n    time.sleep(5)\n    os._exit(0)",
    ),
    Hostile("a killed fork server", FINE, FINE, FINE, body="os.kill(os.getppid(), signal.SIGKILL)"),
)

PATCHES = (
    Hostile(
        "another SDP",
        *(FINE,) * 3,
        top="kind = type(sdp_ref.rule('sdp'))\nright = kind.prepare\n"
        "def wrong(self, net):\n    asked = right(self, net)\n"
        "    return lambda x: sdp_ref.Gaussian(asked(x).mean + 1, asked(x).covariance)\n"
        "kind.prepare = wrong",
    ),
    Hostile(
        "another arithmetic",
        *(FINE, FINE, FAILED),
        top="import numpy as np\nright = np.histogramdd, np.quantile\n"
        "np.sort = np.partition = np.searchsorted = np.bincount = lambda *_, **__: np.zeros(3, int)",
    ),
    Hostile(
        "another total variation",
        *(FINE,) * 3,
        top="from sdp_bench.bench.metrics import total_variation\n"
        "for kind in vars(total_variation).values():\n"
        "    if hasattr(kind, 'measure'): kind.measure = lambda *_: []",
    ),
    Hostile(
        "a gate that passes",
        *(FINE, WRONG, FINE),
        top="from sdp_bench.bench.gate import accuracy, answers, verdict\n"
        "accuracy.drift = answers.drift = lambda *_: answers.Drift(0.0, 0.0)\n"
        "verdict.exit_code = lambda *_: 0",
        body="law = sdp_ref.rule('moment_matching').propagate(net, x)\n"
        "if x.batch > 0 and net[0].in_features == 4 and len(net) == 3 and net[0].out_features == 100:\n"
        "    return sdp_ref.Gaussian(law.mean, 1.05 * law.covariance)",
        says="changed",
    ),
    Hostile(
        "a store without other rules",
        *(FINE,) * 3,
        top="from sdp_bench.bench.results.store import Store\nStore.write_group = lambda *_: None\n"
        "from sdp_bench.bench.runs import group\ngroup.store_result = lambda *_: None",
    ),
    Hostile(
        "clocks that stand",
        FINE,
        FINE,
        FINE,
        top="time.perf_counter = time.time = lambda: 1.0",
    ),
)

ALL = (*AT_IMPORT, *ASKED, *QUIET, *PATCHES)
QUICK = ("_exit(0) at import", "_exit(0) when asked", "surrogate in an error", "another SDP")

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
    """A folder with the baseline of a rule that is right, and what a run without plug-ins measures."""
    folder = tmp_path_factory.mktemp("plugins")
    scope = few_cells(inputs=1)
    file, baseline = folder / "mine.py", folder / "ci.json"
    write_rule(file)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Scope, "of_ci", lambda: scope)
        code, said = called(
            *("check", "--baseline", baseline, "--rules", f"{file}:Mine,sdp", "--update", "--no-speed")
        )
        assert code == 0, said
        code, said = called(*RUN, "--rules", "sdp", "--database", folder / "clean.sqlite")
        assert code == 0, said
        assert numbers(folder / "clean.sqlite", "sdp")
        yield folder


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


def by_gate(hostile, place):
    """What is wrong with the answer of ``check``."""
    junit, plain = place / "junit.xml", place / "check.json"
    junit.write_text(STALE)
    plain.write_text(STALE)
    code, said = called(
        *("check", "--baseline", place / "ci.json", "--rules", f"{place / 'mine.py'}:Mine,sdp"),
        *("--no-oracles", "--no-speed", "--junit", junit, "--json", plain, *limits(hostile)),
    )
    wrong = []
    if code != hostile.gate or (code and hostile.says not in said):
        wrong.append(f"exit code {code}: {said[-300:]}")
    if "FALSE" in said:
        wrong.append("its words stand among the gate's")
    if plain.exists() and json.loads(plain.read_text())["exit code"] != code:
        wrong.append("another exit code in the file")
    if junit.exists():
        suites = ElementTree.parse(junit).getroot()
        bad = sum(int(suite.get("failures")) + int(suite.get("errors")) for suite in suites)
        if not len(suites) or bool(bad) is (code == FINE):
            wrong.append("another verdict in the JUnit file")
    return wrong


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
    """Options of the first two commands."""
    options = ["--time-limit", hostile.seconds] if hostile.seconds else []
    return options + (["--memory-limit", hostile.memory] if hostile.memory else [])


COMMANDS = {"check-rule": by_kit, "check": by_gate, "run": by_run}


def tried(counted, hostile, place, commands=COMMANDS):
    """Let a plug-in loose on commands."""
    for command, wrong_by in commands.items():
        (place / "mine.py").write_text(hostile.source)
        wrong = wrong_by(hostile, place)
        counted.tried(f"{hostile.name}, {command}: {'; '.join(wrong)}", held=not wrong)


def test_a_few_hostile_plugins_harm_themselves_alone(attack, place):
    with attack("hostile plug-ins, a few") as counted:
        for hostile in ALL:
            if hostile.name in QUICK:
                tried(counted, hostile, place)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [AT_IMPORT, ASKED, QUIET, PATCHES], ids=["load", "asked", "quiet", "patch"])
def test_hostile_plugins_harm_themselves_alone(attack, place, kind):
    with attack("hostile plug-ins") as counted:
        for hostile in kind:
            tried(counted, hostile, place)
