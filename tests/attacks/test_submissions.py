"""Damaged and hostile submissions: each is refused in one line, with the exit code of bad input."""

import copy
import json

import pytest
from click.testing import CliRunner

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.submissions.submission import MOST
from sdp_bench.commands.benchmark import submission as commands
from tests.project import ROOT

STRANGE = (float("nan"), float("inf"), -float("inf"), 10**400, 1e200, "0.5", True, [], {}, None)
REQUIRED = (
    *("schema", "created", "problem_set", "rule", "hardware", "guarantees", "conformance", "cost"),
    *("predictions", "measurements", "refused", "digest"),
)


@pytest.fixture(scope="module")
def whole():
    """A committed submission, cut to one problem."""
    plain = json.loads((ROOT / "submissions/sdp.json").read_text(encoding="utf-8"))
    for name in ("cost", "predictions", "measurements"):
        key = next(iter(plain[name]))
        plain[name] = {key: plain[name][key]}
    return plain


def first(mapping):
    return next(iter(mapping.values()))


def edits():
    """Edits of a submission, by what they do."""
    for value in STRANGE:
        yield (
            f"value {value!r:.20}",
            lambda c, v=value: first(first(first(c["measurements"]))).__setitem__(0, v),
        )
        if value is not None:  # what is not known is null
            yield (
                f"floor {value!r:.20}",
                lambda c, v=value: first(first(first(c["measurements"]))).__setitem__(1, v),
            )
        yield f"mean {value!r:.20}", lambda c, v=value: first(c["predictions"])["mean"].__setitem__(0, v)
        yield f"sd {value!r:.20}", lambda c, v=value: first(c["predictions"])["sd"].__setitem__(0, v)
        yield f"time {value!r:.20}", lambda c, v=value: first(c["cost"]).__setitem__("median", v)
        yield (
            f"bound {value!r:.20}",
            lambda c, v=value: c.update(guarantees=[{"metric": "w1", "relation": "<=", "bound": v}]),
        )
        yield f"name {value!r:.20}", lambda c, v=value: c["rule"].update(name=v if v != "0.5" else "0 5")
        yield f"schema {value!r:.20}", lambda c, v=value: c.update(schema=v)
        for name in ("measurements", "predictions", "refused", "cost", "rule", "hardware", "guarantees"):
            if value not in ([], {}) or name == "rule":
                yield f"{name} {value!r:.20}", lambda c, n=name, v=value: c.update({n: v})
    for name in REQUIRED:
        yield f"no {name}", lambda c, n=name: c.pop(n)
        yield f"{name} and more", lambda c, n=name: c.update({f"{n} ": 1})
    for name in ("name", "version", "authors", "licence", "source", "label"):
        yield f"rule without {name}", lambda c, n=name: c["rule"].pop(n)
    yield "a negative deviation", lambda c: first(c["predictions"])["sd"].__setitem__(0, -1.0)
    yield "three numbers", lambda c: first(first(first(c["measurements"]))).pop()
    yield "a long name", lambda c: c["rule"].update(label="x" * 10**6)
    yield "a long author", lambda c: c["rule"].update(authors=["x" * 10**5])
    yield "no author", lambda c: c["rule"].update(authors=[])
    yield "many authors", lambda c: c["rule"].update(authors=["x"] * 10**5)
    yield "a script for an address", lambda c: c["rule"].update(url="javascript:alert(1)")
    yield (
        "a relation of its own",
        lambda c: c.update(guarantees=[{"metric": "w1", "relation": "__import__", "bound": 1}]),
    )
    yield "another kind of code", lambda c: c["rule"].update(source={"plugin": {"kind": "metric"}})
    yield "a folder of this machine", lambda c: c["rule"].update(source={"plugin": {"code": {"folder": "/"}}})
    yield "an unknown set", lambda c: c["problem_set"].update(name="sdp-bench-0")
    for character in ("\ud800", "\x1b", "\0", "\u202e"):
        name = f"{character!a}"
        yield f"label {name}", lambda c, v=character: c["rule"].update(label=v)
        yield f"parameters {name}", lambda c, v=character: c["rule"].update(name=f"sdp:{v}")
        yield f"family {name}", lambda c, v=character: first(c["predictions"]).update(family=v)
        yield f"problem {name}", lambda c, v=character: c["refused"].update({v: {"": "so"}})
        yield f"reason {name}", lambda c, v=character: c["refused"].update(x={"": v})
    yield "a digest of letters", lambda c: c.update(digest="z" * 64)


TEXTS = {
    "a rule twice": lambda text: text.replace('"rule":', '"rule": {}, "rule":', 1),
    "a digest twice": lambda text: text.replace('"digest":', '"digest": "", "digest":', 1),
    "half of it": lambda text: text[: len(text) // 2],
    "nothing": lambda text: "",
    "a list": lambda text: "[]",
    "null": lambda text: "null",
    "a number": lambda text: "1",
    "brackets": lambda text: "[" * 100_000,
    "braces": lambda text: '{"a":' * 100_000,
    "a number of 5000 digits": lambda text: text.replace('"schema": 1', '"schema": 1' + "0" * 5000),
    "an infinite literal": lambda text: text.replace('"median": ', '"median": 1e999, "x": ', 1),
    "no encoding": lambda text: "\udcff",
    "a control character": lambda text: text.replace('"label": "', '"label": "\x1b[31m', 1),
    "five megabytes": lambda text: text + " " * (MOST + 1),
    "another programme": lambda text: "import os",
}


@pytest.fixture
def refused(tmp_path):
    """Whether the command refuses a text as a submission, in one line and with the exit code of bad input."""
    path = tmp_path / "entered.json"

    def is_refused(text):
        path.write_bytes(text.encode(errors="surrogateescape"))
        done = CliRunner().invoke(commands, ["check", str(path), "--trust-code"])
        error = done.exception
        return (
            isinstance(error, UserError)
            and error.exit_code == 2
            and len(str(error).splitlines()) == 1
            and len(str(error)) < 600
            and str(error).isprintable()
        )

    return is_refused


def tried(attack, whole, refused, step):
    with attack("damaged submissions") as counted:
        for case, edit in [*edits()][::step]:
            content = copy.deepcopy(whole)
            edit(content)
            counted.tried(case, held=refused(json.dumps(content)))
        text = json.dumps(whole)
        for case, change in [*TEXTS.items()][:: 1 if step == 1 else 3]:
            counted.tried(case, held=refused(change(text)))


def test_a_damaged_submission_is_refused(whole, refused, attack):
    tried(attack, whole, refused, 9)


@pytest.mark.slow
def test_every_damaged_submission_is_refused(whole, refused, attack):
    tried(attack, whole, refused, 1)
