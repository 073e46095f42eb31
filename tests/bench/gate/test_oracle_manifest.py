"""Manifests of oracles: whole, checked, and no change of an oracle goes unseen."""

import copy
import dataclasses
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from sdp_bench.bench import environment
from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.experiments.iris import ci
from sdp_bench.bench.gate.oracles import checks as oracle_checks
from sdp_bench.bench.gate.oracles import manifest as oracle_manifest
from sdp_bench.bench.gate.oracles.manifest import MANIFESTS, Manifest, ci_oracles, load, record, save
from sdp_bench.bench.gate.oracles.statistics import (
    OTHER_PLATFORM,
    SAME_PLATFORM,
    Cells,
    Statistics,
    disagreements,
    standard_errors,
)
from sdp_bench.bench.gate.oracles.verify import compare, rotating_shard, shard_of, verify
from sdp_bench.bench.gate.verdict import Status, exit_code
from sdp_bench.bench.metrics.oracle import Oracle
from sdp_bench.bench.metrics.total_variation import HeadlineTotalVariation
from sdp_bench.bench.replay import oracles as stored_oracles
from sdp_bench.bench.results.store import Store
from sdp_bench.bench.runs import group as run
from sdp_bench.oracles.moments.moments import Moments
from sdp_bench.oracles.partitions.partition import total_variation_of_counts
from sdp_bench.oracles.partitions.precision import Rounding
from sdp_bench.oracles.partitions.tree import EqualMassTree
from tests.bench.conftest import TINY, begin


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def sources():
    """Two small oracles, of nets with one and four hidden layers."""
    groups = ci.groups(("sdp",), samples=2**14, pilot_samples=2**13, cells=32, inputs=1, sigmas=(0.1,))
    return [each for each in oracle_manifest.oracles(groups) if each[0].net.architecture.depth != 2]


@pytest.fixture(scope="module")
def manifests(sources):
    return [record(*source) for source in sources]


@pytest.fixture
def stored(tmp_path, manifests):
    save(manifests, tmp_path / "oracles.json")
    return tmp_path / "oracles.json"


def of(oracle, **changes):
    """The same oracle with something changed, drawn anew."""
    values = {name: getattr(oracle, name) for name in ("net", "law", "key", "sampling")} | changes
    return Oracle(**values)


def changed(findings):
    """What disagrees, in the order of the findings."""
    return [finding.text.partition(":")[0] for finding in findings if finding.stops]


def found(manifest, oracle, bitwise=False):
    return set(changed(compare(manifest, oracle, bitwise=bitwise)))


# The committed file -----------------------------------------------------------------------------


def test_the_committed_manifests_are_those_of_the_ci_cells_and_whole():
    loaded = load()
    assert [manifest.key for manifest, _ in loaded] == [oracle.key.hex for _, _, oracle in ci_oracles()]
    for manifest, written in loaded:
        assert manifest.hash == written
        names = [check.name for check in manifest.checks]
        one_layer = manifest.net.startswith("4-100-3 ")
        assert names == ["finite", "second draw", "mc draw", "float64", *["exact moments"][: int(one_layer)]]
        assert all(check.passed for check in manifest.checks)
        assert sum(manifest.statistics.cells) == sum(manifest.statistics.classes) == manifest.oracle.samples
        assert manifest.versions.keys() >= {"python", "torch", "numpy", "scipy", "platform", "cpu"}
    assert MANIFESTS.stat().st_size < 300e3


@pytest.mark.rounding
def test_one_committed_oracle_of_each_net_comes_out_again():
    today = {oracle.key.hex: oracle for _, _, oracle in ci_oracles()}
    here = oracle_manifest.versions()
    for manifest, _ in load()[::9]:
        findings = compare(manifest, today[manifest.key], bitwise=manifest.made_on(here))
        assert not changed(findings), "\n".join(map(str, findings))


@pytest.mark.slow
@pytest.mark.parametrize("part", [1, 2, 3, 4])
def test_every_committed_oracle_comes_out_again(part):
    verdict = verify(shard=(part, 4))
    assert verdict.status == "passed", verdict.findings
    assert verdict.kind == "oracle"


# Shards -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 2, 4, 5, 30])
def test_all_shards_together_are_all_oracles_once(parts):
    manifests = [manifest for manifest, _ in load()]
    shards = [shard_of(manifests, (part, parts)) for part in range(1, parts + 1)]
    keys = [manifest.key for shard in shards for manifest in shard]
    assert sorted(keys) == sorted(manifest.key for manifest in manifests)


def test_consecutive_runs_and_days_go_through_all_shards(monkeypatch):
    seen = set()
    for number in range(100, 104):
        monkeypatch.setenv("GITHUB_RUN_NUMBER", str(number))
        shard, why = rotating_shard()
        assert why == f"GITHUB_RUN_NUMBER={number}"
        seen.add(shard)
    assert seen == {(part, 4) for part in range(1, 5)}
    monkeypatch.delenv("GITHUB_RUN_NUMBER")
    (part, parts), why = rotating_shard()
    day = int(why.removeprefix("the day of the year, "))
    assert 1 <= day <= 366
    assert (part, parts) == (day % 4 + 1, 4)


# Drift ------------------------------------------------------------------------------------------


@pytest.mark.rounding
def test_an_oracle_that_did_not_change_agrees_to_the_last_bit(stored, sources):
    verdict = verify(stored, (1, 1), sources=[(g, p, of(t)) for g, p, t in sources])
    assert (verdict.kind, verdict.status, exit_code([verdict])) == ("oracle", "passed", 0)
    assert verdict.summary == "oracle: PASSED (2 unchanged)"
    assert [f.text for f in verdict.findings] == ["equal to the last bit"] * 2
    assert verdict.note == "2 of 2 recorded oracles, part 1/1 by request"
    assert json.loads(json.dumps(verdict.as_dict()))["kind"] == "oracle"


def test_on_another_platform_rounding_passes_and_is_said(stored, sources, manifests):
    elsewhere = [replace(each, versions=each.versions | {"cpu": "abacus"}) for each in manifests]
    save(elsewhere, stored)
    verdict = verify(stored, (1, 1), sources=sources)
    assert verdict.summary == "oracle: PASSED (2 rounding)"


@pytest.mark.rounding
def test_the_number_of_threads_changes_no_sample(manifests, sources):
    torch.set_num_threads(2)
    for manifest, (_, _, oracle) in zip(manifests, sources, strict=True):
        assert found(manifest, of(oracle), bitwise=True) == set()


@pytest.mark.rounding
def test_another_order_of_summation_is_rounding_and_seen_only_bit_by_bit(manifests, sources):
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
        assert "digest" in found(manifest, again, bitwise=True)


def other_seed(oracle, monkeypatch):
    real = type(oracle.key).seed
    monkeypatch.setattr(type(oracle.key), "seed", lambda key, purpose: real(key, f"{purpose}!"))
    return of(oracle)


def other_generator(oracle, monkeypatch):
    import sdp_bench.oracles.sampling.noise

    monkeypatch.setattr(
        sdp_bench.oracles.sampling.noise,
        "generator_of",
        lambda seed, block: np.random.Generator(np.random.PCG64([seed, block])),
    )
    return of(oracle)


def other_sigma(oracle, monkeypatch):
    return of(oracle, law=type(oracle.law)(oracle.law.mean, oracle.law.variance * 1.001**2))


def other_weights(oracle, monkeypatch):
    net = copy.deepcopy(oracle.net)
    with torch.no_grad():
        net[0].weight.mul_(1 + 1e-3)
    return of(oracle, net=net)


def one_other_weight(oracle, monkeypatch):
    net = copy.deepcopy(oracle.net)
    with torch.no_grad():
        net[-1].bias[0] += 1e-3
    return of(oracle, net=net)


def other_dtype(oracle, monkeypatch):
    return of(oracle, net=copy.deepcopy(oracle.net).double(), law=oracle.law.to(dtype=torch.float64))


def low_precision(oracle, monkeypatch):
    class Low(torch.nn.Module):
        def forward(self, x):
            return oracle.net(x.bfloat16().float())

    return of(oracle, net=Low())


def fewer_samples(oracle, monkeypatch):
    return of(oracle, key=replace(oracle.key, samples=2**13))


def no_noise(oracle, monkeypatch):
    monkeypatch.setattr(
        Oracle, "_draw", lambda self, n, seed, sampler: self.net(self.law.mean).detach().expand(n, -1)
    )
    return of(oracle)


@pytest.mark.parametrize(
    ("drift", "seen"),
    [
        (other_seed, {"seed", "pilot seed", "rows"}),
        (other_generator, {"rows"}),
        (other_sigma, {"rows"}),
        (other_weights, {"rows"}),
        (one_other_weight, {"rows", "mean"}),
        (other_dtype, {"dtype"}),
        (low_precision, {"rows"}),
        (fewer_samples, {"seed", "rows", "covariance"}),
        (no_noise, {"rows", "covariance"}),
    ],
)
def test_a_drift_is_seen_even_on_another_platform(drift, seen, manifests, sources, monkeypatch):
    for manifest, (_, _, oracle) in zip(manifests, sources, strict=True):
        drifted = drift(oracle, monkeypatch)
        assert found(manifest, drifted) >= seen
        monkeypatch.undo()


def test_statistics_that_are_computed_otherwise_are_seen_where_samples_are_equal(manifests, sources):
    """Divisor N - 1 in place of N: less than rounding may do elsewhere, seen on the same platform."""
    statistics = manifests[0].statistics
    n = sum(statistics.classes)
    other = replace(statistics, covariance=(np.array(statistics.covariance) * n / (n - 1)).tolist())
    names = [name for name, _ in disagreements(statistics, other, SAME_PLATFORM, bitwise=True)]
    assert names == ["covariance"]


def test_numbers_that_are_not_numbers_disagree(manifests):
    statistics = manifests[0].statistics
    for broken in (replace(statistics, mean=[float("nan")] * 3), replace(statistics, mean=[0.0])):
        assert list(disagreements(statistics, broken, OTHER_PLATFORM, bitwise=False))


def test_an_oracle_that_cannot_be_drawn_is_a_finding(manifests, sources):
    net = copy.deepcopy(sources[0][2].net)
    with torch.no_grad():
        net[0].weight.fill_(float("nan"))
    (finding,) = compare(manifests[0], of(sources[0][2], net=net), bitwise=False)
    assert "cannot be drawn again: the network gives non-finite outputs" in str(finding)


# The file ---------------------------------------------------------------------------------------


def test_manifests_come_back_from_their_file(stored, manifests):
    assert load(stored) == [(manifest, manifest.hash) for manifest in manifests]


@pytest.mark.parametrize(
    "edit",
    [
        lambda plain: plain["statistics"]["mean"].__setitem__(0, plain["statistics"]["mean"][0] + 1e-12),
        lambda plain: plain["statistics"]["cells"].reverse(),
        lambda plain: plain["checks"][1]["numbers"].update(largest_z=0.0),
        lambda plain: plain["versions"].update(torch="1.0"),
        lambda plain: plain.update(seed=plain["seed"] + 1),
    ],
)
def test_an_edit_by_hand_is_seen(stored, sources, edit):
    plain = json.loads(stored.read_text())
    edit(plain["oracles"][1])
    stored.write_text(json.dumps(plain))
    verdict = verify(stored, (1, 2), sources=sources)  # the edited one is not in this shard
    assert (verdict.status, exit_code([verdict])) == ("changed", 1)
    assert changed(verdict.findings) == ["hash"]


def test_a_recorded_failure_and_a_manifest_without_checks_are_seen(tmp_path, manifests, sources):
    failed = replace(manifests[0], checks=(replace(manifests[0].checks[0], passed=False),))
    save([failed, replace(manifests[1], checks=())], tmp_path / "oracles.json")
    verdict = verify(tmp_path / "oracles.json", (1, 1), sources=sources)
    assert changed(verdict.findings) == ["checks", "checks"]
    assert "recorded as failed: finite" in str(verdict.findings[0])


def test_a_cell_without_manifest_and_a_manifest_without_cell_are_seen(tmp_path, manifests, sources):
    save(manifests[:1], tmp_path / "oracles.json")
    verdict = verify(tmp_path / "oracles.json", (1, 1), sources=sources)
    assert changed(verdict.findings) == ["missing"]
    verdict = verify(tmp_path / "oracles.json", (1, 1), sources=sources[1:])
    assert changed(verdict.findings) == ["missing", "unknown"]
    assert not any(f.status is Status.UNCHANGED for f in verdict.findings)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read"),
        ("{", "not a file of manifests"),
        ('{"schema": 99, "oracles": []}', "schema 1"),
        ("[]", "schema 1"),
        ('{"schema": 1, "oracles": [{"key": "0"}]}', "not a manifest"),
    ],
)
def test_what_is_no_file_of_manifests_is_told(tmp_path, content, message):
    if content is not None:
        (tmp_path / "oracles.json").write_text(content)
    with pytest.raises(UserError, match=message):
        load(tmp_path / "oracles.json")


# Checks -----------------------------------------------------------------------------------------


def test_the_checks_state_their_numbers(manifests):
    one, four = ({check.name: check for check in manifest.checks} for manifest in manifests)
    assert "exact moments" in one
    assert "exact moments" not in four
    for checks in (one, four):
        for name in ("second draw", "mc draw"):
            numbers = checks[name].numbers
            assert 0 < numbers["largest_z"] < 8
            assert numbers["values"] == 9
            assert numbers["cells"] == 32
        assert 0 < checks["float64"].numbers["rows"] < OTHER_PLATFORM.samples


def test_an_oracle_that_another_draw_contradicts_is_refused(sources, monkeypatch):
    """Samples that are all drawn at a shifted input, as if the draw forgot where the input is."""
    group, place, oracle = sources[1]
    wrong = of(oracle)
    shifted = type(oracle.law)(oracle.law.mean + 0.01, oracle.law.variance)
    wrong.__dict__["samples"] = of(oracle, law=shifted).samples
    with pytest.raises(RunFailedError, match=r"is refused: .*second draw: largest z.*mc draw: largest z"):
        record(group, place, wrong)


def test_exact_moments_refuse_a_sampler_that_is_wrong_in_every_draw(sources, monkeypatch):
    """One that draws 1 % too wide agrees with itself, and not with the exact moments."""
    real = Oracle._draw

    def wide(self, samples, seed, sampler):
        law = type(self.law)(self.law.mean, self.law.variance * 1.01**2)
        return real(Oracle(self.net, law, self.key, self.sampling), samples, seed, sampler)

    monkeypatch.setattr(Oracle, "_draw", wide)
    group, place, oracle = sources[0]
    with pytest.raises(RunFailedError, match="is refused: exact moments: largest z"):
        record(group, place, of(oracle))


def test_a_net_whose_float32_is_too_coarse_is_drawn_in_float64_and_refused_in_float32(sources):
    """A large constant on the outputs leaves few digits to their spread."""
    group, place, oracle = sources[0]
    net = copy.deepcopy(oracle.net)
    with torch.no_grad():
        net[2].bias += 1e5
    manifest = record(group, place, of(oracle, net=net))
    assert manifest.statistics.dtype == "float64"
    assert {check.detail for check in manifest.checks if check.name == "float64"} == {"drawn in float64"}
    blind = of(oracle, net=net)
    blind.__dict__["rounding"] = Rounding(moved=0.0, allowed=1.0, single=3, double=3)
    with pytest.raises(RunFailedError, match="float64: rows off by"):
        record(group, place, blind)


def test_standard_errors_are_those_of_the_mean_and_the_covariance():
    """On normal samples, sd / sqrt(N) and sd_i sd_j sqrt((1 + rho^2) / N)."""
    generator = np.random.default_rng(0)
    n, blocks = 400_000, 200
    mixing = np.array([[1.0, 0.5], [0.0, 2.0]])
    samples = generator.standard_normal((n, 2)) @ mixing
    mean, covariance = standard_errors(Moments.from_samples(torch.from_numpy(samples), blocks))
    truth = mixing.T @ mixing
    outer = np.outer(np.diag(truth), np.diag(truth))
    expected = np.sqrt((outer + truth**2) / n)
    spread = 4 / np.sqrt(2 * blocks)  # four standard errors of a standard error
    assert mean == pytest.approx(np.sqrt(np.diag(truth) / n), rel=spread)
    assert covariance == pytest.approx(expected, rel=spread)
    bootstrapped = Moments.from_samples(torch.from_numpy(samples), blocks).replicates(4000)
    assert bootstrapped[0].std(0) == pytest.approx(mean, rel=0.05)


def test_z_scores_of_checks_are_calibrated():
    """P values of two honest draws are not small more often than they should be."""
    generator = np.random.default_rng(1)
    small = 0
    for _ in range(300):
        draws = [torch.from_numpy(generator.standard_normal((1600, 3))) for _ in range(2)]
        tree = EqualMassTree.from_samples(generator.standard_normal((800, 3)), cells=16)
        moments = [Moments.from_samples(draw, 16) for draw in draws]
        counts = [tree.counts(draw) for draw in draws]
        check = oracle_checks._agreement("x", *moments, counts[0].tolist(), counts[1])
        assert check.passed
        small += float(check.detail.rpartition("p ")[2]) < 0.05
    assert small <= 300 * 0.05 + 4 * (300 * 0.05 * 0.95) ** 0.5


def test_cells_come_back_from_plain_numbers(sources):
    oracle = sources[0][2]
    tree = HeadlineTotalVariation(cells=32, pilot_samples=2**13).partition(oracle)
    again = Cells(**json.loads(json.dumps(dataclasses.asdict(Cells.of(tree))))).tree
    assert (again.counts(oracle.samples) == tree.counts(oracle.samples)).all()
    flat = EqualMassTree.from_samples(torch.ones(100, 3), cells=4)  # no direction has any spread
    assert Cells.of(flat).tree.axes.shape == (3, 0)
    assert (Cells.of(flat).tree.counts(torch.ones(7, 3)) == flat.counts(torch.ones(7, 3))).all()


def test_another_seed_moves_more_samples_than_rounding_may(manifests, sources):
    """So that cells alone would show it: the tolerance is below the noise of a draw."""
    for manifest, (_, _, oracle) in zip(manifests, sources, strict=True):
        again = of(oracle)
        again.__dict__["samples"] = oracle.redrawn("again", "sobol")
        counts = manifest.cells.tree.counts(again.samples)
        moved = total_variation_of_counts(
            np.array(manifest.statistics.cells), counts, oracle.floors(manifest.cells.tree)[0]
        ).value
        assert moved > 2 * OTHER_PLATFORM.cells


# Oracles of ordinary runs -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "results.sqlite"
    settings = TINY.but(net_source="committed", training={}, width=100, samples=2**14, sigmas=(0.1,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SDP_BENCH_CACHE", str(path.parent / "cache"))
        settings = settings.but(nets=1, inputs=1, rules=("sdp", "oracle_again"))
        plan = make_plan_of_committed(settings)
        with Store(path, writing=True) as store:
            number = begin(store, plan)
            result = run.run_group(plan.groups[0], plan.groups[0].cells)
            assert not result.failures
            run.store_result(store, number, plan.groups[0], result, plan.groups[0].cells)
            store.finish_run(number, 1.0)
    return path, plan.groups[0].subjects[0].key


def make_plan_of_committed(settings):
    from sdp_bench.bench.experiments import chosen
    from sdp_bench.bench.nets.architectures import Architecture
    from sdp_bench.bench.nets.fully_connected import committed
    from sdp_bench.bench.nets.recipes import recipe_for
    from sdp_bench.bench.runs.plan import plan_of

    net = committed(Architecture(1), recipe_for(Architecture(1)), 1)
    return plan_of(chosen(["iris-std"]), settings, net)


def test_the_oracle_of_an_ordinary_run_has_a_manifest(database):
    path, key = database
    with Store(path) as store:
        shown = stored_oracles.description(store, key.hex[:6])
    assert (shown["key"], shown["seed"]) == (key.hex, key.seed("oracle"))
    assert (shown["method"], shown["samples"]) == ("plain Monte Carlo", 2**14)
    assert shown["versions"]["torch"] == environment.describe("cpu", 1, 1)["torch"]
    assert {row["metric"] for row in shown["second draw"]} >= {"std_ratio", "bures"}
    assert all(np.isfinite(row["value"]) for row in shown["second draw"])
    again = dict(shown)
    assert stored_oracles.digest({k: v for k, v in again.items() if k != "hash"})[:16] == shown["hash"]


def test_and_one_with_statistics_and_checks_when_it_is_drawn_again(database):
    path, key = database
    with Store(path) as store:
        manifest = stored_oracles.drawn_again(store, key.hex)
    assert isinstance(manifest, Manifest)
    assert manifest.oracle == key
    assert manifest.seed == key.seed("oracle")
    assert [check.name for check in manifest.checks][1:3] == ["second draw", "sobol draw"]
    assert sum(manifest.statistics.cells) == 2**14


def test_an_oracle_that_is_not_there_is_told(database):
    path, _ = database
    with Store(path) as store:
        for prefix in ("zzzz", ""):
            with pytest.raises(UserError, match="no oracle has a key"):
                stored_oracles.description(store, prefix)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda one: one.update(row="a"), '"a" is no int @ .row'),
        (lambda one: one.update(seed=None), "null is no int @ .seed"),
        (lambda one: one.update(statistics=[]), "@ .statistics"),
        (lambda one: one["statistics"].update(mean="x"), '"x" is no float @ .statistics.mean'),
        (lambda one: one["statistics"]["mean"].append(True), r"true is no float @ .statistics.mean\[3\]"),
        (lambda one: one["statistics"]["mean"].append(0.0), "not of shape"),
        (lambda one: one["statistics"]["rows"][0].pop(), "inhomogeneous"),
        (lambda one: one["cells"]["axes"].pop(), "the axes of the cells are not 3 directions"),
        (lambda one: one["cells"].pop("rounding"), "rounding is missing @ .cells"),
        (lambda one: one["pilot"].pop("seed"), "seed is missing @ .pilot"),
        (lambda one: one["checks"].append(1), r"@ .checks\[\d\]"),
        (lambda one: one["checks"][0].update(passed="yes"), r'"yes" is no bool @ .checks\[0\].passed'),
        (lambda one: one.pop("hash"), "hash is missing"),
    ],
)
def test_a_damaged_manifest_is_told_in_one_line(stored, edit, message):
    plain = json.loads(stored.read_text())
    edit(plain["oracles"][1])
    stored.write_text(json.dumps(plain))
    with pytest.raises(
        UserError, match=rf"is damaged: not a manifest of an oracle \(\w+\): .*{message}"
    ) as told:
        load(stored)
    assert "\n" not in str(told.value)
    assert told.value.exit_code == 2


def test_a_manifest_twice_and_no_manifest_are_refused(tmp_path, manifests):
    path = tmp_path / "oracles.json"
    save([*manifests, manifests[0]], path)
    with pytest.raises(UserError, match=f"has the oracle {manifests[0].key} .* twice"):
        load(path)
    save([], path)
    with pytest.raises(UserError, match="has no manifests"):
        load(path)
    for entries in ("{}", "[3]", "null"):
        path.write_text(f'{{"schema": 1, "oracles": {entries}}}')
        with pytest.raises(UserError, match=r"has no manifests|is damaged: not a manifest .*no mapping"):
            load(path)


def test_a_part_without_oracles_is_no_pass(stored, sources):
    with pytest.raises(UserError, match=r"part 3/4 by request is empty: .* has 2 manifests"):
        verify(stored, (3, 4), sources=sources)


def test_a_manifest_without_a_statistic_is_refused(manifests):
    plain = manifests[0].as_dict()
    del plain["statistics"]["rows"]
    with pytest.raises(UserError, match="not a manifest"):
        Manifest.from_dict(plain)


def test_statistics_of_a_constant_output(sources):
    tree = EqualMassTree.from_samples(torch.ones(100, 3), cells=4)
    samples = torch.ones(4096, 3)
    statistics = Statistics.of(samples, Moments.from_samples(samples), samples[:100], tree)
    assert not list(disagreements(statistics, statistics, SAME_PLATFORM, bitwise=True))
    moved = replace(statistics, mean=[1.0, 1.0, 1.1])
    assert [name for name, _ in disagreements(statistics, moved, OTHER_PLATFORM, bitwise=False)] == ["mean"]
