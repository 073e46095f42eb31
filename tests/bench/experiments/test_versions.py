import pytest

import sdp_ref
from sdp_bench.bench.experiments import versions
from sdp_bench.bench.metrics import metrics
from sdp_bench.bench.rules import resolve, rule_of
from sdp_ref.rules import DVIA, SDP
from tests.bench.conftest import TINY, make_plan, run_all
from tests.project import ROOT

TEMPLATE = (ROOT / "docs/examples/template.py").read_text(encoding="utf-8")


def test_the_text_names_rule_metric_and_oracle(monkeypatch):
    assert versions.of_measurement("sdp", "bures") == "rule 1, metric 1, oracle 1"
    monkeypatch.setattr(SDP, "version", 3)
    monkeypatch.setattr(metrics()["bures"], "version", 2)
    assert versions.of_measurement("sdp", "bures") == "rule 3, metric 2, oracle 1"
    assert versions.of_measurement("dvia", "w1") == "rule 1, metric 1, oracle 1"


@pytest.mark.parametrize("reference", ["oracle_moments", "oracle_again"])
def test_references_have_versions_too(reference, monkeypatch):
    monkeypatch.setitem(vars(rule_of(reference)), "version", 4)
    assert versions.of_measurement(reference, "bures") == "rule 4, metric 1, oracle 1"


def test_the_version_of_a_wrapped_rule_counts(monkeypatch):
    split = sdp_ref.rule("split:base=dvia,k=3")
    assert versions.of_rule(split) == "1+1"
    monkeypatch.setattr(DVIA, "version", 2)
    assert versions.of_rule(split) == "1+2"
    assert versions.of_rule(sdp_ref.rule("split:k=3")) == "1+1"


def test_a_plug_in_whose_source_changes_is_measured_again(tmp_path):
    def measured(factor):
        path = tmp_path / "mine.py"
        path.write_text(TEMPLATE.replace("inflation: float = 1.0", f"inflation: float = {factor}"))
        _, (plugin,) = resolve([f"{path}:MyRule"])
        settings = TINY.but(rules=("sdp", "my_rule"), plugins=(plugin,), nets=1, sigmas=(10.0,))
        return plugin.version, run_all(tmp_path / "r.sqlite", make_plan(settings, ["iris-std"]))

    first, before = measured(2.0)
    assert measured(2.0)[1].run.eq(1).all()
    second, after = measured(3.0)
    assert first != second
    assert set(after.run[after.rule == "my_rule"]) == {3}
    assert set(after.run[after.rule == "sdp"]) == {1}
    expected = f"rule {second}, metric 1, oracle 1"
    assert set(after.fingerprint[after.rule == "my_rule"]) == {expected}
    assert not after.value[after.rule == "my_rule"].equals(before.value[before.rule == "my_rule"])
