import dataclasses
import shutil
import weakref
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest
import torch

import sdp_ref
from sdp_bench.bench.errors import RefusedError, UserError
from sdp_bench.bench.executors.local import LocalProcesses, send
from sdp_bench.bench.experiments import PRESETS, experiment, law_group, preset, versions
from sdp_bench.bench.experiments.base import RuleBegun
from sdp_bench.bench.experiments.plan import traits_of
from sdp_bench.bench.metrics.distances import GaussianDivergence
from sdp_bench.bench.metrics.oracle import Oracle, Prediction
from sdp_bench.bench.metrics.total_variation import HeadlineTotalVariation
from sdp_bench.bench.reasons import reasons
from sdp_bench.bench.replay import replay
from sdp_bench.bench.results.columns import CELL, FAILED, MEASURED, UNDEFINED, UNSUPPORTED
from sdp_bench.bench.results.folder import read, read_plan
from sdp_bench.bench.results.joined import failures, joined_measurements
from sdp_bench.bench.rules import resolve
from sdp_bench.bench.runs import driver as run
from sdp_bench.bench.settings import Size
from sdp_bench.progress import Screen
from sdp_ref.rules import MonteCarlo, Traits, Unscented, linearization, traits
from tests.bench.conftest import TINY, begin, frame_of, left, make_plan, nets_of, run_all, statuses
from tests.bench.runs.helpers import numbers

METRICS = {  # those of TINY's experiments
    "tv_headline",
    "tv_paper",
    "tv_single",
    "tv_class",
    "tv_difference",
    "std_ratio",
    "bures",
    "gaussian_kl",
    "min_eigenvalue",
    "w1",
}


def test_a_plan_shares_oracles_between_experiments(plan):
    assert len(plan.groups) == 4  # two nets, two noise levels
    assert plan.rows["unit"].nunique() == 8  # with two inputs each
    w1 = plan.rows[plan.rows["experiment"] == "iris-w1"]
    assert w1["unit"].nunique() == 4  # one input each
    first = plan.rows[plan.rows["unit"] == w1["unit"].iloc[0]]
    assert set(first["metric_spec"].str.partition(":")[0]) == METRICS
    assert first["group"].nunique() == 1


def test_every_wanted_number_is_there_and_sane(tiny_results):
    frame = frame_of(tiny_results)
    expected = 8 * 3 * (5 + 3) + 8 * 3 * (3 + 1 + 1 + 1) + 4 * 3  # tv, std, w1 rows; 3 rules
    assert len(frame) == expected
    tv = frame[frame.metric.str.startswith("tv_")]
    assert tv.value.between(0, 1).all()
    assert (frame.floor95 >= frame.floor).all()
    assert (frame.stderr[frame.metric != "min_eigenvalue"] >= 0).all()
    assert (frame.seconds > 0).all()
    assert not frame.key.is_unique  # components of one measurement share its key
    assert not frame.duplicated(["experiment", "key", "component"]).any()
    # Nets are linear over a noise of 1e-3, where SDP is exact and marginal rules are not.
    small = frame[(frame.sigma == 1e-3) & (frame.metric == "tv_headline")].set_index("rule")
    assert (small.loc["sdp"].value <= small.loc["sdp"].floor + 4 * small.loc["sdp"].stderr).all()
    marginal = small.loc["marginal_moment_matching"]
    assert (marginal.value > 2 * marginal.floor95).all()


@pytest.mark.rounding
def test_numbers_do_not_depend_on_order_company_or_process(tiny_results, tmp_path, plan):
    whole = numbers(frame_of(tiny_results))
    backwards = numbers(run_all(tmp_path / "b", plan, groups=[*plan.groups][::-1]))
    pd.testing.assert_frame_equal(whole, backwards, check_exact=True)
    with LocalProcesses(2, 1) as executor:
        in_processes = numbers(run_all(tmp_path / "c", plan, executor=executor))
    pd.testing.assert_frame_equal(in_processes, whole, check_exact=True)
    alone = make_plan(TINY.but(rules=("monte_carlo:samples=10",)), ("iris-tv",))
    part = numbers(run_all(tmp_path / "d", alone))
    same = whole[(whole.experiment == "iris-tv") & (whole.rule == "monte_carlo:samples=10")]
    pd.testing.assert_frame_equal(part, same.reset_index(drop=True), check_exact=True)


def test_an_interrupted_run_goes_on_to_the_same_numbers(tiny_results, tmp_path, plan):
    unbroken = numbers(frame_of(tiny_results))
    run_all(tmp_path / "b", plan, groups=[*plan.groups][:2])
    assert [*left(plan, tmp_path / "b")] == [*plan.groups][2:]
    resumed = run_all(tmp_path / "b", plan)
    pd.testing.assert_frame_equal(numbers(resumed), unbroken, check_exact=True)


@pytest.mark.parametrize(
    ("owner", "name", "rests"),
    [
        (MonteCarlo, "version", lambda rule, _: rule == "monte_carlo:samples=10"),
        (GaussianDivergence, "version", lambda _, m: m == "gaussian_kl"),
        (versions, "ORACLE_VERSION", lambda *_: True),
        (Unscented, "version", lambda *_: False),
    ],
)
def test_a_raised_version_measures_again_what_rests_on_it_alone(
    owner, name, rests, tiny_copy, plan, monkeypatch
):
    path, before = tiny_copy, frame_of(tiny_copy)
    assert not left(plan, path)
    monkeypatch.setattr(owner, name, 2)
    after = run_all(path, make_plan(TINY))
    again = [rests(rule, metric) for rule, metric in zip(after.rule, after.metric, strict=True)]
    assert (after.run.astype(str) == max(read(path).runs)).tolist() == again
    assert after.fingerprint.astype(str).str.contains("2").tolist() == again
    pd.testing.assert_frame_equal(numbers(after), numbers(before), check_exact=True)


def test_a_number_that_cannot_be_is_a_failure_of_its_metric(plan):
    rows = plan.rows[plan.rows["rule"] == "sdp"].drop_duplicates(["unit", "metric_spec"])
    rows = rows[rows["unit"] == rows["unit"].iloc[0]]
    w1 = rows[rows["metric_spec"].str.startswith("w1")]
    tv_class = rows[rows["metric_spec"].str.startswith("tv_class")]
    rows = pd.concat([w1, tv_class])

    class Wrong:
        def measure(self, rows):
            outcomes = [dict(zip(CELL, cell, strict=True)) for cell in rows[CELL].to_numpy()]
            for outcome in outcomes:
                yield {**outcome, "component": "0", "value": 0.5, "status": MEASURED, "reason": ""}
            yield {**outcomes[1], "component": "1", "value": 1.5, "status": MEASURED, "reason": ""}

    measured = run.run_group(Wrong(), rows)
    good = measured[measured["status"] == MEASURED]
    assert set(good["metric_spec"]) == {w1["metric_spec"].item()}
    assert set(good["value"]) == {0.5}
    wrong = measured[measured["status"] == FAILED]
    assert set(wrong["metric_spec"]) == {tv_class["metric_spec"].item()}
    assert wrong["reason"].tolist() == ["value 1.5 of tv_class, which cannot be"]
    assert wrong[["value", "component"]].isna().all(axis=None)


def test_rules_that_do_not_support_the_nets_have_rows_with_the_reason(tmp_path):
    settings = TINY.but(activation="gelu", rules=("sdp", "dvia"))
    frame = run_all(tmp_path / "r", make_plan(settings, ("iris-std",)), settings=settings)
    assert set(frame["rule"]) == {"sdp"}
    rows = statuses(tmp_path / "r")
    assert set(rows["status"]) == {MEASURED, UNSUPPORTED}
    unsupported = rows[rows["status"] == UNSUPPORTED]
    assert set(unsupported["rule"]) == {"dvia"}
    assert len(unsupported) == 8 * 4  # units, metrics
    assert unsupported["reason"].str.contains("'dvia' does not support GELU").all()
    assert unsupported[["value", "floor", "floor95", "stderr"]].isna().all(axis=None)


def test_a_rule_is_left_out_of_a_plan_only_where_it_is_slow():
    settings = TINY.but(depths=None, rules=None, slow_rules=False, sizes={"iris-tv-activations": Size(1, 1)})
    plan = make_plan(settings.but(sigmas=(1.0,)), ("iris-tv-activations",))
    for _, rows in plan.rows.groupby("group"):
        assert {"sdp", "moment_matching", "dvia"} <= set(rows["rule"])
    assert plan.left_out == ()
    plan = make_plan(TINY.but(activation="softplus", rules=("sdp", "moment_matching"), slow_rules=False))
    assert set(plan.rows["rule"]) == {"sdp"}
    assert [line.reason for line in plan.left_out] == [
        "rule 'moment_matching' is slow on softplus nets; --slow-rules runs it"
    ]


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("iris-tv", {"samples": 100}, "a pilot of 100 samples cannot fix 512 cells"),
        ("iris-w1", {"samples": 10_000}, "lower --w1-points"),
        ("iris-w1-certified", {"samples": 10_000}, "lower --w1-points or --certified-points"),
        ("iris-tv", {"rules": ("spd",)}, "rule 'spd' not found"),
    ],
)
def test_what_cannot_work_is_said_before_training(name, overrides, message):
    with pytest.raises(UserError, match=message):
        experiment(name).check(preset("paper", overrides))


def test_a_second_oracle_shows_the_floor_and_oracle_moments_are_exact(tmp_path):
    settings = TINY.but(
        sizes={"iris-tv": Size(2, 2), "iris-oracle": Size(2, 2), "iris-std": Size(2, 2)},
        rules=("oracle_again", "oracle_moments"),
    )
    frame = run_all(tmp_path / "r", make_plan(settings, ("iris-tv", "iris-std")), settings=settings)
    tv = frame[(frame.rule == "oracle_again") & frame.metric.isin(["tv_headline", "tv_class"])]
    assert (tv.value <= tv.floor95).mean() > 0.7  # 16 values, each below with probability .95
    ratio = frame[(frame.rule == "oracle_moments") & (frame.metric == "std_ratio")]
    assert ratio.value.to_numpy() == pytest.approx(1, abs=1e-9)
    pairs = replay.replay(read(tmp_path / "r"), tv.key.iloc[0], lambda _: None)
    assert all(replay.identical(*pair) for pair in pairs)


def test_an_oracle_does_not_outlive_its_group(plan):
    group = next(iter(plan.groups.values()))
    oracle = Oracle(group.net.build(), group.law[0], group.keys[0], TINY.sampling)
    tree = HeadlineTotalVariation(cells=16, pilot_samples=1024).partition(oracle)
    assert HeadlineTotalVariation(cells=16, pilot_samples=1024).partition(oracle) is tree  # made once
    assert oracle.floors(tree) is oracle.floors(tree)
    samples = weakref.ref(oracle.samples)
    del oracle
    assert samples() is None


def failing(*_args, **_kwargs):
    raise RuntimeError("two\nlines")


def test_a_failing_rule_is_recorded_and_the_others_go_on(tmp_path, plan, monkeypatch):
    path = tmp_path / "r"
    with monkeypatch.context() as patch:
        patch.setattr(linearization, "_linearised", failing)
        frame = run_all(path, plan)
    assert set(frame.rule) == {"monte_carlo:samples=10", "marginal_moment_matching"}
    rows = statuses(path)
    failed = rows[rows["status"] == FAILED]
    assert set(failed["rule"]) == {"sdp"}
    assert set(failed["reason"]) == {"RuntimeError: two lines"}
    assert not failed.duplicated(CELL).any()
    requested = plan.rows[plan.rows["rule"] == "sdp"].drop_duplicates(CELL)
    assert set(failed[CELL].itertuples(index=False)) == set(requested[CELL].itertuples(index=False))
    assert set(pd.concat(left(plan, path).values())["rule"]) == {"sdp"}
    assert set(run_all(path, plan).rule) == set(TINY.rules)  # retried
    assert set(statuses(path)["status"]) == {MEASURED}
    assert not left(plan, path)


def test_a_rule_whose_preparation_fails_is_recorded_and_the_others_go_on(plan, monkeypatch):
    monkeypatch.setattr(linearization.SDP, "prepare", failing)
    name, group = next(iter(plan.groups.items()))
    found = run.run_group(group, plan.rows[plan.rows["group"] == name])
    rules = found.groupby("status")["rule"].agg(set)
    assert rules[FAILED] == {"sdp"}
    assert rules[MEASURED] == set(TINY.rules) - {"sdp"}


def test_a_failing_metric_leaves_the_others_and_no_old_number(tiny_copy, monkeypatch):
    path = tiny_copy
    with monkeypatch.context() as patch:
        # As after a new version of KL that is broken: what is stored is out of date.
        patch.setattr(GaussianDivergence, "version", 2)
        patch.setattr(GaussianDivergence, "measure", failing)
        frame = run_all(path, make_plan(TINY))
    assert METRICS - set(frame.metric) == {"gaussian_kl"}
    stored = read(path)
    failed = failures(stored, [stored.run()])
    assert set(failed.metric) == {"gaussian_kl"}
    assert set(failed.rule) == set(TINY.rules)
    run_all(path, make_plan(TINY))
    stored = read(path)
    assert failures(stored, [stored.run()]).empty


def test_a_net_that_returns_nan_fails_all_its_rows():
    plan = make_plan(TINY.but(nets=1))
    name, group = next(iter(plan.groups.items()))
    group.net.state["2.weight"][0, 0] = float("nan")
    rows = plan.rows[plan.rows["group"] == name]
    measured = run.run_group(group, rows)
    assert set(measured["status"]) == {FAILED}
    assert len(measured) == len(rows.drop_duplicates(CELL))
    assert measured["reason"].str.contains("finite|NaN").any()


def test_a_dead_worker_is_a_failed_group(tmp_path, plan):
    second = [*plan.groups][1]

    class Dying(LocalProcesses):
        def submit(self, fn, /, group, *args):
            return super().submit(_die if group is plan.groups[second] else fn, group, *args)

    with Dying(2, 1) as executor:
        run_all(tmp_path / "r", plan, executor=executor)
    rows = statuses(tmp_path / "r")
    failed = rows[rows["status"] == FAILED]
    requested = plan.rows[plan.rows["group"] == second].drop_duplicates(CELL)
    assert set(failed[CELL].itertuples(index=False)) == set(requested[CELL].itertuples(index=False))
    assert failed["reason"].str.contains("worker process died").all()
    assert set(rows["status"]) == {MEASURED, FAILED}
    stored = read(tmp_path / "r")
    lines = failures(stored, [stored.run()])
    assert lines["metric"].isna().all()
    assert len(lines) == len(requested.drop_duplicates(["unit", "rule"]))
    assert [*left(plan, tmp_path / "r")] == [second]


def _die_at_sdp(group, rows):
    if "sdp" in set(rows["rule"]):
        send(RuleBegun("sdp"))
        _die()
    return run.run_group(group, rows)


def test_a_rule_that_ends_its_worker_fails_alone(tmp_path, plan):
    class Dying(LocalProcesses):
        def submit(self, fn, /, *args):
            return super().submit(_die_at_sdp, *args)

    name = next(iter(plan.groups))
    with Dying(1, 1) as executor:
        run_all(tmp_path / "r", plan, [name], executor=executor)
    rows = statuses(tmp_path / "r")
    requested = plan.rows[plan.rows["group"] == name]
    assert len(rows.drop_duplicates(CELL)) == len(requested.drop_duplicates(CELL))
    by_status = rows.groupby("status")["rule"].agg(set)
    assert by_status[FAILED] == {"sdp"}
    assert by_status[MEASURED] == set(TINY.rules) - {"sdp"}
    assert rows.loc[rows["status"] == FAILED, "reason"].str.contains("worker process died").all()


def test_a_worker_says_which_rule_it_works_on(plan, monkeypatch):
    sent = []
    monkeypatch.setattr(law_group, "send", sent.append)
    name, group = next(iter(plan.groups.items()))
    monkeypatch.setattr(law_group.Oracle, "resident", property(lambda _: sent.append("oracle")))
    run.run_group(group, plan.rows[plan.rows["group"] == name])
    before_oracles = sent[: sent.index("oracle")]
    assert before_oracles == [*map(RuleBegun, TINY.rules), None]


def _die(*_):
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


def test_replays_are_identical(tiny_results):
    frame, stored = frame_of(tiny_results), read(tiny_results)
    for metric in METRICS:
        rows = frame[(frame.metric == metric) & (frame.rule == "monte_carlo:samples=10")]
        said = []
        pairs = replay.replay(stored, rows.key.iloc[-1], said.append)
        assert pairs
        assert all(replay.identical(*pair) for pair in pairs), metric
        assert any("oracle" in line for line in said)
    with pytest.raises(UserError, match="no measurement has a key"):
        replay.replay(stored, "nothing", print)
    with pytest.raises(UserError, match="name one"):
        replay.replay(stored, frame.unit.iloc[0], print)


def test_rules_on_one_oracle_share_their_normals(plan):
    group = next(iter(plan.groups.values()))
    oracle = Oracle(group.net.build(), group.law[0], group.keys[0], TINY.sampling)
    zero, identity = torch.zeros(1, 3).double(), torch.eye(3).double()[None]
    a = Prediction(sdp_ref.Gaussian(zero, identity), oracle).samples
    b = Prediction(sdp_ref.Gaussian(zero + 1, identity), oracle).samples
    assert torch.allclose(b - a, torch.ones(()).double(), rtol=1e-12)


def test_traits_of_all_rules_are_declared_by_their_classes():
    for name in sdp_ref.rules():
        assert traits_of(name) == traits(sdp_ref.rule(name))


def test_presets_change_counts_only():
    paper = preset("paper")
    for name in PRESETS:
        smaller = preset(name)
        design = dataclasses.replace(smaller.design, nets=None, inputs=None, net_source="trained")
        sampling = dataclasses.replace(smaller.sampling, samples=10**6, pilot_samples=2**17)
        assert (design, sampling) == (paper.design, paper.sampling)
        assert set(smaller.metrics) <= {"w1_points", "certified_points", "cells"}
        assert (smaller.rules, smaller.plugins) == (None, ())


@pytest.mark.parametrize(
    "body",
    ["label = property(lambda self: 1 / 0)", "rank = property(lambda self: exit(1))", "sampling = 'many'"],
)
def test_a_rule_with_invalid_traits_is_left_out_of_a_plan(tmp_path, body):
    source = f"class Odd:\n    name = 'odd'\n    {body}\n    def propagate(self, net, x):\n        return x\n"
    (tmp_path / "odd.py").write_text(source)
    names, plugins = resolve((f"{tmp_path / 'odd.py'}:Odd",))
    assert names == ("odd",)
    assert traits_of("odd", plugins) == Traits("odd")


LACKS = "a covariance is needed, which a law of quantiles of single outputs has not"


def test_a_reason_that_many_metrics_share_is_reported_once_for_each_rule():
    failures = [
        ("mine", "bures", LACKS, "here", 1.0),
        ("mine", "gaussian_kl", LACKS, "here", 1.0),
        ("mine", "bures", LACKS, "there", 2.0),
        ("mine", "gaussian_kl", LACKS, "there", 2.0),
        ("theirs", "bures", LACKS, "", 0.0),
        ("mine", "", "ValueError: no", "", 0.0),
    ]
    mine, theirs, other = reasons(failures)
    assert mine.line == f"Bures, Gaussian KL: {LACKS}"
    assert (mine.rule, mine.places, mine.seconds) == ("mine", ("here", "there"), 2.0)
    assert theirs.rule == "theirs"
    assert (other.rule, other.line) == ("mine", "ValueError: no")


# Whole runs ---------------------------------------------------------------------------------------

QUIET = Screen(quiet=True)
GELU = TINY.but(activation="gelu", rules=("sdp", "dvia"))
"""A rule that supports these nets, and one that does not."""


def whole_run(
    folder, settings, names=("iris-std",), shard=(1, 1), executor=ThreadPoolExecutor, progress=None
):
    """Do a run with the driver, by default in a thread of this process and without output."""
    plan = make_plan(settings, names)
    request = run.Request([experiment(name) for name in names], settings, nets_of(plan), shard=shard)
    return run.run(folder, request, 1, lambda *_: executor(1), progress or QUIET)


def by_run(folder):
    """Return pairs of status and rule of the stored measurements, by the position of their run."""
    rows = [pd.read_parquet(path) for path in (folder / "measured").iterdir()]
    rows = pd.concat([part.astype(object) for part in rows])
    cells = {name: set() for name in sorted(read(folder).runs)}
    for name, status, rule in rows[["run", "status", "rule"]].itertuples(index=False):
        cells[name].add((status, rule))
    return [*cells.values()]


def refused(*_args, **_kwargs):
    raise RefusedError("of no use")


@pytest.fixture
def code(monkeypatch):
    """Pretend that the code of the package has another hash."""

    def change(code):
        software = run.software()
        monkeypatch.setattr(run, "software", lambda: {**software, "code": code})

    return change


def test_unsupported_cells_are_repeated_only_if_the_code_differs(tmp_path, code):
    _, failed = whole_run(tmp_path / "r", GELU)
    assert failed == 0
    whole_run(tmp_path / "r", GELU)
    assert by_run(tmp_path / "r") == [{(MEASURED, "sdp"), (UNSUPPORTED, "dvia")}, set()]
    code("0123456789abcdef")
    whole_run(tmp_path / "r", GELU)
    assert by_run(tmp_path / "r")[2] == {(UNSUPPORTED, "dvia")}
    whole_run(tmp_path / "r", GELU)
    assert by_run(tmp_path / "r")[3] == set()


def test_a_resumed_run_says_again_what_is_unsupported(tmp_path, capsys):
    for _ in range(2):
        whole_run(tmp_path / "r", GELU, progress=Screen())
        printed = capsys.readouterr().err
        assert printed.count("left out: rule 'dvia' does not support GELU") == 1
    assert "groups are measured already" in printed


def test_undefined_cells_are_repeated_only_if_the_code_differs(tmp_path, code, monkeypatch):
    settings = TINY.but(rules=("sdp",))
    with monkeypatch.context() as patch:
        patch.setattr(GaussianDivergence, "measure", refused)
        _, failed = whole_run(tmp_path / "r", settings)
    assert failed == 0
    rows = statuses(tmp_path / "r")
    assert set(rows.loc[rows["status"] == UNDEFINED, "metric_spec"].str.partition(":")[0]) == {"gaussian_kl"}
    assert set(rows.loc[rows["status"] == UNDEFINED, "reason"]) == {"of no use"}
    whole_run(tmp_path / "r", settings)
    assert by_run(tmp_path / "r")[1] == set()
    code("0123456789abcdef")
    whole_run(tmp_path / "r", settings)
    assert by_run(tmp_path / "r")[2] == {(MEASURED, "sdp")}
    assert set(statuses(tmp_path / "r")["status"]) == {MEASURED}


def test_a_metric_for_which_a_method_has_no_number_is_not_repeated(tmp_path, plan, code):
    class Silent:
        def measure(self, rows):
            assert len(rows)
            return []

    writer = run.Writer(begin(tmp_path / "r", plan))
    writer.write("all", run.run_group(Silent(), plan.rows))
    assert set(statuses(tmp_path / "r")["status"]) == {UNDEFINED}
    code("0123456789abcdef")
    assert not left(plan, tmp_path / "r")


def test_failed_cells_are_repeated_by_each_run(tmp_path, monkeypatch):
    settings = TINY.but(rules=("sdp", "marginal_moment_matching"))
    monkeypatch.setattr(linearization, "_linearised", failing)
    _, failed = whole_run(tmp_path / "r", settings)
    assert failed == 8  # units
    whole_run(tmp_path / "r", settings)
    assert by_run(tmp_path / "r")[1] == {(FAILED, "sdp")}


def test_a_failure_does_not_replace_a_number_of_the_same_versions(tiny_copy, plan, monkeypatch):
    before = numbers(frame_of(tiny_copy))
    failed = pd.read_parquet(next((tiny_copy / "measured").iterdir())).assign(status=FAILED, run="9")
    run.Writer(read(tiny_copy).run()).write("again", failed)
    pd.testing.assert_frame_equal(numbers(frame_of(tiny_copy)), before, check_exact=True)
    assert not left(plan, tiny_copy)


@pytest.mark.parametrize(
    ("settings", "names", "reason"),
    [
        (GELU.but(rules=("dvia",)), ("iris-std",), "rule 'dvia' does not support GELU"),
        (TINY.but(rules=("dvia",)), ("iris-cauchy",), "rule 'dvia' does not support Cauchy input"),
    ],
)
def test_a_run_without_a_rule_that_supports_its_nets_is_an_error(tmp_path, settings, names, reason):
    settings = settings.but(sizes=dict.fromkeys(names, Size(1, 1)), sigmas=(1.0,))
    for _ in range(2):  # the rows are stored, and say so again
        with pytest.raises(UserError, match=f"no rule is left: {reason}"):
            whole_run(tmp_path / "r", settings, names)


@pytest.mark.parametrize("shard", [(1, 2), (9, 9)])
def test_a_shard_may_have_no_rule_that_supports_its_nets_and_no_work(tmp_path, shard):
    _, failed = whole_run(tmp_path / "r", GELU.but(rules=("dvia",)), shard=shard)
    assert failed == 0
    assert set(statuses(tmp_path / "r")["status"]) == ({UNSUPPORTED} if shard == (1, 2) else set())


class Lost(LocalProcesses):
    """Workers that die at once."""

    def __init__(self, jobs):
        super().__init__(jobs, 1)

    def submit(self, fn, /, *args):
        return super().submit(_die)


def test_a_run_whose_workers_die_has_failed_rows_and_the_next_one_measures_them(tmp_path):
    settings = TINY.but(rules=("sdp",), nets=1, sigmas=(1.0,))
    _, failed = whole_run(tmp_path / "r", settings, executor=Lost)
    assert failed == 2  # units
    rows = statuses(tmp_path / "r")
    assert set(rows["status"]) == {FAILED}
    assert rows["reason"].str.contains("worker process died").all()
    assert rows["seconds"].isna().all()  # when a group began is unknown
    _, failed = whole_run(tmp_path / "r", settings)
    assert failed == 0
    assert set(statuses(tmp_path / "r")["status"]) == {MEASURED}


def test_shards_are_runs_and_joining_them_is_copying_files(tmp_path):
    settings = TINY.but(rules=("sdp", "monte_carlo:samples=10"))
    names = ("iris-std", "iris-w1")
    whole_run(tmp_path / "whole", settings, names)
    for part in (1, 2, 3):
        whole_run(tmp_path / f"part{part}", settings, names, shard=(part, 3))
        shutil.copytree(tmp_path / f"part{part}", tmp_path / "joined", dirs_exist_ok=True)
    stored = read(tmp_path / "joined")
    assert len(stored.runs) == 3
    assert stored.notes == []
    together = joined_measurements(stored, [*stored.runs.values()])
    pd.testing.assert_frame_equal(numbers(together), numbers(frame_of(tmp_path / "whole")), check_exact=True)
    assert not left(make_plan(settings, names), tmp_path / "joined")
    shards = [set(read_plan(stored_run, CELL).itertuples(index=False)) for stored_run in stored.runs.values()]
    assert sum(map(len, shards)) == len(set.union(*shards))


def test_two_runs_at_once_share_a_folder(tmp_path):
    """They measure the same, join their small files at their ends, and each run finds what it requested."""
    settings = TINY.but(rules=("sdp",))
    whole_run(tmp_path / "whole", settings)
    with ThreadPoolExecutor(2) as threads:
        runs = [threads.submit(whole_run, tmp_path / "r", settings) for _ in range(2)]
        names = {future.result()[0] for future in runs}
    stored = read(tmp_path / "r")
    assert set(stored.runs) == names
    assert len(names) == 2
    assert stored.notes == []
    assert all(stored_run.finished for stored_run in stored.runs.values())
    assert not stored.measurements.duplicated([*CELL, "component"]).any()
    expected = numbers(frame_of(tmp_path / "whole"))
    for stored_run in stored.runs.values():
        pd.testing.assert_frame_equal(
            numbers(joined_measurements(stored, [stored_run])), expected, check_exact=True
        )
