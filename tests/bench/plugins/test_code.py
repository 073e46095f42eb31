import dataclasses
import functools
import json
import shutil
import sys

import pytest
import torch

import sdp_ref as sr
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.executors.local import LocalProcesses
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


def test_what_is_imported_is_found_and_no_more(tmp_path):
    plugin = find(write(tmp_path))
    assert [path for path, _ in plugin.code.modules] == [
        "helper.py",
        "tools/__init__.py",
        "tools/late.py",
        "tools/numbers.py",
    ]


def test_a_change_of_any_of_them_is_another_version(tmp_path):
    address = write(tmp_path)
    before = find(address)
    assert find(address) == before
    found = [before]
    for path in ("helper.py", "tools/__init__.py", "tools/late.py", "tools/numbers.py"):
        with (tmp_path / path).open("a") as file:
            file.write("\nX = 1\n")
        found.append(find(address))
    assert {each.code.source for each in found} == {before.code.source}
    marks = [versions.of_measurement("scaled", "bures", [each]) for each in found]
    assert len(set(marks)) == len(found)


def test_two_rules_each_have_a_helper(tmp_path, monkeypatch):
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "helper.py").write_text("SCALE = 100.0\n")
    monkeypatch.syspath_prepend(str(tmp_path / "c"))
    elsewhere, before = __import__("helper"), list(sys.path)
    try:
        first = find(write(tmp_path / "a", scale=2.0, shift=1.0))
        second = find(write(tmp_path / "b", scale=5.0, shift=-1.0))
        for _ in range(2):  # each imports modules from its own folder, also when it is called
            assert effect_of(first) == pytest.approx((2.0, 1.0), rel=1e-5)
            assert effect_of(second) == pytest.approx((5.0, -1.0), rel=1e-5)
        assert elsewhere.SCALE == 100
        assert sys.path == before
    finally:
        del sys.modules["helper"]


IMPOSTOR = """
class Scaled:
    name = "scaled"

    def propagate(self, net, x):
        raise AssertionError("the wrong code runs")
"""


@pytest.mark.parametrize("module", ["sdp_ref.rules.moment_matching", "theirs", "theirs_pkg.rule"])
def test_only_the_stored_source_runs(tmp_path, monkeypatch, module):
    """A module of the same name may be installed or lie in the working folder."""
    (tmp_path / "theirs_pkg").mkdir()
    for name in ("theirs.py", "theirs_pkg/__init__.py", "theirs_pkg/rule.py"):
        (tmp_path / name).write_text(IMPOSTOR)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    attribute = "MomentMatching"
    source = IMPOSTOR.replace("Scaled", attribute).replace(
        'raise AssertionError("the wrong code runs")', 'return __import__("sdp_ref").propagate(net, x, "sdp")'
    )
    stored = {
        "name": "scaled",
        "kind": "rule",
        "options": "",
        "code": {
            "address": f"{module}:{attribute}",
            "module": module,
            "attribute": attribute,
            "source": source,
            "modules": [],
            "folder": "",
        },
    }
    rule = Plugin.from_json(stored).as_trusted().load()
    assert effect(rule) == pytest.approx((1.0, 0.0))
    assert not isinstance(rule, type(sr.rule("moment_matching")))


@pytest.mark.parametrize("path", ["json.py", "sdp_ref/rules/__init__.py", "__main__.py"])
def test_stored_modules_do_not_replace_those_of_python_and_the_project(tmp_path, path):
    plain = find(write(tmp_path)).as_json()
    plain["code"]["modules"] = [[path, "1 / 0"]]
    with pytest.raises(ValueError, match="module"):
        Plugin.from_json(plain)


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


@pytest.mark.parametrize("place", ["theirs_pkg.sub.rule", "theirs_pkg"])
def test_modules_of_a_package(tmp_path, monkeypatch, place):
    package(tmp_path)
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        before = set(sys.modules)
        plugin = find(f"{place}:Scaled")
        assert effect_of(plugin) == pytest.approx((4.0, 2.0), rel=1e-5)
        for name in set(sys.modules) - before:
            if name.startswith("theirs_"):
                del sys.modules[name]
    paths = {path for path, _ in plugin.code.modules}
    assert paths >= {"theirs_pkg/__init__.py", "theirs_pkg/scale.py", "theirs_late.py"}
    assert "theirs_pkg/other.py" not in paths
    *others, (path, source) = plugin.code.modules
    modules = (*others, (path, f"{source}\nX = 1\n"))
    changed = dataclasses.replace(plugin, code=dataclasses.replace(plugin.code, modules=modules))
    assert changed.version != plugin.version
    shutil.rmtree(tmp_path / "theirs_pkg")
    (tmp_path / "theirs_late.py").unlink()
    with LocalProcesses(1, 1) as executor:
        assert executor.submit(effect_of, plugin).result() == pytest.approx((4.0, 2.0), rel=1e-5)


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
    assert net.code.modules == (("width.py", "WIDTH = 6\n"),)
    assert own.OwnNet.from_bytes(net.to_bytes(), "stored").digest == net.digest
    (tmp_path / "width.py").write_text("WIDTH = 6  # units\n")
    assert find_net().digest != net.digest
    (tmp_path / "width.py").unlink()
    assert net.build()(torch.ones(1, 2)).shape == (1, 1)


def test_a_rule_finds_the_data_in_its_folder(tmp_path):
    (tmp_path / "factor.txt").write_text("5.0")
    address = write(tmp_path, shift=0.0)
    (tmp_path / "helper.py").write_text(
        "from pathlib import Path\n\nSCALE = float((Path(__file__).parent / 'factor.txt').read_text())\n"
    )
    assert effect(find(address).load()) == pytest.approx((5.0, 0.0), rel=1e-5, abs=1e-6)


def test_plugins_come_back_from_json(tmp_path):
    plugin = find(f"{write(tmp_path)}")
    plain = json.loads(json.dumps(plugin.as_json()))
    assert str(tmp_path) not in json.dumps(plain)
    code = dataclasses.replace(plugin.code, folder="", address=plain["code"]["address"])
    plugin = dataclasses.replace(plugin, code=code)
    assert Plugin.from_json(plain).as_trusted() == plugin
    with pytest.raises(UserError, match="is stored with the results and is not run"):
        Plugin.from_json(plain).load()
