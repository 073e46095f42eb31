import copy

import numpy as np
import pytest
import torch

from sdp_bench.bench import environment
from sdp_bench.bench.experiments import ci
from sdp_bench.bench.identity import SeedRoot, digest
from sdp_bench.bench.manifests import (
    MANIFESTS,
    ci_oracles,
    compare,
    load,
    oracles,
    record,
    rotating_shard,
    save,
    statistics_of,
    verify,
)
from sdp_bench.bench.metrics.oracle import Oracle
from sdp_bench.bench.replay import replay as stored_oracles
from sdp_bench.bench.results.store import Store
from tests.bench.conftest import TINY, change


@pytest.fixture(scope="module")
def sources():
    groups = ci.groups(("sdp",), samples=2**14, pilot_samples=2**13, cells=32, inputs=1, sigmas=(0.1,))
    return [each for each in oracles(groups) if each[0].net.architecture.depth != 2]


@pytest.fixture(scope="module")
def manifests(sources):
    return [record(*source) for source in sources]


def of(oracle, **changes):
    """The same oracle with something changed, drawn anew."""
    values = {name: getattr(oracle, name) for name in ("net", "law", "key", "sampling")} | changes
    return Oracle(**values)


def found(manifest, oracle):
    """Names of the statistics that disagree."""
    return {line.partition(":")[0] for line in compare(manifest, oracle)}


def names(problems):
    return [line.partition(":")[0] for lines in problems.values() for line in lines]


def test_the_committed_manifests_are_those_of_the_ci_cells_and_complete():
    loaded = load()
    assert [manifest["key"] for manifest in loaded] == [oracle.key.hex for _, _, oracle in ci_oracles()]
    for manifest in loaded:
        assert sum(manifest["statistics"]["classes"]) == manifest["oracle"]["samples"]
        assert manifest["versions"].keys() >= {"python", "torch", "numpy", "scipy", "platform", "cpu"}
    assert MANIFESTS.stat().st_size < 300e3


@pytest.mark.rounding
def test_one_committed_oracle_of_each_net_is_reproduced():
    today = {oracle.key.hex: oracle for _, _, oracle in ci_oracles()}
    for manifest in load()[::9]:
        assert not compare(manifest, today[manifest["key"]])


def test_consecutive_runs_and_days_go_through_all_parts(monkeypatch):
    parts = set()
    for number in range(100, 104):
        monkeypatch.setenv("GITHUB_RUN_NUMBER", str(number))
        part, reason = rotating_shard()
        assert reason == f"GITHUB_RUN_NUMBER={number}"
        parts.add(part)
    assert parts == {(part, 4) for part in range(1, 5)}
    monkeypatch.delenv("GITHUB_RUN_NUMBER")
    (part, number), reason = rotating_shard()
    day = int(reason.removeprefix("the day of the year, "))
    assert 1 <= day <= 366
    assert (part, number) == (day % 4 + 1, 4)


@pytest.mark.rounding
def test_another_order_of_summation_is_rounding(manifests, sources):
    """Hidden units in another order: mathematically the same net, as by another BLAS."""
    for manifest, (_, _, oracle) in zip(manifests, sources, strict=True):
        net = copy.deepcopy(oracle.net)
        order = torch.randperm(100, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            for name in ("weight", "bias"):
                getattr(net[0], name).copy_(getattr(net[0], name)[order])
            net[2].weight.copy_(net[2].weight[:, order])
        again = of(oracle, net=net)
        assert not torch.equal(again.samples, oracle.samples)
        assert found(manifest, again) == set()


def other_seed(oracle, monkeypatch):
    real = type(oracle.key).seed
    monkeypatch.setattr(type(oracle.key), "seed", lambda key, purpose: real(key, f"{purpose}!"))
    return of(oracle)


def other_sigma(oracle, monkeypatch):
    return of(oracle, law=type(oracle.law)(oracle.law.mean, oracle.law.variance * 1.001**2))


def one_other_weight(oracle, monkeypatch):
    net = copy.deepcopy(oracle.net)
    with torch.no_grad():
        net[-1].bias[0] += 1e-3
    return of(oracle, net=net)


def low_precision(oracle, monkeypatch):
    class Low(torch.nn.Module):
        def forward(self, x):
            return oracle.net(x.bfloat16().float())

    return of(oracle, net=Low())


@pytest.mark.parametrize(
    ("drift", "seen"),
    [
        (other_seed, {"seed", "rows"}),
        (other_sigma, {"rows"}),
        (one_other_weight, {"rows", "mean"}),
        (low_precision, {"rows"}),
    ],
)
def test_a_drift_is_seen_even_on_another_platform(drift, seen, manifests, sources, monkeypatch):
    for manifest, (_, _, oracle) in zip(manifests, sources, strict=True):
        drifted = drift(oracle, monkeypatch)
        assert found(manifest, drifted) >= seen
        monkeypatch.undo()


def test_a_cell_without_manifest_and_a_manifest_without_cell_are_detected(tmp_path, manifests, sources):
    save(manifests[:1], tmp_path / "oracles.json")
    problems, _ = verify(tmp_path / "oracles.json", (1, 1), sources=sources)
    assert names(problems) == ["missing"]
    problems, _ = verify(tmp_path / "oracles.json", (1, 1), sources=sources[1:])
    assert names(problems) == ["missing", "unknown"]


def test_standard_errors_are_those_of_the_mean_and_the_covariance(sources):
    """The bootstrap over blocks has the same spread."""
    _, _, oracle = sources[0]
    statistics = statistics_of(oracle)
    means, covariances = oracle.moments.replicates(4000)
    assert means.std(0) == pytest.approx(np.array(statistics["mean_stderr"]), rel=0.05)
    assert covariances.std(0) == pytest.approx(np.array(statistics["covariance_stderr"]), rel=0.05)


def test_the_oracle_of_an_ordinary_run_has_a_manifest(tiny_copy):
    change(tiny_copy, "UPDATE rules SET spec = 'oracle_again' WHERE spec = 'sdp'")
    change(tiny_copy, "UPDATE records SET rule = 'oracle_again' WHERE rule = 'sdp'")
    with Store(tiny_copy) as store:
        key = store.tables()["units"]["key"].iloc[0]
        shown = stored_oracles.description(store, key[:8])
    assert (shown["key"], shown["seed"]) == (key, SeedRoot(key).seed("oracle"))
    assert (shown["method"], shown["samples"]) == ("plain Monte Carlo", TINY.sampling.samples)
    assert shown["versions"]["torch"] == environment.describe("cpu", 1, 1)["torch"]
    assert {row["metric"] for row in shown["second draw"]} >= {"std_ratio", "bures"}
    assert all(np.isfinite(row["value"]) for row in shown["second draw"])
    assert digest({name: value for name, value in shown.items() if name != "hash"})[:16] == shown["hash"]
