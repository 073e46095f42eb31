"""Damaged baselines and manifests are rejected in one line."""

import json
import math

import pytest

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.gate.cases import Scope
from sdp_bench.bench.manifests import MANIFESTS, load
from tests.attacks.calls import called, complaint
from tests.project import ROOT

STRANGE = (math.nan, math.inf, 1e200, "0.5", None, [])
TEXTS = {
    "a rule twice": lambda text: text.replace('"rules": {', '"rules": {"sdp": {"predictions": {}},', 1),
    "brackets": lambda text: "[" * 100_000,
    "a number of 5000 digits": lambda text: text.replace('"version": 5', '"version": 5' + "0" * 5000),
    "another version": lambda text: json.dumps(json.loads(text) | {"version": 99}),
    "no rules": lambda text: json.dumps(json.loads(text) | {"rules": {}}),
}


def first(mapping):
    return next(iter(mapping.values()))


def test_a_damaged_baseline_is_rejected(tmp_path, monkeypatch):
    scope = Scope.of_ci()
    monkeypatch.setattr(Scope, "of_ci", lambda: scope)
    path, plain = tmp_path / "ci.json", json.loads((ROOT / "reports/baselines/ci.json").read_text())
    text = json.dumps(plain | {"rules": {"sdp": plain["rules"]["sdp"]}}, indent=1)
    damaged = {name: change(text) for name, change in TEXTS.items()}
    for value in STRANGE:  # anywhere, since each rule has a digest
        content = json.loads(text)
        first(content["rules"]["sdp"]["predictions"])["mean"][0] = value
        damaged[repr(value)] = json.dumps(content)
    for name, content in damaged.items():
        path.write_text(content)
        ended = called(["check", "--baseline", path, "--rules", "sdp", "--no-oracles", "--no-speed"])
        assert complaint(*ended, (2,)) == "", name
        assert str(path) in ended.err, name


def test_a_damaged_manifest_is_rejected(tmp_path):
    content = json.loads(MANIFESTS.read_text())
    content["oracles"] = content["oracles"][:2]
    path = tmp_path / "oracles.json"
    path.write_text(json.dumps(content))
    load(path)
    for value in STRANGE:
        content["oracles"][1]["statistics"]["mean"] = value
        path.write_text(json.dumps(content))
        with pytest.raises(UserError) as error:
            load(path)
        assert "\n" not in str(error.value)
