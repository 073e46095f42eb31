import importlib
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint

import pytest

from sdp_ref import registry
from sdp_ref.registry import RegistryError, installed, instances, loaded, members

BASE = """
from abc import abstractmethod
from typing import ClassVar

class Thing:
    name: ClassVar[str]
    title: ClassVar[str]
    rank: ClassVar[int] = 50

    @abstractmethod
    def work(self): ...

class Working(Thing):
    title = "working"

    def work(self):
        return 1
"""


@dataclass
class Package:
    """A package of the test's own on the import path."""

    name: str
    folder: object

    def write(self, path, text):
        file = self.folder / path
        file.parent.mkdir(exist_ok=True)
        (file.parent / "__init__.py").touch()
        file.write_text(text.replace("BASE", f"{self.name}.base"))

    @property
    def members(self):
        return members(self.name, f"{self.name}.base.Thing")

    def module(self, name):
        return importlib.import_module(f"{self.name}.{name}")


@pytest.fixture
def package(tmp_path, monkeypatch, request):
    name = f"things_{request.node.name.partition('[')[0]}"
    (tmp_path / name).mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    package = Package(name, tmp_path / name)
    package.write("base.py", BASE)
    yield package
    for module in [each for each in sys.modules if each.partition(".")[0] == name]:
        del sys.modules[module]


def test_a_class_is_found_by_its_file_and_nothing_else(package):
    package.write("zebra.py", "from BASE import Working\nclass A(Working):\n    name = 'a'")
    package.write("wing/ant.py", f"from {package.name}.zebra import A\nclass B(A):\n    name = 'b'")
    package.write("wing/bee.py", f"from {package.name}.zebra import A\nclass Unnamed(A):\n    pass")
    package.write("other.py", "class Other:\n    name = 'other'")
    found = package.members
    assert {name: kind.__name__ for name, kind in found.items()} == {"a": "A", "b": "B"}
    assert list(found) == ["b", "a"]  # in the order of the modules' names
    assert found["b"] is package.module("wing.ant").B


def test_names_are_known_before_anything_is_imported(package):
    package.write(
        "ant.py", "from BASE import Working\nclass A(Working):\n    name = 'a'\nraise SystemError('read')"
    )
    found = package.members
    assert (list(found), "a" in found, "b" in found, len(found)) == (["a"], True, False, 1)
    assert not any(module.startswith(f"{package.name}.") for module in sys.modules)
    with pytest.raises(RegistryError, match=r"ant\.py cannot be imported: SystemError: read"):
        found["a"]


def test_what_a_class_says_of_itself_is_known_before_it_is_imported(package):
    package.write("ant.py", "from BASE import Working\nclass A(Working):\n    name = 'a'\nraise SystemError")
    package.write("bee.py", "from BASE import Working\nclass B(Working):\n    name = 'b'\n    title = 'bee'")
    found = package.members
    assert [found.written(name, "title", str) for name in found] == ["working", "bee"]
    assert found.written("a", "rank", int) == 50
    with pytest.raises(RegistryError, match=r"ant\.py: a has no colour"):
        found.written("a", "colour", str)
    with pytest.raises(RegistryError, match=r"rank of Thing must be written out, as str"):
        found.written("a", "rank", str)


def test_a_module_that_makes_no_object_is_not_imported(package):
    package.write("heavy.py", "LIMIT = 3\n\ndef work():\n    m = work()\n    return m\n\nraise SystemError")
    package.write("pair.py", "from BASE import Thing\none, two = Thing(), Thing()\none.name, two.name = '12'")
    assert list(instances(package.name, package.module("base").Thing)) == ["1", "2"]


BROKEN = {
    "class A(Working:": r"ant\.py cannot be read: SyntaxError",
    "class A(Thing):\n    name = 'a'": r"ant\.py: A lacks title",
    "class A(Working):\n    name = 'z'": r"zebra\.py: the name 'z' is taken .*ant\.py",
    "class A(Working):\n    name = 'a' + 'b'": r"ant\.py: name of A must be written out",
    "class A(Working):\n    name = 'a'\n    rank = min(1, 2)": r"ant\.py: rank of A must be written out",
}


@pytest.mark.parametrize(("text", "message"), BROKEN.items(), ids=range(len(BROKEN)))
def test_what_is_wrong_with_a_file_of_a_class_is_said(package, text, message):
    package.write("ant.py", f"from BASE import Thing, Working\n{text}")
    package.write("zebra.py", "from BASE import Working\nclass Z(Working):\n    name = 'z'")
    with pytest.raises(RegistryError, match=message):
        dict(package.members)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("one = Thing()\none.name = 'z'", r"zebra\.py: the name 'z' is taken"),
        ("one = Thing(1)", r"ant\.py cannot be imported: TypeError"),
        ("import no_such_module\none = Thing()", r"ant\.py cannot be imported: ModuleNotFoundError.*no_such"),
    ],
)
def test_what_is_wrong_with_a_file_of_an_object_is_said(package, text, message):
    package.write("ant.py", f"from BASE import Thing\n{text}")
    package.write("zebra.py", "from BASE import Thing\none = Thing()\none.name = 'z'")
    with pytest.raises(RegistryError, match=message):
        instances(package.name, package.module("base").Thing)


def test_a_name_is_given_once(monkeypatch):
    points = [EntryPoint("same", "this:one", "group"), EntryPoint("same", "that:one", "group")]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    with pytest.raises(RegistryError, match=r"the entry point 'same' \(group\).* has the same name"):
        installed("group")
    with pytest.raises(RegistryError, match=r"the entry point 'same' \(group\): the name is taken already"):
        installed("group", ["same"])


def test_what_is_wrong_with_an_entry_point_is_said():
    assert loaded(EntryPoint("good", "math:pi", "group"), float) > 3
    with pytest.raises(RegistryError, match=r"the entry point 'bad' \(group\): math:pi is not a str"):
        loaded(EntryPoint("bad", "math:pi", "group"), str)
    with pytest.raises(RegistryError, match=r"'gone' \(group\) cannot be loaded: ModuleNotFoundError"):
        loaded(EntryPoint("gone", "no_such_module:one", "group"), str)
