"""The guard of versions: numbers that change without a new version are named, with the class to raise."""

import dataclasses

import pytest

import sdp_ref
from sdp_bench.bench.experiments import versions
from sdp_bench.bench.metrics import metrics
from sdp_bench.bench.metrics.distances import BuresDistance
from sdp_bench.bench.results.folder import read
from sdp_bench.bench.rules import resolve, rule_of
from sdp_ref import rules
from sdp_ref.laws import Gaussian
from sdp_ref.rules import DVIA, SDP, Split
from tests.bench import record_versions as guard
from tests.bench.conftest import TINY, make_plan, run_all
from tests.project import ROOT


def problems(*names):
    return guard.problems(guard.today(names), guard.recorded())


@pytest.mark.rounding
def test_no_number_changed_without_a_new_version():
    lines = problems(*guard.NAMES)
    assert not lines, "\n".join(lines)


def test_every_rule_and_metric_is_guarded():
    kinds = {name.partition(" ")[2].partition(":")[0] for name in guard.NAMES}
    assert kinds >= {*rules(), *metrics()}
    assert guard.recorded().keys() == set(guard.NAMES)
    assert all(entry["numbers"] for entry in guard.recorded().values())


def change(monkeypatch, rule, factor=1.003):
    """Let a rule predict covariances that are larger by a factor."""
    prepare = rule.prepare

    def wider(self, net):
        propagate = prepare(self, net)

        def changed(x):
            law = propagate(x)
            return Gaussian(law.mean, factor * law.covariance) if hasattr(law, "covariance") else law

        return changed

    monkeypatch.setattr(rule, "prepare", wider)


def test_a_changed_rule_is_named_with_the_class_to_raise(monkeypatch):
    change(monkeypatch, DVIA)
    (line,) = problems("rule dvia", "rule unscented")
    assert line.startswith("rule 'dvia' predicts other numbers than version 1 did (")
    assert "covariance off by 3e-03 of its size)" in line
    assert line.endswith(
        ": if the change is intended, raise DVIA.version to 2 and run `python -m tests.bench.record_versions`"
    )


def test_a_raised_version_passes_once_it_is_recorded(monkeypatch):
    names = ["rule dvia", "rule unscented"]
    monkeypatch.setattr(DVIA, "version", 2)
    assert problems(*names) == []  # nothing else changed
    change(monkeypatch, DVIA)
    (line,) = problems(*names)
    assert "has version 2: run `python -m" in line
    now, before = guard.today(names), guard.recorded()
    after = guard.record(now, before)
    assert guard.problems(now, after) == []
    assert after["rule dvia"] == now["rule dvia"]
    assert after["rule unscented"] == before["rule unscented"]


def test_what_is_not_recorded_and_what_is_gone_are_named():
    now = guard.today(["rule sdp"])
    (line,) = guard.problems(now, {})
    assert line == "rule sdp is not recorded yet: run `python -m tests.bench.record_versions`"
    entry = now["rule sdp"]
    fewer = {**entry, "numbers": dict(list(entry["numbers"].items())[1:])}
    (line,) = guard.problems({"rule sdp": fewer}, {"rule sdp": entry})
    assert "nothing any more for" in line


def test_a_rule_without_a_version_has_the_first():
    class Plain:
        name = "plain"

        def propagate(self, net, x):
            return x

    assert versions.of_rule(Plain()) == "1"


def test_a_rule_that_wraps_another_is_named_only_for_its_own_change(monkeypatch):
    names = ("rule sdp", "rule split:base=sdp,k=3")
    with monkeypatch.context() as patch:
        change(patch, SDP)
        (line,) = problems(*names)
        assert "raise SDP.version to 2" in line
    change(monkeypatch, Split)
    (line,) = problems(*names)
    assert line.startswith("rule 'split:base=sdp,k=3' predicts other numbers than version 1+1 did")
    assert "raise Split.version to 2" in line


def test_a_changed_oracle_is_named_and_not_the_metrics(monkeypatch):
    names = ("oracle", "rule oracle_moments", "metric bures")
    entries = {name: {"version": "1", "numbers": {"a, value": [1.0], "a, stderr": [0.1]}} for name in names}
    now = {name: {"version": "1", "numbers": {"a, value": [1.1], "a, stderr": [0.1]}} for name in names}
    (line,) = guard.problems(now, entries)
    assert line.startswith("the oracle draws other numbers")
    assert "raise ORACLE_VERSION (bench/metrics/oracle.py) to 2" in line


@pytest.mark.parametrize(
    ("name", "off", "is_named"),
    [
        ("metric bures", 1e-8, False),
        ("metric bures", 1e-5, True),
        ("metric tv_class", 4 / guard.SAMPLES, False),
        ("metric tv_class", 7 / guard.SAMPLES, True),
    ],
)
def test_what_processors_differ_by_is_no_change(name, off, is_named):
    before = {"a, value": [0.5], "a, stderr": [0.01]}
    assert bool(guard.difference(name, {**before, "a, value": [0.5 + off]}, before)) == is_named
    assert not guard.difference(name, {**before, "a, value": [0.5]}, before)
    assert guard.difference(name, {**before, "a, value": [float("nan")]}, before)


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
        frame = run_all(tmp_path / "r", make_plan(settings, ["iris-std"]), settings=settings)
        return plugin.version, frame.astype({"run": str})

    first, before = measured(2.0)
    _, again = measured(2.0)
    second, after = measured(3.0)
    runs = sorted(read(tmp_path / "r").runs)
    assert set(before.run) == set(again.run) == {runs[0]}
    assert first != second
    assert set(after.run[after.rule == "my_rule"]) == {runs[2]}
    assert set(after.run[after.rule == "sdp"]) == {runs[0]}
    expected = f"rule {second}, metric 1, oracle 1"
    assert set(after.fingerprint[after.rule == "my_rule"]) == {expected}
    assert not after.value[after.rule == "my_rule"].equals(before.value[before.rule == "my_rule"])


def test_a_changed_metric_is_named(monkeypatch):
    estimates = BuresDistance.estimates

    def larger(self, truth, prediction):
        for component, estimate in estimates(self, truth, prediction):
            yield component, dataclasses.replace(estimate, value=1.001 * estimate.value)

    monkeypatch.setattr(BuresDistance, "estimates", larger)
    (line,) = problems("metric bures", "metric std_ratio")
    assert line.startswith("metric 'bures' gives other numbers than version 1 did")
    assert "raise BuresDistance.version to 2" in line


def test_changed_numbers_of_an_unchanged_version_are_not_recorded(monkeypatch, tmp_path):
    file = tmp_path / "versions.json"
    file.write_text(guard.FILE.read_text())
    before = file.read_text()
    monkeypatch.setattr(guard, "FILE", file)
    monkeypatch.setattr(guard, "NAMES", ("rule dvia",))
    monkeypatch.setattr(guard.today, "__defaults__", (("rule dvia",),))
    change(monkeypatch, DVIA)
    with pytest.raises(SystemExit, match=r"raise DVIA\.version to 2"):
        guard.main()
    assert file.read_text() == before
    monkeypatch.setattr(DVIA, "version", 2)
    guard.main()
    assert problems("rule dvia") == []
