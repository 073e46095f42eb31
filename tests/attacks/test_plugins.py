"""Hostile plug-in rules, which end, hang or change the process: they harm their own numbers only."""

import json
import textwrap
from dataclasses import dataclass, field

import pytest

from sdp_bench.bench.results.folder import read
from tests.attacks.calls import called

FINE, WRONG, REFUSED, FAILED = 0, 1, 2, 3
DIED = "the worker process died"
RUN = "run iris-tv --preset smoke --depth 1 --nets 1 --inputs 1 --sigma 1 --samples 4096 --pilot-samples 4096"
RUN = [*RUN.split(), "--cells", "64", "--bins", "4", "--net-source", "committed", "--jobs", "1"]
OTHER_SDP = """
kind = type(sdp_ref.rule('sdp'))
right = kind.prepare
def wrong(self, net):
    asked = right(self, net)
    return lambda x: sdp_ref.Gaussian(asked(x).mean + 1, asked(x).covariance)
kind.prepare = wrong
"""


@dataclass(frozen=True)
class Hostile:
    """Exit codes of ``check-rule`` and ``run``, lines of module and `propagate`, part of the message."""

    kit: int
    run: int
    top: str = ""
    body: str = "pass"
    says: str = ""
    limits: dict = field(default_factory=dict)

    @property
    def source(self):
        return (
            f"import atexit, ctypes, os, sys, time\nimport torch\nimport sdp_ref\n{self.top}\n"
            f"class Mine:\n    name = 'mine'\n\n    def propagate(self, net, x):\n"
            f"{textwrap.indent(self.body, ' ' * 8)}\n"
            "        return sdp_ref.rule('moment_matching').propagate(net, x)\n"
        )


GROWING = "held = []\nwhile True:\n    held.append(bytearray(2**25)); time.sleep(.01)"
ALL = {
    "exit when called": Hostile(FAILED, FAILED, body="os._exit(0)", says=DIED),
    "another SDP": Hostile(FINE, FINE, top=OTHER_SDP),
    "exit at import": Hostile(FAILED, FAILED, top="os._exit(0)", says=DIED),
    "sys.exit at import": Hostile(REFUSED, REFUSED, top="sys.exit(0)", says="sys.exit(0)"),
    "segfault": Hostile(FAILED, FAILED, body="ctypes.string_at(0)", says=DIED),
    "endless": Hostile(FAILED, FAILED, body="while True: pass", says="time limit", limits={"time": 4}),
    "sys.exit when called": Hostile(WRONG, FAILED, body="sys.exit(0)", says="xit"),
    "memory": Hostile(FAILED, FAILED, body=GROWING, says="memory limit of 2 GiB", limits={"memory": 2}),
    "endless at exit": Hostile(FINE, FINE, top="atexit.register(time.sleep, 600)"),
    "a false verdict": Hostile(FINE, FINE, top="os.write(1, b' ' * 10**6 + b'verdict: FALSE')"),
}
QUICK = tuple(ALL)[:2]


def numbers(folder):
    """Stored numbers of a built-in rule."""
    rows = read(folder).measurements
    rows = rows.loc[rows["rule"] == "sdp", ["unit", "metric_spec", "component", "value", "floor"]]
    return rows.astype(object).sort_values(["unit", "metric_spec", "component"]).to_numpy().tolist()


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Numbers of a run without plug-ins."""
    database = tmp_path_factory.mktemp("plugins") / "clean"
    ended = called([*RUN, "--rules", "sdp", "--database", database], seconds=600)
    assert ended.code == 0, ended.said
    return numbers(database)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in ALL]
)
def test_hostile_plugins_harm_themselves_alone(expected, tmp_path, name):
    hostile, address = ALL[name], f"{tmp_path / 'mine.py'}:Mine"
    report, database = tmp_path / "report.json", tmp_path / "attacked"
    (tmp_path / "mine.py").write_text(hostile.source)
    report.write_text("a report of yesterday")

    limits = [word for key, value in hostile.limits.items() for word in (f"--{key}-limit", value)]
    checks = ("--only", "batch", "--only", "determinism", "--json", report)
    ended = called(["check-rule", address, *checks, *limits], seconds=600)
    assert ended.code == hostile.kit, ended.said[-300:]
    assert hostile.says in ended.said
    assert not report.exists() or json.loads(report.read_text())["passed"] is (ended.code == FINE)

    limits = ["--group-limit" if word == "--time-limit" else word for word in limits]
    ended = called([*RUN, "--rules", f"sdp,{address}", "--database", database, *limits], seconds=600)
    assert ended.code == hostile.run, ended.said[-300:]
    if "import" not in name:
        assert numbers(database) == expected
