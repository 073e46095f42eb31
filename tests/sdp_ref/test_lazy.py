import importlib
import sys

import pytest

PACKAGE = """
from typing import TYPE_CHECKING

from sdp_ref.lazy import exports

if TYPE_CHECKING:
    from things_lazy import part
    from things_lazy.other import Thing
else:
    __getattr__, __dir__ = exports(__name__)

__all__ = ["Thing", "part"]
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "things_lazy"
    folder.mkdir()
    (folder / "__init__.py").write_text(PACKAGE)
    (folder / "other.py").write_text("class Thing: ...\n")
    (folder / "part.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("things_lazy")
    for name in [name for name in sys.modules if name.partition(".")[0] == "things_lazy"]:
        del sys.modules[name]


def test_all_names_are_told_and_nothing_is_imported_for_that(package):
    assert set(package.__all__) <= set(dir(package))
    assert "__name__" in dir(package)
    assert not {"things_lazy.other", "things_lazy.part"} & set(sys.modules)


def test_a_name_is_imported_once_when_it_is_asked_for(package):
    assert package.Thing is sys.modules["things_lazy.other"].Thing
    assert vars(package)["Thing"] is package.Thing
    assert package.part is sys.modules["things_lazy.part"]


def test_what_it_does_not_have_is_an_attribute_error(package):
    with pytest.raises(AttributeError, match="module 'things_lazy' has no attribute 'nothing'"):
        package.nothing  # noqa: B018
