"""Accuracy that asv tracks: the CI cells, and nothing of its own."""

import json
import statistics

import pytest

from sdp_bench.bench.experiments import ci
from sdp_bench.bench.runs import driver as run
from sdp_bench.bench.runtime import accuracy
from sdp_bench.bench.runtime.accuracy import Accuracy


def test_figures_are_means_of_what_a_run_records():
    group = ci.groups(("sdp", "monte_carlo:samples=10"))[4]
    errors = accuracy.measure([group])
    records = run.run_group(group, group.cells).records
    name = f"{group.net.architecture.label} sigma {group.sigma:g}"
    for rule in ("sdp", "monte_carlo:samples=10"):
        for metric, track in (
            ("tv_headline", Accuracy().track_tv),
            ("gaussian_kl", Accuracy().track_gaussian_kl),
        ):
            own = [r.value for r in records if r.rule == rule and r.metric.startswith(metric)]
            assert len(own) == 3
            assert track(errors, name, rule) == pytest.approx(statistics.mean(own), rel=1e-12)
    assert errors[name, "sdp", "tv_headline"] < 0.9 < 1 < errors[name, "sdp", "gaussian_kl"] < 20


def test_a_prediction_of_another_commit_is_tracked_as_a_change(monkeypatch, tmp_path):
    """The mean of one input in the baseline is moved by half a standard deviation."""
    group = ci.groups(("marginal_sdp", "unscented"))[4]
    assert accuracy.change(group, "marginal_sdp") == accuracy.SAME
    baseline = json.loads(accuracy.BASELINE.read_text(encoding="utf-8"))
    answer = baseline["rules"]["marginal_sdp"]["predictions"][group.subjects[1].key.hex]
    answer["mean"][2] += 0.5 * answer["variance"][2] ** 0.5
    (tmp_path / "ci.json").write_text(json.dumps(baseline), encoding="utf-8")
    monkeypatch.setattr(accuracy, "BASELINE", tmp_path / "ci.json")
    assert accuracy.change(group, "marginal_sdp") == pytest.approx(0.5, rel=1e-5)
    assert accuracy.change(group, "unscented") == accuracy.SAME
