import functools
import json
import shutil
import sys

import pytest
import torch

import sdp_ref as sr
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.executors.local import LocalProcesses, in_separate_process
from sdp_bench.bench.experiments import versions
from sdp_bench.bench.nets.own import net as own
from sdp_bench.bench.plugins.plugin import Plugin
from sdp_bench.bench.rules import find

RULE = """
import json
import sdp_ref as sr
import torch
from helper import SCALE


class Scaled:
    name = "scaled"

    def propagate(self, net, x):
        from tools.late import shift

        law = sr.propagate(net, x, "sdp")
        return sr.Gaussian(law.mean + shift(), SCALE * law.covariance)
"""


def write(folder, scale=2.0, shift=1.0):
    """A rule with a module beside it, a package, and what it does not import."""
    (folder / "tools").mkdir(parents=True)
    (folder / "rule.py").write_text(RULE)
    (folder / "helper.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n\n\n"
        f"@dataclass\nclass Holder:\n    value: float = {scale}\n\n\nSCALE = Holder().value\n"
    )
    (folder / "tools" / "__init__.py").write_text("from . import numbers as _\n")
    (folder / "tools" / "numbers.py").write_text(f"SHIFT = {shift}\n")
    (folder / "tools" / "late.py").write_text("def shift():\n from .numbers import SHIFT\n return SHIFT\n")
    (folder / "json.py").write_text("1 / 0\n")
    (folder / "torch").mkdir()
    (folder / "unused.py").write_text("1 / 0\n")
    return f"{folder / 'rule.py'}:Scaled"


def laws(rule):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    x = sr.DiagonalGaussian(torch.zeros(1, 4), torch.ones(1, 4))
    return rule.propagate(net, x), sr.propagate(net, x, "sdp")


def effect(rule):
    """Factor and shift that a rule of :func:`write` makes of SDP."""
    law, plain = laws(rule)
    return float((law.covariance / plain.covariance).mean()), float((law.mean - plain.mean).mean())


def effect_of(plugin):
    return effect(plugin.load())


def module_names(plugin):
    plugin.load()
    return [
        name for name in ("helper", "tools", "tools.late", "tools.numbers", "unused") if name in sys.modules
    ]


def test_what_is_imported_travels_and_no_more(tmp_path):
    assert in_separate_process(module_names, find(write(tmp_path))) == [
        "helper",
        "tools",
        "tools.late",
        "tools.numbers",
    ]
    assert not list(tmp_path.rglob("__pycache__"))


def test_a_change_of_any_of_them_is_another_version(tmp_path):
    address = write(tmp_path)
    before = find(address)
    assert find(address) == before
    plugins = [before]
    for path in ("rule.py", "helper.py", "tools/__init__.py", "tools/late.py", "tools/numbers.py"):
        with (tmp_path / path).open("a") as file:
            file.write("\nX = 1\n")
        plugins.append(find(address))
    marks = [versions.of_measurement("scaled", "bures", [plugin]) for plugin in plugins]
    assert len(set(marks)) == len(plugins)
    (tmp_path / "unused.py").write_text("2 / 0\n")
    assert find(address).version == plugins[-1].version


def test_a_version_is_that_of_the_files_wherever_they_are(tmp_path):
    """Versions of stored measurements, made on another machine and by an earlier release."""
    folders = [tmp_path / "a", tmp_path / "b" / "c"]
    assert {find(write(folder)).version for folder in folders} == {"35721f5d7b9173f0"}


def test_two_rules_each_have_a_helper(tmp_path, monkeypatch):
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "helper.py").write_text("SCALE = 100.0\n")
    monkeypatch.syspath_prepend(str(tmp_path / "c"))
    elsewhere, before = __import__("helper"), list(sys.path)
    try:
        first = find(write(tmp_path / "a", scale=2.0, shift=1.0))
        second = find(write(tmp_path / "b", scale=5.0, shift=-1.0))
        for _ in range(2):  # each imports its own modules, also when it is called
            assert effect_of(first) == pytest.approx((2.0, 1.0), rel=1e-5)
            assert effect_of(second) == pytest.approx((5.0, -1.0), rel=1e-5)
        assert elsewhere.SCALE == 100
        assert sys.path == before
    finally:
        for name in ("helper", "tools", "tools.late", "tools.numbers"):
            sys.modules.pop(name, None)


def test_a_change_is_seen_in_one_process(tmp_path):
    address = write(tmp_path)
    assert effect_of(find(address))[0] == pytest.approx(2, rel=1e-5)
    (tmp_path / "helper.py").write_text("SCALE = 7.0\n")
    assert effect_of(find(address))[0] == pytest.approx(7, rel=1e-5)


def test_a_module_that_fails_or_cannot_be_read_is_one_line(tmp_path):
    address = write(tmp_path)
    (tmp_path / "helper.py").write_text("1 / 0\n")
    with pytest.raises(UserError, match=r"cannot load .*: ZeroDivisionError"):
        find(address)
    (tmp_path / "helper.py").write_bytes(b"SCALE = '\xff'\n")
    with pytest.raises(UserError, match="cannot read a module that it imports: "):
        find(address)


def test_a_file_may_have_the_name_of_an_installed_module(tmp_path):
    write(tmp_path)
    (tmp_path / "torch").rmdir()
    (tmp_path / "rule.py").rename(tmp_path / "torch.py")
    plugin = find(f"{tmp_path / 'torch.py'}:Scaled")
    assert effect_of(plugin) == pytest.approx((2.0, 1.0), rel=1e-5)


def test_a_users_folder_may_hold_installed_packages(tmp_path, monkeypatch):
    """As after ``pip install --target .``: files that no package has recorded are the user's."""
    write(tmp_path)
    metadata = tmp_path / "theirs-1.dist-info"
    metadata.mkdir()
    (metadata / "RECORD").write_text("theirs/__init__.py,,\ntheirs-1.dist-info/RECORD,,\n")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "__init__.py").write_text("X = 1\n")
    (tmp_path / "rule.py").write_text(f"import theirs\n{(tmp_path / 'rule.py').read_text()}")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        plugin = find(f"{tmp_path / 'rule.py'}:Scaled")
        assert effect_of(plugin) == pytest.approx((2.0, 1.0), rel=1e-5)
        (tmp_path / "theirs" / "__init__.py").write_text("X = 2\n")
        assert find(f"{tmp_path / 'rule.py'}:Scaled").version == plugin.version
        (tmp_path / "helper.py").write_text("SCALE = 7.0\n")
        assert effect_of(find(f"{tmp_path / 'rule.py'}:Scaled"))[0] == pytest.approx(7, rel=1e-5)
    finally:
        sys.modules.pop("theirs", None)


def test_loading_many_rules_leaves_no_finders_behind(tmp_path):
    plugins = [find(write(tmp_path / name)) for name in "abc"]
    effect_of(plugins[0])
    before = len(sys.meta_path)
    for plugin in plugins:
        assert effect_of(plugin) == pytest.approx((2.0, 1.0), rel=1e-5)
    assert len(sys.meta_path) == before


def package(folder):
    """A package whose rule is exported at its top, with siblings there and a package of the same rank."""
    (folder / "theirs_pkg" / "sub").mkdir(parents=True)
    (folder / "theirs_pkg" / "__init__.py").write_text("from .sub.rule import Scaled\n")
    (folder / "theirs_pkg" / "scale.py").write_text("SCALE = 4.0\n")
    (folder / "theirs_pkg" / "other.py").write_text("1 / 0\n")
    (folder / "theirs_pkg" / "sub" / "rule.py").write_text(
        RULE.replace("from helper", "from ..scale").replace("from tools.late", "from theirs_late")
    )
    (folder / "theirs_late.py").write_text("def shift():\n    return 2.0\n")


@pytest.mark.parametrize("location", ["theirs_pkg.sub.rule", "theirs_pkg"])
def test_modules_of_a_package(tmp_path, monkeypatch, location):
    package(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    plugin = find(f"{location}:Scaled")
    (tmp_path / "theirs_late.py").write_text("def shift():\n    return 3.0\n")
    assert find(f"{location}:Scaled").version != plugin.version
    shutil.rmtree(tmp_path / "theirs_pkg")
    (tmp_path / "theirs_late.py").unlink()
    with LocalProcesses(1, 1) as executor:
        assert executor.submit(effect_of, plugin).result() == pytest.approx((4.0, 2.0), rel=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_workers_of_dask_get_a_rule_with_its_modules(tmp_path):
    """One worker runs two rules that have modules of the same names; the files are gone."""
    dask = pytest.importorskip("sdp_bench.bench.executors.dask")
    pytest.importorskip("distributed")
    rules = [find(write(tmp_path / name, scale=scale)) for name, scale in (("a", 2.0), ("b", 5.0))]
    shutil.rmtree(tmp_path / "a")
    shutil.rmtree(tmp_path / "b")
    with dask.DaskWorkers(None, 1, 1) as executor:
        for _ in range(2):
            effects = [executor.submit(effect_of, rule).result() for rule in rules]
            assert effects == [pytest.approx((2.0, 1.0), rel=1e-5), pytest.approx((5.0, 1.0), rel=1e-5)]


def test_modules_of_an_own_net_count_and_are_shipped(tmp_path):
    import numpy as np

    (tmp_path / "width.py").write_text("WIDTH = 6\n")
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\n\ndef build():\n    from width import WIDTH\n\n"
        "    return nn.Sequential(nn.Linear(2, WIDTH), nn.Linear(WIDTH, 1))\n"
    )
    np.save(tmp_path / "x.npy", np.ones((1, 2)))
    find_net = functools.partial(own.find, f"{tmp_path / 'net.py'}:build", tmp_path / "x.npy")
    net = find_net()
    (tmp_path / "width.py").write_text("WIDTH = 6  # units\n")
    assert find_net().digest != net.digest
    (tmp_path / "width.py").unlink()
    assert in_separate_process(width_of, net) == (1, 1)


def width_of(net):
    return tuple(net.build()(torch.ones(1, 2)).shape)


def test_a_rule_finds_the_data_in_its_folder(tmp_path):
    (tmp_path / "factor.txt").write_text("5.0")
    address = write(tmp_path, shift=0.0)
    (tmp_path / "helper.py").write_text(
        "from pathlib import Path\n\nSCALE = float((Path(__file__).parent / 'factor.txt').read_text())\n"
    )
    assert in_separate_process(effect_of, find(address)) == pytest.approx((5.0, 0.0), rel=1e-5, abs=1e-6)


ODD = """
import functools
import threading
from enum import Enum
from functools import cached_property, lru_cache, singledispatch
from typing import NamedTuple

import sdp_ref as sr
import torch

from . import neighbour

LOCK = threading.Lock()
SEEN = {}


class Kind(Enum):
    WIDE = 2.0


class Pair(NamedTuple):
    factor: float


@lru_cache(maxsize=None)
def factorial(n):
    return n * factorial(n - 1) if n else 1


@singledispatch
def shown(value):
    return 0.0


@shown.register
def _(value: int):
    return 1.0


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


def again(function):
    @functools.wraps(function)
    def call(*args):
        SEEN[function.__name__] = SEEN.get(function.__name__, 0) + 1
        return function(*args)

    return call


class Odd:
    name = "odd"

    @cached_property
    def factor(self):
        return factorial(3) * Kind.WIDE.value * Pair(shown(1)).factor

    @again
    def propagate(self, net, x):
        with LOCK:
            law = sr.propagate(net, x, "sdp")
            scale = Double.apply(torch.tensor(self.factor / 2))
            from .late import shift

            return sr.Gaussian(law.mean + shift(neighbour.count()), scale * law.covariance)
"""
NEIGHBOUR = """
import sys
from . import rule_state

def count():
    rule_state.COUNT += 1
    return rule_state.COUNT
"""


def test_what_plain_pickles_do_not_take(tmp_path):
    """Locks, cached functions, dispatch by type, enumerations, own gradients, modules in circles."""
    (tmp_path / "odd.py").write_text(ODD)
    (tmp_path / "neighbour.py").write_text(NEIGHBOUR)
    (tmp_path / "rule_state.py").write_text("from . import neighbour\n\nCOUNT = 0\n")
    (tmp_path / "late.py").write_text("def shift(count):\n    return float(count)\n")
    plugin = find(f"{tmp_path / 'odd.py'}:Odd")
    for path in tmp_path.glob("*.py"):
        path.unlink()
    assert in_separate_process(effect_of, plugin) == pytest.approx((12.0, 1.0), rel=1e-5)


def test_an_object_that_cannot_be_pickled_is_one_line(tmp_path):
    (tmp_path / "rule.py").write_text(
        "FILE = open(__file__, 'rb')\n\n\nclass Open:\n    name = 'open'\n\n"
        "    def propagate(self, net, x):\n        return FILE\n"
    )
    with pytest.raises(UserError, match=r"rule.py:Open: .* worker process .*; open files inside") as caught:
        find(f"{tmp_path / 'rule.py'}:Open")
    assert "\n" not in str(caught.value)


def test_results_hold_name_address_hash_and_options(tmp_path):
    plugin = find(write(tmp_path))
    plain = json.loads(json.dumps(plugin.as_json()))
    assert plain == {
        "name": "scaled",
        "kind": "rule",
        "address": "rule.py:Scaled",
        "version": plugin.version,
        "options": "",
    }
    stored = Plugin.from_json(plain)
    assert (stored.name, stored.version) == (plugin.name, plugin.version)
    with pytest.raises(UserError, match="results hold its name and hash, but not its code"):
        stored.load()


def test_the_source_in_an_older_file_is_ignored(tmp_path):
    marker = tmp_path / "marker"
    source = f"import pathlib\npathlib.Path({str(marker)!r}).touch()\n"
    code = {"address": "theirs.py:Theirs", "module": "", "attribute": "Theirs", "source": source}
    code |= {"modules": [["helper.py", source], ["json.py", source]], "folder": "", "trusted": True}
    stored = Plugin.from_json({"name": "theirs", "kind": "rule", "options": "a=1", "code": code})
    assert (stored.name, stored.address, stored.options) == ("theirs", "theirs.py:Theirs", "a=1")
    with pytest.raises(UserError, match="not its code"):
        stored.load()
    assert not marker.exists()
