"""Fingerprints: the same for the same code wherever it stands, another for whatever changes what it does."""

import importlib
import itertools
import sys
import textwrap
import types

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from sdp_bench.bench.identity import fingerprint as marks

ROOM = {
    "room/__init__.py": "",
    "room/base.py": '''
        """Handlers by kind, and what a rule is."""
        from dataclasses import dataclass, field
        from typing import ClassVar
        import math
        from room import numbers

        HANDLERS = {}

        def handles(kind):
            def register(function):
                HANDLERS[kind] = function
                return function
            return register

        class Base:
            scale = 1.5

            def start(self, x):
                """Where it begins."""
                return numbers.shifted(x) * self.scale

        @dataclass(frozen=True)
        class Options:
            width: int = 3
            names: tuple[str, ...] = field(default_factory=tuple)
    ''',
    "room/numbers.py": """
        import math
        import functools

        HALF = 0.5
        TABLE = {"low": [1, 2], "high": [3]}

        def shifted(x, by=1.0):
            return x + by + offset(x)

        def offset(x):
            if x is None:
                raise ValueError(f"{x} is no number")
            # twice the half
            return math.sqrt(HALF) * 2 + len(TABLE["low"])

        @functools.cache
        def even(n):
            return n == 0 or odd(n - 1)

        def odd(n):
            return n != 0 and even(n - 1)
    """,
    "room/rules.py": """
        from room.base import HANDLERS, Base, Options, handles
        from room import numbers as n

        @handles(int)
        def of_int(rule, x):
            return rule.start(x)

        @handles(float)
        def of_float(rule, x):
            return rule.start(x) - 0.25

        class Rule(Base):
            options = Options()

            def propagate(self, x):
                from room.late import finish
                again = [HANDLERS[type(v)](self, v) for v in x]
                return finish(again, n.even(self.options.width))

        class Other(Base):
            def propagate(self, x):
                return x * 17

        def use(x):
            return Rule().propagate(x)
    """,
    "room/late.py": """
        from __future__ import annotations

        def finish(values: list[float], flag: bool) -> float:
            return sum(values) if flag else 0.0
    """,
}
ROOT = "room.rules", "use"


@pytest.fixture
def mark(tmp_path, monkeypatch):
    """Fingerprint of an object in a package that is written for it alone."""
    count = itertools.count()

    def fresh(files, root=ROOT):
        folder = tmp_path / f"{next(count)}"
        for path, text in files.items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(textwrap.dedent(text))
        with monkeypatch.context() as patch:
            patch.syspath_prepend(folder)
            try:
                found = getattr(importlib.import_module(root[0]), root[1])
                return marks.reached(found, packages={"room", "hall"})
            finally:
                for name in [n for n in sys.modules if n.partition(".")[0] in ("room", "hall")]:
                    del sys.modules[name]

    return fresh


def changed(path, *edits):
    """The room with pieces of one file put in the place of others."""
    text = textwrap.dedent(ROOM[path])
    for before, after in edits:
        assert before in text
        text = text.replace(before, after)
    return {**ROOM, path: text}


def moved(name, to):
    """The room with a module of it renamed or moved, and all imports of it."""
    files = {path: text.replace(f"room.{name}", to) for path, text in ROOM.items()}
    package, _, module = to.rpartition(".")
    files = {
        path: text.replace(f"from room import {name} as n", f"from {package} import {module} as n").replace(
            f"from room import {name}", f"from {package} import {module} as {name}"
        )
        for path, text in files.items()
    }
    text = files.pop(f"room/{name}.py")
    return {**files, f"{package.replace('.', '/')}/__init__.py": "", f"{to.replace('.', '/')}.py": text}


SPLIT = {
    **changed(
        "room/numbers.py",
        ("HALF = 0.5\n", "from room.constants import HALF\n"),
        ("def offset", "from room.constants import TABLE as LOWS\n\ndef offset"),
        ('TABLE["low"]', 'LOWS["low"]'),
        ('TABLE = {"low": [1, 2], "high": [3]}\n', ""),
    ),
    "room/constants.py": 'TABLE = {"low": [1, 2], "high": [3]}\nHALF = 0.5\n',
}

REORDERED = textwrap.dedent(ROOM["room/rules.py"])
FIRST, SECOND = REORDERED[REORDERED.index("@handles(int)") :].split("@handles(float)")
SECOND, REST = SECOND.split("class Rule")
REORDERED = f"{REORDERED.partition('@handles')[0]}@handles(float){SECOND}{FIRST}class Rule{REST}"

THE_SAME = {
    "a renamed module": moved("numbers", "room.figures"),
    "a module in another folder": moved("numbers", "room.inner.numbers"),
    "a module in another package": moved("base", "hall.base"),
    "a module that a function imports, moved": moved("late", "hall.later"),
    "a module split in two": SPLIT,
    "handlers in another order": {**ROOM, "room/rules.py": REORDERED},
    "functions in another order": changed(
        "room/numbers.py",
        ("def odd(n):\n    return n != 0 and even(n - 1)\n", ""),
        ("HALF = 0.5", "def odd(n):\n    return n != 0 and even(n - 1)\n\nHALF = 0.5"),
    ),
    "another alias": changed(
        "room/rules.py", ("import numbers as n", "import numbers as figures"), ("n.even", "figures.even")
    ),
    "a name in the place of an attribute": changed(
        "room/rules.py",
        ("from room import numbers as n", "from room.numbers import even"),
        ("n.even", "even"),
    ),
    "an import in the place of another": changed(
        "room/numbers.py", ("import math\n", "from math import sqrt as root\n"), ("math.sqrt", "root")
    ),
    "an import within a function": changed(
        "room/rules.py",
        ("from room.late import finish", "from room import late as what"),
        ("finish(", "what.finish("),
    ),
    "an import that went to the top": changed(
        "room/rules.py",
        ("        from room.late import finish\n", ""),
        ("from room import numbers", "from room.late import finish\nfrom room import numbers"),
    ),
    "a renamed function": changed("room/numbers.py", ("offset", "distance")),
    "a renamed constant": changed("room/numbers.py", ("HALF", "FRACTION")),
    "layout": changed(
        "room/numbers.py", ("x + by + offset(x)", "(\n        x + by\n        + offset(x)\n    )")
    ),
    "comments": changed("room/numbers.py", ("# twice the half", "# 2 h")),
    "what an error says": changed("room/numbers.py", ("is no number", "is none")),
    "a docstring": changed("room/base.py", ('"""Where it begins."""', '"""Begin."""')),
    "no docstring": changed("room/base.py", ('"""Where it begins."""\n', "\n")),
    "a new docstring": changed("room/numbers.py", ("def odd(n):\n", 'def odd(n):\n    """Odd."""\n')),
    "annotations": changed(
        "room/late.py",
        ("values: list[float], flag: bool) -> float", "values, flag: int)"),
        ("    return", "    note: str\n    return"),
    ),
    "a field's annotation": changed("room/base.py", ("width: int", "width: float")),
    "an annotated value": changed("room/numbers.py", ("HALF = 0.5", "HALF: float = 0.5")),
    "imports for the type checker": changed(
        "room/numbers.py",
        (
            "import functools",
            "import functools\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import y",
        ),
    ),
    "overloads": changed(
        "room/numbers.py",
        ("def odd", "from typing import overload\n@overload\ndef odd(n: int) -> bool: ...\n\ndef odd"),
    ),
    "a cache": changed("room/numbers.py", ("@functools.cache\n", "")),
    "what is not reached": changed("room/rules.py", ("x * 17", "x * 18")),
    "a method that nobody calls": changed(
        "room/rules.py", ("    options =", "    def show(self):\n        pass\n\n    options =")
    ),
}

DIFFERENT = {
    "a constant in a function two calls away": changed("room/numbers.py", (" * 2 + ", " * 3 + ")),
    "a constant of a module": changed("room/numbers.py", ("HALF = 0.5", "HALF = 0.25")),
    "a number's type": changed("room/numbers.py", ("by=1.0", "by=1")),
    "the kind of an error": changed("room/numbers.py", ("ValueError", "TypeError")),
    "a table's entry": changed("room/numbers.py", ("[1, 2]", "[1, 4]")),
    "a table's key": changed("room/numbers.py", ('"high"', '"highest"')),
    "a registered handler": changed("room/rules.py", ("0.25", "0.75")),
    "handlers that changed places": changed(
        "room/rules.py", ("(int)", "(complex)"), ("(float)", "(int)"), ("(complex)", "(float)")
    ),
    "a handler less": changed("room/rules.py", ("@handles(float)\n", "")),
    "a base's method": changed("room/base.py", ("* self.scale", "/ self.scale")),
    "a base's attribute": changed("room/base.py", ("scale = 1.5", "scale = 2.5")),
    "another base": changed("room/rules.py", ("class Rule(Base)", "class Rule(Options)")),
    "an argument's default": changed("room/numbers.py", ("by=1.0", "by=2.0")),
    "a field's default": changed("room/base.py", ("width: int = 3", "width: int = 4")),
    "a field's default factory": changed("room/base.py", ("default_factory=tuple", "default_factory=list")),
    "a field's name": changed("room/base.py", ("width:", "height:")),
    "the order of fields": changed(
        "room/base.py",
        ("    width: int = 3\n", ""),
        ("field(default_factory=tuple)\n", "field(default_factory=tuple)\n    width: int = 3\n"),
    ),
    "a field that is no field any more": changed("room/base.py", ("width: int = 3", "width = 3")),
    "a frozen dataclass": changed("room/base.py", ("frozen=True", "frozen=False")),
    "what a late import leads to": changed("room/late.py", ("else 0.0", "else 1.0")),
    "another function imported late": changed(
        "room/late.py", ("return sum", "return max"), ("flag else", "flag else sum(values) or")
    ),
    "an external function": changed("room/numbers.py", ("math.sqrt", "math.cbrt")),
    "a function called by mutual recursion": changed("room/numbers.py", ("n != 0 and", "n > 0 and")),
    "a method that overrides one": changed(
        "room/rules.py", ("    options =", "    def start(self, x):\n        return x\n\n    options =")
    ),
}


@pytest.mark.parametrize("files", THE_SAME.values(), ids=THE_SAME)
def test_what_changes_no_number_changes_no_fingerprint(mark, files):
    assert files != ROOM
    assert mark(files) == mark(ROOM)


@pytest.mark.parametrize("files", DIFFERENT.values(), ids=DIFFERENT)
def test_what_may_change_a_number_changes_the_fingerprint(mark, files):
    assert mark(files) != mark(ROOM)


def of_one_file(source, root="f"):
    return {"room/__init__.py": "", "room/one.py": source}, ("room.one", root)


# Modules in which the number 1, or the word sin, is reached from `f`.
REACHED = {
    "a nested function reads a global": """
        K = {0}
        def f():
            def g():
                return K
            return g
    """,
    "global is one": """
        K = {0}
        def f():
            global K
            return K
    """,
    "a comprehension's name ends with it": """
        K = {0}
        def f(x):
            return [K for K in x], K
    """,
    "a comprehension's first range": """
        K = [{0}]
        def f():
            return [K for K in K]
    """,
    "a comprehension's condition": """
        K = {0}
        def f(x):
            return {{i for i in x if i > K}}
    """,
    "a comprehension's second range": """
        K = [{0}]
        def f(x):
            return [1 for i in x for j in K]
    """,
    "a class in a pattern": """
        class C:
            k = {0}
        def f(x):
            match x:
                case C():
                    return x.k
    """,
    "a lambda": """
        K = {0}
        f = lambda x: x + K
    """,
    "the first lambda of a line": "f, g = (lambda: {0}), (lambda: 1)",
    "a closure": """
        def make(k):
            def g():
                return k
            return g
        f = make({0})
    """,
    "a default made in a closure": """
        def make(k):
            def g(k=k):
                return k
            return g
        f = make({0})
    """,
    "a partial's keyword": """
        import functools
        def g(k):
            return k
        f = functools.partial(g, k={0})
    """,
    "a method of an object": """
        class C:
            def __init__(self, k):
                self.k = k
            def g(self):
                return 1
        f = C({0}).g
    """,
    "a wrapper of contextlib": """
        from contextlib import contextmanager
        @contextmanager
        def f():
            yield {0}
    """,
    "a wrapper of ours": """
        import functools
        def twice(g):
            @functools.wraps(g)
            def h():
                return g() * {0}
            return h
        @twice
        def f():
            return 1
    """,
    "what ours wraps": """
        import functools
        def twice(g):
            @functools.wraps(g)
            def h():
                return g() * 2
            return h
        @twice
        def f():
            return {0}
    """,
    "a decorator's argument": """
        import torch
        @torch.set_grad_enabled(bool({0} - 1))
        def f():
            return 1
    """,
    "a dispatched function": """
        from functools import singledispatch
        @singledispatch
        def f(x):
            return 0
        @f.register
        def _(x: int):
            return {0}
    """,
    "a property": """
        class C:
            @property
            def k(self):
                return {0}
        def f():
            return C().k
    """,
    "a cached property": """
        from functools import cached_property
        class C:
            @cached_property
            def k(self):
                return {0}
        def f():
            return C().k
    """,
    "a class method": """
        class C:
            @classmethod
            def k(cls):
                return {0}
        def f():
            return C.k()
    """,
    "an initialiser": """
        class C:
            def __init__(self):
                self.k = {0}
        def f():
            return C()
    """,
    "a method of a class that is reached after its name": """
        class C:
            def k(self):
                return {0}
        def g():
            return C()
        def f():
            x = g()
            return x.k()
    """,
    "a method that a method calls": """
        class C:
            def k(self):
                return self.j()
            def j(self):
                return {0}
        def f():
            return C().k()
    """,
    "a method named by a string": """
        class C:
            def k(self):
                return {0}
        def f():
            return getattr(C(), "k")()
    """,
    "a method named by a string in a table": """
        T = {{"a": "k"}}
        class C:
            def k(self):
                return {0}
        def f(a):
            return getattr(C(), T[a])()
    """,
    "a method that external code calls": """
        from torch import nn
        class C(nn.Module):
            def forward(self, x):
                return {0}
        def f():
            return C()
    """,
    "a base of super": """
        class B:
            def g(self):
                return {0}
        class C(B):
            def g(self):
                return super().g()
        f = C.g
    """,
    "a member of an enum": """
        import enum
        class E(enum.Enum):
            A = {0}
        def f():
            return E.A
    """,
    "a named tuple's default": """
        from typing import NamedTuple
        class N(NamedTuple):
            k: int = {0}
        def f():
            return N()
    """,
    "a tensor": """
        import torch
        K = torch.tensor([{0}.0])
        def f():
            return K
    """,
    "an array": """
        import numpy as np
        K = np.array([{0}.0])
        def f():
            return K
    """,
    "a scalar of numpy": """
        import numpy as np
        K = np.float64({0})
        def f():
            return K
    """,
    "a frozen set": """
        K = frozenset([{0}, 3])
        def f():
            return K
    """,
    "an object's state": """
        class C:
            def __init__(self, k):
                self.k = k
        K = C({0})
        def f():
            return K
    """,
    "a pattern's text": """
        import re
        K = re.compile('{0}')
        def f():
            return K
    """,
    "one of two imports of a name": """
        def f(x):
            if x:
                from math import sin as g
            else:
                from math import {1} as g
            return g(x)
    """,
    "a list that holds itself": """
        K = [{0}]
        K.append(K)
        def f():
            return K
    """,
    "a function that calls itself": """
        def f(n):
            return f(n - {0})
    """,
    "a class that makes itself": """
        class C:
            def g(self):
                return C(), {0}
        def f():
            return C().g()
    """,
}

# The same where it is not.
NOT_REACHED = {
    "a parameter hides a global": """
        K = {0}
        def f(K):
            return K
    """,
    "a local hides a global": """
        K = {0}
        def f():
            K = 1
            return K
    """,
    "a nested function's own name": """
        K = {0}
        def f():
            def g(K):
                return K
            return g
    """,
    "nonlocal is no global": """
        K = {0}
        def f():
            K = 1
            def g():
                nonlocal K
                K = 2
            return K
    """,
    "a comprehension's name hides a global": """
        K = {0}
        def f(x):
            return [K for K in x]
    """,
    "a name bound in a pattern": """
        K = {0}
        def f(x):
            match x:
                case [K]:
                    return K
    """,
    "the second lambda of a line": "f, g = (lambda: 1), (lambda: {0})",
    "a protocol": """
        from typing import Protocol
        class P(Protocol):
            def g(self):
                return {0}
        class C(P):
            k = 1
        def f():
            return C().g()
    """,
    "a method whose name is not used": """
        class C:
            k = 1
            def g(self):
                return {0}
        def f():
            return C().k
    """,
    "the name of a dataclass's field": """
        from dataclasses import dataclass
        @dataclass
        class D:
            g: int = 1
        class C:
            def g(self):
                return {0}
        def f():
            return C(), D()
    """,
    "a path": """
        from pathlib import Path
        K = Path('{0}')
        def f():
            return K
    """,
}


def both(mark, source):
    """Fingerprints of `f` with one number or word, and with another in its place."""
    return [mark(*of_one_file(source.format(*parts))) for parts in ((1, "sin"), (2, "cos"))]


@pytest.mark.parametrize("source", REACHED.values(), ids=REACHED)
def test_what_is_reached_counts(mark, source):
    one, other = both(mark, source)
    assert one != other


@pytest.mark.parametrize("source", NOT_REACHED.values(), ids=NOT_REACHED)
def test_what_is_not_reached_does_not_count(mark, source):
    one, other = both(mark, source)
    assert one == other


def test_a_module_stands_for_all_that_it_holds(mark):
    one, other = (
        {**ROOM, "room/rules.py": textwrap.dedent(ROOM["room/rules.py"]).replace("17", n)} for n in "18"
    )
    one, other = ({**files, "room/__init__.py": "from room import rules"} for files in (one, other))
    assert mark(one, ("room", "rules")) == mark(one, ("room", "rules"))
    assert mark(one, ("room", "rules")) != mark(other, ("room", "rules"))


def test_names_of_a_file_s_place_do_not_count(mark):
    source = "def f():\n    return __name__, __file__\n"
    files = {"room/__init__.py": "", "room/one.py": source, "room/two.py": source}
    assert mark(files, ("room.one", "f")) == mark(files, ("room.two", "f"))


def test_a_dictionary_by_class_has_no_order(mark):
    source = """
        class A:
            k = "a"
            def g(self):
                return 1
        class B:
            k = "b"
            def g(self):
                return 2
        K = {}
        def f():
            return K
    """
    one, other, different = (
        mark(*of_one_file(source.format(table))) for table in ("{A: 1, B: 2}", "{B: 2, A: 1}", "{B: 1, A: 2}")
    )
    assert one == other != different


HELD = {
    "a number": float,
    "a complex number": lambda x: complex(1, x),
    "a scalar of numpy": np.float64,
    "an array": lambda x: np.array([1, x]),
    "an array of complex numbers": lambda x: np.array([[1, 1j * x]]),
    "a tensor": lambda x: torch.tensor([1, x], dtype=torch.float64),
    "a tensor of complex numbers": lambda x: torch.tensor([1, 1j * x], dtype=torch.complex128).conj(),
}


@pytest.mark.parametrize("held", HELD.values(), ids=HELD)
@given(
    st.floats(1e-300, 1e300) | st.floats(-1e300, -1e-300),
    st.integers(-8, 8),
    st.sampled_from([-1e-9, 1e-9, 1.0, -2.0]),
)
def test_last_bits_that_depend_on_the_processor_do_not_count(held, x, steps, change):
    fraction = np.frexp(x)[0] * 2**39
    assume(abs(fraction % 1 - 0.5) > 0.01)  # where numbers beside each other are rounded apart
    near, far = x + steps * np.spacing(x), x * (1 + change)
    assert marks.reached(held(x)) == marks.reached(held(near)) != marks.reached(held(far))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.complex64])
def test_arrays_that_are_no_numbers_are_told_apart(kind):
    zero, infinite, nan = (marks.reached(np.array([x, 1], dtype=kind)) for x in (0, np.inf, np.nan))
    assert len({zero, infinite, nan}) == 3
    assert marks.reached(np.array([-0.0, 1], dtype=kind)) == zero
    assert marks.reached(-np.array([np.nan, -1], dtype=kind)) == nan


def test_types_of_tensors_count():
    names = ("bfloat16", "float16", "float32", "float64", "complex64", "int32", "int64", "bool")
    assert len({marks.reached(torch.ones(2, dtype=getattr(torch, name))) for name in names}) == len(names)


def test_code_without_source_has_none():
    module = types.ModuleType("room")
    exec("def f():\n    return 1\n", module.__dict__)
    with pytest.raises(ValueError, match=r"there is no source of room\.f"):
        marks.reached(module.f, packages={"room"})


def test_roles_count():
    assert marks.fingerprint(rule=1, metric=2) == marks.fingerprint(metric=2, rule=1)
    assert marks.fingerprint(rule=1, metric=2) != marks.fingerprint(rule=2, metric=1)
