"""Damaged baselines and manifests: each is refused in one line, and none lets a rule or an oracle pass."""

import copy
import json
import math

import pytest
from click.testing import CliRunner

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.gate.baseline import Baseline, read, write
from sdp_bench.bench.gate.cells import Scope
from sdp_bench.bench.gate.oracles.manifest import MANIFESTS, load
from sdp_bench.commands.gate import check
from tests.bench.gate.gate_rules import few_cells
from tests.project import ROOT

RULE, SAMPLING = "sdp", "monte_carlo:samples=10"
NET = "4-100-3 seed 0"
STRANGE = (math.nan, math.inf, -math.inf, 1e200, "0.5", None, True, [], {})


def rule(content, name=RULE):
    return content["rules"][name]


def first(mapping):
    return next(iter(mapping.values()))


def cell(content, name=RULE):
    return first(rule(content, name)["predictions"])


def draws(content):
    return first(rule(content, SAMPLING)["draws"])


def setter(find, key, value):
    """An edit that puts a value somewhere."""
    return lambda content: find(content).__setitem__(key, value)


def cases():
    """Edits of a baseline's content, by what they do."""
    for value in STRANGE:
        yield f"mean {value}", setter(lambda c: cell(c)["mean"], 0, value)
        yield f"variance {value}", setter(lambda c: cell(c)["covariance"][1], 1, value)
        yield f"covariance {value}", setter(lambda c: cell(c)["covariance"][0], 1, value)
        yield f"sd of draws {value}", setter(lambda c: draws(c)["sd"], 0, value)
        yield f"mean of draws {value}", setter(lambda c: draws(c)["mean"], -1, value)
        for name in ("median", "lower", "upper", "least"):
            yield f"{name} {value}", setter(lambda c: rule(c)["speed"][NET], name, value)
    for value in (-1.0, -1e-3):
        yield f"variance {value}", setter(lambda c: cell(c)["covariance"][1], 1, value)
        yield f"sd of draws {value}", setter(lambda c: draws(c)["sd"], 2, value)
        yield f"sd of errors {value}", setter(draws, "error_sd", value)
        yield f"median {value}", setter(lambda c: rule(c)["speed"][NET], "median", value)
    yield "sd of draws 1e30", setter(draws, "sd", [1e30] * 13)
    yield "NaN error", setter(draws, "error", math.nan)
    yield "infinite sd of errors", setter(draws, "error_sd", math.inf)
    for value in (0, 1, -512, 10**30, 10**15, 512.0, "512", None, True):
        yield f"{value} seeds", setter(draws, "number", value)
    for value in (-1, 2**64, 1.5, "7", True, []):
        yield f"seed {value}", setter(lambda c: cell(c, SAMPLING), "seed", value)
    yield "a distance that there is none of", setter(draws, "metric", "tv")
    yield "no distance", setter(draws, "metric", "")
    yield "no outputs", lambda c: cell(c).update(mean=[], covariance=[])
    yield "an output less", lambda c: cell(c).update(mean=cell(c)["mean"][:2])
    yield "a ragged covariance", lambda c: cell(c)["covariance"][0].pop()
    yield "a matrix of variances", lambda c: cell(c).update(variance=cell(c).pop("covariance"))
    yield "covariance and variances", lambda c: cell(c).update(variance=[1.0, 1.0, 1.0])
    yield "no covariance", lambda c: cell(c).pop("covariance")
    yield "draws of no cell", lambda c: rule(c, SAMPLING).update(draws={"0" * 16: draws(c)})
    yield "draws of no number", lambda c: draws(c).update(mean=[], sd=[])
    yield "no predictions", setter(rule, "predictions", {})
    yield "predictions of another cell", lambda c: rule(c).update(predictions={"0" * 16: cell(c)})
    yield "an empty answer", lambda c: (c["probes"].update(x="x"), rule(c).update(probes={"x": {}}))
    yield (
        "a refusal without words",
        lambda c: (
            c.update(probes={"x": "x"}),
            [each.update(probes={"x": {"refused": ""}}) for each in c["rules"].values()],
        ),
    )
    yield "quartiles that are crossed", lambda c: rule(c)["speed"][NET].update(lower=25.0)
    yield "times of an age", lambda c: rule(c)["speed"][NET].update(dict.fromkeys(("median", "upper"), 1e30))
    yield "times on another net", lambda c: rule(c).update(speed={"other": first(rule(c)["speed"])})
    for value in ([], {}, None, "sdp", 3):
        yield f"rules {value}", setter(lambda c: c, "rules", value)
        yield f"cells {value}", setter(lambda c: c, "cells", value)
        yield f"nets {value}", setter(lambda c: c, "nets", value)
    for value in (0, 10**30, -5, 65536):
        yield f"{value} samples of a cell", setter(lambda c: first(c["cells"]), "samples", value)
    yield "a cell of another net", setter(lambda c: first(c["cells"]), "net", "0" * 16)


TEXTS = {
    "a rule twice": lambda text: text.replace('"rules": {', '"rules": {"sdp": {"predictions": {}},', 1),
    "a mean twice": lambda text: text.replace('"mean":', '"mean": [0.0, 0.0, 0.0], "mean":', 1),
    "half of it": lambda text: text[: len(text) // 2],
    "nothing": lambda text: "",
    "brackets": lambda text: "[" * 100_000,
    "a number of 5000 digits": lambda text: text.replace('"version": 3', '"version": 3' + "0" * 5000),
    "no encoding": lambda text: "\udcff",
    "an infinite literal": lambda text: text.replace('"median": ', '"median": 1e999, "x": ', 1),
}


@pytest.fixture(scope="module")
def whole():
    """A committed baseline, cut to two rules in one cell and without probes."""
    scope, known = few_cells(inputs=1), read(ROOT / "reports/baselines/ci.json")
    donor = next(iter(known.cells))
    (key,) = scope.cells

    def cut(one):
        kept = {key: one.predictions[donor]}
        spread = {key: one.draws[donor]} if one.draws else {}
        return type(one)(kept, spread, {}, one.cpu, {NET: one.speed[NET]})

    from dataclasses import asdict

    cells = {key: {"cell": "one", **asdict(each.key)} for key, each in scope.cells.items()}
    rules = {name: cut(known.rules[name]) for name in (RULE, SAMPLING)}
    return scope, Baseline(known.environment, scope.nets, cells, {}, rules)


@pytest.fixture
def refused(whole, tmp_path, monkeypatch):
    """Whether the command refuses a text as a baseline, in one line and with the exit code of bad input."""
    scope, _ = whole
    monkeypatch.setattr(Scope, "of_ci", lambda: scope)
    path = tmp_path / "ci.json"

    def is_refused(text):
        path.write_bytes(text.encode(errors="surrogateescape"))
        done = CliRunner().invoke(check, ["--baseline", str(path), "--rules", RULE, "--no-oracles"])
        return (
            isinstance(done.exception, UserError)
            and done.exception.exit_code == 2
            and "\n" not in str(done.exception)
            and str(path) in str(done.exception)
        )

    return is_refused


def test_a_damaged_baseline_is_refused(whole, refused, attack, tmp_path):
    write(tmp_path / "whole.json", whole[1])
    text = (tmp_path / "whole.json").read_text()
    assert set(read(tmp_path / "whole.json").rules) == {RULE, SAMPLING}
    with attack("damaged baselines") as tries:
        for what, edit in cases():
            content = json.loads(text)
            edit(content)
            assert json.dumps(content) != json.dumps(json.loads(text)), what
            tries.tried(what, held=refused(json.dumps(content)))
        for what, change in TEXTS.items():
            assert change(text) != text, what
            tries.tried(what, held=refused(change(text)))


def manifest_cases():
    def put(value, *path):
        def edit(one):
            for step in path[:-1]:
                one = one[step]
            one[path[-1]] = value

        return edit

    for value in STRANGE:
        yield f"mean {value}", put(value, "statistics", "mean", 0)
        yield f"standard error {value}", put(value, "statistics", "mean_stderr", 0)
        yield f"threshold {value}", put(value, "cells", "thresholds", 3)
        yield f"sigma {value}", put(value, "sigma")
        yield f"number of a check {value}", put(value, "checks", 1, "numbers", "p")
    yield "negative standard error", put(-1e-6, "statistics", "mean_stderr", 1)
    yield "negative standard error of a covariance", put(-1e-6, "statistics", "covariance_stderr", 0, 1)
    yield "standard error of an age", put([1e30] * 3, "statistics", "mean_stderr")
    yield "negative variance", put(-1.0, "statistics", "covariance", 2, 2)
    yield "no symmetry", put(9.0, "statistics", "covariance", 0, 1)
    yield "a probability of 2", put(2.0, "checks", 1, "numbers", "p_cells")
    yield "a negative distance", put(-1.0, "checks", 3, "numbers", "mean")
    for value in (0, -1, 10**30, 65537):
        yield f"{value} samples", put(value, "oracle", "samples")
        yield f"{value} samples of the pilot", put(value, "pilot", "samples")
        yield f"{value} in a cell", put(value, "statistics", "cells", 0)
        yield f"{value} in a class", put(value, "statistics", "classes", 1)
    for name in ("rows", "mean", "quantiles", "cells", "classes", "covariance"):
        yield f"no {name}", put([], "statistics", name)
    yield "no thresholds", put([], "cells", "thresholds")
    yield "quantiles upside down", lambda one: one["statistics"]["quantiles"].reverse()
    yield "another key", put("0" * 16, "key")
    yield "another sampler", put("mc", "oracle", "sampler")
    yield "another method", put("a look", "method")
    yield "a negative seed", put(-1, "seed")
    yield "a seed of 65 bits", put(2**64, "pilot", "seed")


def test_a_damaged_manifest_is_refused(attack, tmp_path):
    content = json.loads(MANIFESTS.read_text())
    content["oracles"] = content["oracles"][:2]
    path = tmp_path / "oracles.json"

    def is_refused(text):
        path.write_text(text)
        try:
            load(path)
        except UserError as error:
            return error.exit_code == 2 and "\n" not in str(error)
        return False

    assert not is_refused(json.dumps(content))
    with attack("damaged manifests") as tries:
        for what, edit in manifest_cases():
            changed = copy.deepcopy(content)
            edit(changed["oracles"][1])
            assert json.dumps(changed) != json.dumps(content), what
            tries.tried(what, held=is_refused(json.dumps(changed)))
        twice = json.dumps(content).replace('"sigma":', '"sigma": 1.0, "sigma":', 1)
        tries.tried("a noise level twice", held=is_refused(twice))
