import json

import pytest

from sdp_bench.bench import manifests
from sdp_bench.bench.identity import digest
from sdp_bench.bench.manifests import MANIFESTS, ci_oracles
from tests.attacks.calls import called


def call(*arguments):
    code, out, err = called(["oracles", *arguments], seconds=600)
    return code, out + err


@pytest.fixture
def few(monkeypatch):
    sources = ci_oracles()[:2]
    monkeypatch.setattr(manifests, "ci_oracles", lambda: sources)
    return sources


def test_recording_gives_what_verification_finds_again(tmp_path, few, monkeypatch):
    path = tmp_path / "oracles.json"
    code, output = call("record", "--manifests", path)
    assert code == 0
    assert "2 manifests in" in output
    monkeypatch.setenv("GITHUB_RUN_NUMBER", "8")
    code, output = call("verify", "--manifests", path)
    assert code == 0
    assert "1 of 2 recorded oracles, part 1/4 by GITHUB_RUN_NUMBER=8" in output
    path.write_text(path.read_text().replace('"sigma": ', '"sigma": 1', 1))
    code, output = call("verify", "--manifests", path, "--shard", "2/2")
    assert code == 2
    assert "damaged or edited" in output


def test_an_oracle_that_differs_from_its_manifest_ends_in_one(tmp_path, few):
    path = tmp_path / "oracles.json"
    made = [manifests.record(*source) for source in few]
    changed = {**made[0], "statistics": made[1]["statistics"]}
    content = {name: value for name, value in changed.items() if name not in ("key", "hash")}
    changed["hash"] = digest(content)[:16]
    manifests.save([changed, made[1]], path)
    code, output = call("verify", "--manifests", path, "--shard", "1/2")
    assert code == 1
    assert "mean: off by" in output
    assert "oracle: CHANGED" in output


def test_a_recorded_manifest_is_shown():
    stored = manifests.load()[3]
    code, output = call("show", stored["key"][:12])
    assert code == 0
    assert json.loads(output) == stored


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "zz"), "no recorded oracles have a key that begins with 'zz'"),
        (("show", "8"), "4 recorded oracles have a key"),
        (("show", "ab", "--database", "nowhere.sqlite"), "nowhere.sqlite"),
        (("verify", "--manifests", "nowhere.json"), "cannot read nowhere.json"),
        (("verify", "--manifests", MANIFESTS.with_name("README.md")), "not a file of manifests"),
        (("verify", "--shard", "5/4"), "not a part i/n"),
    ],
)
def test_wrong_usage_is_told(arguments, message):
    code, output = call(*arguments)
    assert code == 2
    assert message in output
