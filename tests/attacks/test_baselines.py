"""Damaged baselines and manifests are rejected in one line; none lets a rule or an oracle pass."""

import copy
import json
import math

from click.testing import CliRunner

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.gate.baseline import read
from sdp_bench.bench.gate.cells import Scope
from sdp_bench.bench.manifests import MANIFESTS, load
from sdp_bench.commands.gate import check
from tests.project import ROOT

BASELINE = ROOT / "reports/baselines/ci.json"
RULE, SAMPLING = "sdp", "monte_carlo:samples=10"
STRANGE = (math.nan, math.inf, -math.inf, 1e200, -1.0, "0.5", None, True, [], {})


def first(mapping):
    return next(iter(mapping.values()))


TEXTS = {
    "a rule twice": lambda text: text.replace('"rules": {', '"rules": {"sdp": {"predictions": {}},', 1),
    "a mean twice": lambda text: text.replace('"mean":', '"mean": [0.0, 0.0, 0.0], "mean":', 1),
    "brackets": lambda text: "[" * 100_000,
    "a number of 5000 digits": lambda text: text.replace('"version": 4', '"version": 4' + "0" * 5000),
    "an infinite literal": lambda text: text.replace('"median": ', '"median": 1e999, "x": ', 1),
}


def test_a_damaged_baseline_is_rejected(tmp_path, monkeypatch):
    scope = Scope.of_ci()
    monkeypatch.setattr(Scope, "of_ci", lambda: scope)
    path, plain = tmp_path / "ci.json", json.loads(BASELINE.read_text())
    text = json.dumps(plain | {"rules": {name: plain["rules"][name] for name in (RULE, SAMPLING)}}, indent=1)
    path.write_text(text)
    assert set(read(path).rules) == {RULE, SAMPLING}

    def is_rejected(text):
        path.write_bytes(text.encode(errors="surrogateescape"))
        done = CliRunner().invoke(
            check, ["--baseline", str(path), "--rules", RULE, "--no-oracles", "--no-speed"]
        )
        error = done.exception
        return (
            isinstance(error, UserError)
            and error.exit_code == 2
            and "\n" not in str(error)
            and str(path) in str(error)
        )

    for value in STRANGE:  # anywhere, since each rule has a digest
        content = json.loads(text)
        first(first(content["rules"])["predictions"])["mean"][0] = value
        assert is_rejected(json.dumps(content)), value
    for change in ({"version": 99}, {"format": "other"}, {"rules": {}}, {"cases": {}}):
        assert is_rejected(json.dumps(json.loads(text) | change)), change
    for name, change in TEXTS.items():
        assert is_rejected(change(text)), name


def test_a_damaged_manifest_is_rejected(tmp_path):
    content = json.loads(MANIFESTS.read_text())
    content["oracles"] = content["oracles"][:2]
    path = tmp_path / "oracles.json"

    def is_rejected(text):
        path.write_text(text)
        try:
            load(path)
        except UserError as error:
            return error.exit_code == 2 and "\n" not in str(error)
        return False

    assert not is_rejected(json.dumps(content))
    for value in STRANGE:
        changed = copy.deepcopy(content)
        changed["oracles"][1]["statistics"]["mean"] = value
        assert is_rejected(json.dumps(changed)), value
    assert is_rejected(json.dumps(content).replace('"sigma":', '"sigma": 1.0, "sigma":', 1))
