import importlib
from dataclasses import dataclass

import pytest

from sdp_ref.registry import installed, instances, members

BASE = """
class Thing:
    name: str

class Unnamed(Thing):
    pass
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
        file.write_text(text)

    @property
    def thing(self):
        return importlib.import_module(f"{self.name}.base").Thing


@pytest.fixture
def package(tmp_path, monkeypatch, request):
    name = f"things_{request.node.name}"
    (tmp_path / name).mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    package = Package(name, tmp_path / name)
    package.write("base.py", BASE)
    return package


def test_a_class_is_found_by_its_file_and_nothing_else(package):
    package.write("zebra.py", f"from {package.name}.base import Thing\nclass A(Thing):\n    name = 'a'")
    package.write("wing/ant.py", f"from {package.name}.zebra import A\nclass B(A):\n    name = 'b'")
    package.write("wing/bee.py", f"from {package.name}.zebra import A\nclass Unnamed(A):\n    pass")
    found = members(package.name, package.thing)
    assert {name: kind.__name__ for name, kind in found.items()} == {"a": "A", "b": "B"}
    assert list(found) == ["b", "a"]  # in the order of the modules' names


def test_an_object_is_found_by_its_file(package):
    text = f"from {package.name}.base import Thing\none = Thing()\none.name = 'first'\nother = 3"
    package.write("ones.py", text)
    package.write("users.py", f"from {package.name}.ones import one")
    (found,) = instances(package.name, package.thing).items()
    assert found == ("first", importlib.import_module(f"{package.name}.ones").one)


def test_one_name_is_given_once(package):
    for file in ("one.py", "two.py"):
        package.write(file, f"from {package.name}.base import Thing\nclass A(Thing):\n    name = 'a'")
    with pytest.raises(ValueError, match=r"two members are named 'a': .*one\.A.*two\.A"):
        members(package.name, package.thing)


def test_what_packages_bring_is_found_by_its_group():
    assert installed("console_scripts")["pytest"].module == "_pytest.config"
    assert installed("sdp_bench.no_such_group") == {}
