import contextlib
import io
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import sdp_bench
import sdp_ref as sr
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.executors.local import in_separate_process
from sdp_bench.bench.plugins.session import code_of
from sdp_bench.reports import frames
from tests.project import python, run_cell

RULE = """
import sdp_ref as sr
from dataclasses import dataclass

WIDER = 1.5

def widened(covariance, factor):
    return covariance * WIDER * factor

@dataclass(frozen=True)
class Wide:
    factor: float = 1.0
    name = "wide"

    def propagate(self, net, x):
        law = sr.propagate(net, x, "sdp")
        return sr.Gaussian(law.mean, widened(law.covariance, self.factor))
"""
NET = """
import torch
import torch.nn.functional as F
from torch import nn

class Net(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.first, self.last, self.act = nn.Linear(4, hidden), nn.Linear(hidden, 3), F.relu
        self.register_buffer("shift", torch.full((4,), 0.5), persistent=False)

    def forward(self, x):
        return self.last(self.act(self.first(x + self.shift)))

torch.manual_seed(0)
net = Net(6)
"""


def cell(source, space=None):
    space = {"__name__": "__main__"} if space is None else space
    with torch.random.fork_rng(devices=[]):
        run_cell(source, space)
    return space


TINY = {"samples": 4096, "w1_points": 100, "jobs": 1, "progress": False, "conformance": False}
X = torch.tensor([[0.5, -1.0, 2.0, 0.1]])


@pytest.fixture(scope="module")
def found():
    space = cell(NET, cell(RULE))
    return sdp_bench.validate(
        space["Wide"],
        net=space["net"],
        inputs=X,
        noise=0.1,
        compare_with=["sdp", sr.rule("unscented")],
        **TINY,
    )


def test_a_rule_and_a_net_of_cells_are_measured(found):
    assert list(found.frame) == list(frames.COLUMNS.index)
    assert {"wide", "sdp", "unscented"} == set(found.frame["rule"])
    assert set(found.frame["sigma"]) == {0.1}
    ratio = found.frame[found.frame["metric"] == "std_ratio"].groupby(["component", "rule"])["value"].mean()
    for component in ratio.index.get_level_values(0).unique():
        of = ratio[component]
        assert of["wide"] / of["sdp"] == pytest.approx(1.5**0.5, rel=1e-5)
    assert found.exit_code == 0
    assert not found.is_wrong


def test_it_is_shown_in_short_and_as_a_page(found):
    said = repr(found).splitlines()
    assert said[0].startswith("verdict: wide was not checked")
    assert said[-1] == f"{len(found.frame)} measurements"
    html = found._repr_html_()
    assert "1 − TV" in html
    assert "higher is better" in html


def test_what_was_validated_can_be_kept(tmp_path):
    space = cell(NET)
    kept, card = tmp_path / "v", tmp_path / "card"
    made = sdp_bench.validate(
        net=space["net"], inputs=X.numpy(), noise="laplace", sigma=[0.1], compare_with=["sdp"],
        database=kept, output=card, **TINY,
    )  # fmt: skip
    assert (card / "index.html").is_file()
    loaded = sdp_bench.load(kept)
    assert set(loaded["noise"]) == {"laplace"}
    pd.testing.assert_frame_equal(
        loaded[["rule", "value"]].astype({"rule": str}), made.frame[["rule", "value"]].astype({"rule": str})
    )


def factor_of(code):
    """Factor that a rule of `RULE` puts on the covariance of SDP, in a worker process."""
    return in_separate_process(measured_factor, code)


def measured_factor(code):
    net, x = nn.Linear(4, 2), sr.DiagonalGaussian(X, X**2)
    rule = code.load()
    law = (rule() if isinstance(rule, type) else rule).propagate(net, x)
    return float((law.covariance / sr.propagate(net, x, "sdp").covariance).mean())


def hash_of(thing):
    return code_of(thing).source


SESSION = """
import sdp_ref as sr, torch
from torch import nn
from sdp_bench.bench.plugins.session import code_of
from tests.project import run_cell
space = {"__name__": "__main__"}
run_cell(RULE, space)
run_cell(MORE, space)
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 99), nn.ReLU())
for value in (space["Wide"], space["Wide"](2.0), net, *space["THINGS"]):
    print(code_of(value).source)
"""
MORE = """
import enum, torch, typing
from functools import cached_property, lru_cache

class Kind(enum.Enum):
    LOW, HIGH = "low", "high"

class Pair(typing.NamedTuple):
    kind: Kind
    names: frozenset = frozenset({"x", "y", "z"})

T = typing.TypeVar("T")
NAMES = {"b", "a", "c"}

@lru_cache
def root(n): return root(n - 1) if n else (Pair(Kind.HIGH), NAMES, Wide, torch.arange(100))

class Generic(typing.Generic[T]):
    @cached_property
    def value(self): return [root(3), {"a", "b"}]

    @classmethod
    def made(cls, *, depth=3): return cls()

class Base:
    kinds = set()

    def __init_subclass__(cls):
        Base.kinds.add(cls)

class First(Base): pass
class Second(Base): calls = {lambda: 1, lambda: 2}

def outer(factor):
    import math
    class Inner(Generic):
        def f(self): return math.pi * factor, super().value, (lambda: {1: factor}, "a" "b")
    return Inner
THINGS = [Second, Kind, Pair(Kind.LOW), root, Generic, Generic().made, outer(2.0), outer(2.0)()]
"""


def test_the_hash_is_the_same_in_another_session():
    session, here = f"RULE, MORE = {RULE!r}, {MORE!r}\n{SESSION}", io.StringIO()
    with contextlib.redirect_stdout(here), torch.random.fork_rng(devices=[]):
        exec(session, {"__name__": "__main__"})
    assert python("-c", session, PYTHONHASHSEED="1").stdout == here.getvalue()
    hashes = here.getvalue().split()
    assert len(set(hashes)) == len(hashes) == 11


LISTED = """
class Listed:
    name = "listed"
    scales = [1.0]

    @torch.no_grad()
    def propagate(self, net, x):
        law = sr.propagate(net, x, "sdp")
        return sr.Gaussian(law.mean, widened(law.covariance, self.scales[0]))
"""
METHOD = """
def other(self, net, x):
    law = sr.propagate(net, x, "sdp")
    return sr.Gaussian(law.mean, 3.0 * law.covariance)

Listed.propagate = other
"""


@pytest.mark.parametrize(
    "change",
    [
        "WIDER = 3.0",
        "Listed.scales[0] = 3.0",
        "def other(covariance, factor):\n    return covariance * 3.0\nwidened = other",
        METHOD,
    ],
)
def test_what_is_defined_now_runs_and_has_another_hash(change):
    space = cell(LISTED, cell(f"import torch\n{RULE}"))
    before = code_of(space["Listed"])
    cell("UNUSED = 3.0\ndef unused(): return WIDER", space)
    assert code_of(space["Listed"]) == before
    cell(change, space)
    after = code_of(space["Listed"])
    assert factor_of(after) > 2.9
    assert after.source != before.source


@pytest.mark.parametrize(
    ("source", "before", "after"),
    [
        ("def thing(): return ?", "1", "2"),
        ("def thing(x=?): return x", "1", "2"),
        ("def thing(*, x=?): return x", "1", "2"),
        ("def thing(): return [i for i in ?]", "(1, 2)", "(2, 1)"),
        ("def thing(): return ?(1)", "print", "repr"),
        ("def f(a): return lambda: a\nthing = f(?)", "1", "2"),
        ("class thing:\n    x = ?", "1", "2"),
        ("class thing(?): pass", "int", "float"),
        ("class thing:\n    @property\n    def x(self): return ?", "1", "2"),
        ("import functools\nclass thing:\n    x = functools.cached_property(lambda self: ?)", "1", "2"),
        ("from dataclasses import dataclass\n@dataclass\nclass thing:\n    x: int = ?", "1", "2"),
        ("import torch\nthing = lambda: A\nA = ?", "torch.ones(99)", "torch.zeros(99)"),
        ("import torch\nthing = lambda: A\nA = ?", "torch.ones(2)", "torch.ones(2, 1)"),
        ("import torch\nthing = lambda: A\nA = ?", "torch.ones(2)", "torch.ones(2).double()"),
        ("import numpy\nthing = lambda: A\nA = ?", "numpy.ones(9)", "-numpy.ones(9)"),
        ("thing = lambda: A\nA = ?", "{1, 2}", "{1, 3}"),
        ("def thing(n): return n and g(n - 1)\ndef g(n): return thing(n) + ?", "1", "2"),
    ],
)
def test_another_definition_or_value_has_another_hash(source, before, after):
    def hash_of_thing(text):
        return hash_of(cell(text)["thing"])

    first = hash_of_thing(source.replace("?", before))
    assert hash_of_thing(f"# elsewhere\n{source.replace('?', before)}") == first
    assert hash_of_thing(source.replace("?", after)) != first


def test_modules_of_the_working_folder_travel_as_they_were_imported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    file, late = tmp_path / "sdp_factor_of_a_test.py", tmp_path / "sdp_late_of_a_test.py"
    late.write_text("FACTOR = 1.0\n")
    rule = RULE.replace(
        "return covariance", "import sdp_late_of_a_test as late; return late.FACTOR * covariance"
    )
    file.write_text(f"import sdp_ref as sr\n{rule}")
    module = __import__(file.stem)
    for name in (file.stem, late.stem):
        monkeypatch.setitem(sys.modules, name, __import__(name))
    file.unlink()
    late.unlink()
    before = code_of(module.Wide)
    assert factor_of(before) == pytest.approx(1.5)
    sys.modules[late.stem].FACTOR = 2.0
    changed = code_of(module.Wide)
    assert factor_of(changed) == pytest.approx(3.0)
    assert changed.source != before.source


def test_a_net_is_made_again_to_the_last_bit():
    net = cell(NET)["net"]
    net.shared = net.first
    made = code_of(net).load()
    assert made.shared is made.first
    assert torch.equal(made(X), net(X))


PLAIN = [float("inf"), "it's", b"\0", None, 1j, ..., (1,), {"a": [1, {2}]}, frozenset("ba")]
ODD = [complex(float("nan"), 1), torch.tensor([1 + 1j]).conj(), torch.eye(3).to_sparse()]
ARRAYS = [*ODD, np.float32(0.1), np.arange(3), torch.arange(3), torch.zeros(0, 2), torch.tensor(3.5)]
KINDS = [torch.float64, torch.bfloat16, torch.Size([2]), torch.device("cpu"), range(3), slice(2)]
MADE = [len, np.exp, torch.relu, torch.nn.functional.relu, nn.Linear, pd.Timestamp("2020-01-01"), np.linalg]


@pytest.mark.parametrize(
    "value",
    [*PLAIN, *ARRAYS, torch.ones(2).bfloat16(), *KINDS, *MADE],
    ids=lambda value: type(value).__name__,
)
def test_values_that_a_definition_uses_go_along(value):
    space = cell("def build():\n    return VALUE\n", {"__name__": "__main__", "VALUE": value})
    made = code_of(space["build"]).load()()
    assert type(made) is type(value)
    if isinstance(value, torch.Tensor):
        assert made.dtype == value.dtype
        assert torch.equal(made.to_dense(), value.to_dense())
    elif isinstance(value, np.ndarray):
        assert np.array_equal(made, value)
    else:  # NaN is not itself, and the order of a set depends on the process
        assert made == value or repr(made) == repr(value)


CLOSURE = """
def outer(factor):
    class Inner:
        def f(self):
            return factor
    return Inner
thing = outer(3.0)
"""


def test_values_of_enclosing_functions_and_lambdas_travel():
    assert code_of(cell(CLOSURE)["thing"]).load()().f() == 3
    assert code_of(cell("thing = lambda: 7")["thing"]).load()() == 7
    assert code_of(cell("exec('def thing(): return 8')")["thing"]).load()() == 8
    assert code_of(
        cell("import threading\nA = threading.RLock()\ndef thing(): return A.acquire()")["thing"]
    ).load()()


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("import sys\nA = (i for i in [])\ndef thing(): return A", "cannot pickle 'generator' object"),
        ("import torch\nDATA = torch.ones(2, device='meta')\ndef thing(): return DATA", "meta tensor"),
        ("A = []\nfor _ in range(10000): A = [A]\ndef thing(): return A", "recursion"),
    ],
)
def test_an_object_that_cannot_be_shipped_is_named_in_one_line(source, line):
    with pytest.raises(UserError, match=f"thing: it cannot be sent to a worker process .*{line}") as told:
        code_of(cell(source)["thing"])
    assert "\n" not in str(told.value)


NETLESS = {"net": nn.Linear(4, 2), "inputs": X}


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({}, "name a rule"),
        ({"rule": "nothing_known"}, "rule 'nothing_known' not found"),
        ({"rule": 3}, "a rule has a name and propagate"),
        ({"net": nn.Linear(4, 2)}, "net needs inputs"),
        ({"net": 3, "inputs": X}, "net must be an nn.Module"),
        (NETLESS, "a net needs noise levels"),
        (NETLESS | {"noise": 1, "depths": [1]}, "for the experiments' own nets"),
        (NETLESS | {"noise": "gausian", "sigma": 1}, "unknown noise 'gausian'"),
        (NETLESS | {"noise": 0.1, "sigma": 1}, "give one of them"),
        (NETLESS | {"sigma": np.array([[1.0]])}, "sigma: .*expected a number"),
        (NETLESS | {"noise": float("nan")}, "sigma: .*not a finite number"),
        (NETLESS | {"sigma": []}, "sigma: the array is empty"),
        (NETLESS | {"noise": sr.DiagonalGaussian(X, X**2)}, "one row and mean 0"),
        (NETLESS | {"noise": 1, "inputs": [[1, 2], [3]]}, "inputs must be an array"),
        (NETLESS | {"noise": 1, "inputs": X.long()}, "are whole numbers"),
        (NETLESS | {"noise": 1, "samples": 0}, "samples must be at least 100"),
        (NETLESS | {"noise": 1, "kit_limit": -1}, "kit_limit: -1.0 is not in the range"),
        ({"rule": "sdp", "output": __file__}, "output: .* is a file"),
        (NETLESS | {"noise": 1, "net_output": X}, "net_output: expected a string, not tensor"),
        ({"rule": "sdp", "conformance": "no"}, "conformance: expected true or false, not 'no'"),
    ],
)
def test_bad_input_is_reported_in_one_line(arguments, line, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=line) as told:
        sdp_bench.validate(**arguments)
    assert str(told.value).isprintable()
