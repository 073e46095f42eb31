import dataclasses
import weakref

import pandas as pd
import pytest
import torch

import sdp_ref
from sdp_bench.bench.errors import NOT_DEFINED, RefusedError, UserError
from sdp_bench.bench.executors.local import LocalProcesses
from sdp_bench.bench.experiments import experiment, preset, versions
from sdp_bench.bench.metrics.distances import GaussianDivergence
from sdp_bench.bench.metrics.oracle import Oracle, Prediction
from sdp_bench.bench.metrics.total_variation import HeadlineTotalVariation
from sdp_bench.bench.reasons import reasons
from sdp_bench.bench.replay import replay
from sdp_bench.bench.results.record import Failure, Record
from sdp_bench.bench.results.store import Store
from sdp_bench.bench.rules import resolve
from sdp_bench.bench.runs import driver as run
from sdp_bench.bench.runs.plan import traits_of
from sdp_bench.bench.settings import Size
from sdp_ref.rules import MonteCarlo, Traits, Unscented, linearization
from tests.bench.conftest import TINY, frame_of, make_plan, run_all

NUMBERS = ["experiment", "rule", "metric_spec", "component", "unit", "value", "floor", "floor95", "stderr"]


METRICS = {  # those of TINY's experiments
    *("tv_headline", "tv_paper", "tv_single", "tv_class", "tv_difference"),
    *("std_ratio", "bures", "gaussian_kl", "min_eigenvalue", "w1"),
}


def numbers(frame):
    return frame[NUMBERS].astype(object).sort_values(NUMBERS[:5]).reset_index(drop=True)


def test_a_plan_shares_oracles_between_suites(plan):
    assert len(plan.groups) == 4  # two nets, two noise levels
    subjects = {key for _, key in plan.members}
    assert len(subjects) == 8  # with two inputs each
    assert sum(suite == "iris-w1" for suite, _ in plan.members) == 4  # one input each
    first = plan.groups[0].subjects[0]
    assert {metric.partition(":")[0] for metric, _ in first.pairs} == set(METRICS)


def test_every_wanted_number_is_there_and_sane(tiny_file):
    frame = frame_of(tiny_file)
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
def test_numbers_do_not_depend_on_order_company_or_process(tiny_file, tmp_path, plan):
    whole = numbers(frame_of(tiny_file))
    backwards = numbers(run_all(tmp_path / "b.sqlite", plan, groups=plan.groups[::-1]))
    pd.testing.assert_frame_equal(whole, backwards, check_exact=True)
    with LocalProcesses(2, 1) as executor:
        apart = numbers(run_all(tmp_path / "c.sqlite", plan, executor=executor))
    pd.testing.assert_frame_equal(apart, whole, check_exact=True)
    alone = make_plan(TINY.but(rules=("monte_carlo:samples=10",)), ("iris-tv",))
    part = numbers(run_all(tmp_path / "d.sqlite", alone))
    same = whole[(whole.experiment == "iris-tv") & (whole.rule == "monte_carlo:samples=10")]
    pd.testing.assert_frame_equal(part, same.reset_index(drop=True), check_exact=True)


def test_an_interrupted_run_goes_on_to_the_same_numbers(tiny_file, tmp_path, plan):
    unbroken = numbers(frame_of(tiny_file))
    run_all(tmp_path / "b.sqlite", plan, groups=plan.groups[:2])
    with Store(tmp_path / "b.sqlite") as store:
        done = run.current(store, plan.groups)
        assert [not group.left(done) for group in plan.groups] == [True, True, False, False]
    resumed = run_all(tmp_path / "b.sqlite", plan)
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
    with Store(path) as store:
        assert run.current(store, plan.groups) == {cell for group in plan.groups for cell in group.cells}
    monkeypatch.setattr(owner, name, 2)
    after = run_all(path, plan)
    again = [rests(rule, metric) for rule, metric in zip(after.rule, after.metric, strict=True)]
    assert (after.run == 2).tolist() == again
    assert after.fingerprint.astype(str).str.contains("2").tolist() == again
    pd.testing.assert_frame_equal(numbers(after), numbers(before), check_exact=True)


def test_a_number_that_cannot_be_is_a_failure_of_its_metric():
    class Wrong:
        def measure(self, cells):
            fine = Record("unit", "sdp", "w1", None, 0.5, None, None, None, "1", None)
            yield fine
            yield dataclasses.replace(fine, metric="tv_class", component="0")
            yield dataclasses.replace(fine, metric="tv_class", component="1", value=1.5)

    result = run.run_group(Wrong(), [("unit", "sdp", "w1"), ("unit", "sdp", "tv_class")])
    assert [record.metric for record in result.records] == ["w1"]
    (failure,) = result.failures
    assert (failure.unit, failure.rule, failure.metric) == ("unit", "sdp", "tv_class")
    assert failure.error == "value 1.5 of tv_class, which cannot be"


def test_rules_that_do_not_support_the_nets_are_left_out_and_named():
    plan = make_plan(TINY.but(activation="gelu", rules=("sdp", "dvia")))
    assert plan.experiments["iris-tv"].rules == ("sdp",)
    (left_out,) = plan.left_out
    assert (left_out.rule, left_out.where) == ("dvia", "gelu")
    assert "'dvia' does not support GELU" in left_out.reason
    with pytest.raises(UserError, match="no rule is left: rule 'dvia' does not support GELU"):
        make_plan(TINY.but(activation="gelu", rules=("dvia",)))


def test_a_rule_is_left_out_only_where_it_has_no_formula_or_is_slow():
    settings = TINY.but(depths=None, rules=None, slow_rules=False, sizes={"iris-tv-activations": Size(1, 1)})
    plan = make_plan(settings.but(sigmas=(1.0,)), ("iris-tv-activations",))
    ran = [set(group.subjects[0].rules) for group in plan.groups]
    assert all({"sdp", "moment_matching"} <= rules for rules in ran)
    assert not any("dvia" in rules for rules in ran)
    plan = make_plan(TINY.but(activation="softplus", rules=("sdp", "moment_matching"), slow_rules=False))
    assert [each.reason for each in plan.left_out] == [
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


def test_a_second_oracle_shows_the_floor_and_the_oracles_moments_are_its_own(tmp_path):
    settings = TINY.but(
        sizes={"iris-tv": Size(2, 2), "iris-oracle": Size(2, 2), "iris-std": Size(2, 2)},
        rules=("oracle_again", "oracle_moments"),
    )
    frame = run_all(tmp_path / "r.sqlite", make_plan(settings, ("iris-tv", "iris-std")))
    tv = frame[(frame.rule == "oracle_again") & frame.metric.isin(["tv_headline", "tv_class"])]
    assert (tv.value <= tv.floor95).mean() > 0.7  # 16 values, each below with probability .95
    ratio = frame[(frame.rule == "oracle_moments") & (frame.metric == "std_ratio")]
    assert ratio.value.to_numpy() == pytest.approx(1, abs=1e-9)
    with Store(tmp_path / "r.sqlite") as store:
        pairs = replay.replay(store, tv.key.iloc[0], lambda _: None)
    assert all(replay.identical(*pair) for pair in pairs)


def test_an_oracle_does_not_outlive_its_group(plan):
    group = plan.groups[0]
    oracle = Oracle(group.net.build(), group.law[0], group.subjects[0].key, TINY.sampling)
    tree = HeadlineTotalVariation(cells=16, pilot_samples=1024).partition(oracle)
    assert HeadlineTotalVariation(cells=16, pilot_samples=1024).partition(oracle) is tree  # made once
    assert oracle.floors(tree) is oracle.floors(tree)
    samples = weakref.ref(oracle.samples)
    del oracle
    assert samples() is None


def failing(*_args, **_kwargs):
    raise RuntimeError("two\nlines")


def test_a_failing_rule_is_recorded_and_the_others_go_on(tmp_path, plan, monkeypatch):
    path = tmp_path / "r.sqlite"
    with monkeypatch.context() as patch:
        patch.setattr(linearization, "_linearised", failing)
        frame = run_all(path, plan)
    assert set(frame.rule) == {"monte_carlo:samples=10", "marginal_moment_matching"}
    with Store(path) as store:
        failures = store.failures(store.run())
    assert set(failures.rule) == {"sdp"}
    assert set(failures.error) == {"RuntimeError: two lines"}
    assert len(failures) == 8
    assert set(run_all(path, plan).rule) == set(TINY.rules)  # retried
    with Store(path) as store:
        assert store.failures(store.run()).empty


def test_a_failing_metric_leaves_the_others_and_no_old_number(tiny_copy, plan, monkeypatch):
    path = tiny_copy
    with monkeypatch.context() as patch:
        # As after a new version of KL that is broken: what is stored is out of date.
        patch.setattr(GaussianDivergence, "version", 2)
        patch.setattr(GaussianDivergence, "measure", failing)
        frame = run_all(path, plan)
    assert METRICS - set(frame.metric) == {"gaussian_kl"}
    with Store(path) as store:
        failures = store.failures(store.run())
    assert set(failures.metric) == {"gaussian_kl"}
    assert set(failures.rule) == set(TINY.rules)
    run_all(path, plan)
    with Store(path) as store:
        assert store.failures(store.run()).empty


def test_a_net_that_returns_nan_fails_its_subjects(tmp_path):
    plan = make_plan(TINY.but(nets=1))
    weight = plan.groups[0].net.state["2.weight"]
    weight[0, 0] = float("nan")
    result = run.run_group(plan.groups[0], plan.groups[0].cells)
    assert not result.records
    assert result.failures
    assert any("finite" in failure.error or "NaN" in failure.error for failure in result.failures)


def test_a_dead_worker_is_a_failed_group(tmp_path, plan):
    class Dying(LocalProcesses):
        def submit(self, fn, /, group, *args):
            return super().submit(_die if group is plan.groups[1] else fn, group, *args)

    with Dying(2, 1) as executor:
        run_all(tmp_path / "r.sqlite", plan, executor=executor)
    with Store(tmp_path / "r.sqlite") as store:
        failures = store.failures(store.run())
        assert failures.rule.isna().all()
        assert len(failures) == len(plan.groups[1].subjects)
        assert failures.error.str.contains("worker process died").all()
        done = run.current(store, plan.groups)
        assert [not g.left(done) for g in plan.groups] == [True, False, True, True]


def _die(*_):
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


def test_replays_are_identical(tiny_file):
    frame = frame_of(tiny_file)
    with Store(tiny_file) as store:
        for metric in METRICS:
            rows = frame[(frame.metric == metric) & (frame.rule == "monte_carlo:samples=10")]
            said = []
            pairs = replay.replay(store, rows.key.iloc[-1], said.append)
            assert pairs
            assert all(replay.identical(*pair) for pair in pairs), metric
            assert any("oracle" in line for line in said)
        with pytest.raises(UserError, match="no measurement has a key"):
            replay.replay(store, "nothing", print)
        with pytest.raises(UserError, match="name one"):
            replay.replay(store, frame.unit.iloc[0], print)


def test_rules_on_one_oracle_share_their_normals(plan):
    group = plan.groups[0]
    oracle = Oracle(group.net.build(), group.law[0], group.subjects[0].key, TINY.sampling)
    zero, one = torch.zeros(1, 3).double(), torch.eye(3).double()[None]
    a = Prediction(sdp_ref.Gaussian(zero, one), oracle).samples
    b = Prediction(sdp_ref.Gaussian(zero + 1, one), oracle).samples
    assert torch.allclose(b - a, torch.ones(()).double(), rtol=1e-12)


@pytest.mark.parametrize(
    "body",
    ["label = property(lambda self: 1 / 0)", "rank = property(lambda self: exit(1))", "sampling = 'many'"],
)
def test_traits_that_are_none_are_left_out_of_a_plan(tmp_path, body):
    source = f"class Odd:\n    name = 'odd'\n    {body}\n    def propagate(self, net, x):\n        return x\n"
    (tmp_path / "odd.py").write_text(source)
    names, plugins = resolve((f"{tmp_path / 'odd.py'}:Odd",))
    assert names == ("odd",)
    assert traits_of("odd", plugins) == Traits("odd")


LACKS = f"{NOT_DEFINED}a covariance is needed, which a law of quantiles of single outputs has not"


def test_what_many_metrics_lack_is_told_once_for_each_rule():
    told = [
        *(("mine", metric, LACKS, "here", 1.0) for metric in ("bures", "gaussian_kl")),
        *(("mine", metric, LACKS, "there", 2.0) for metric in ("bures", "gaussian_kl")),
        ("theirs", "bures", LACKS, "", 0.0),
        ("mine", "", "ValueError: no", "", 0.0),
    ]
    mine, theirs, other = reasons(told)
    assert mine.line == f"Bures, Gaussian KL: {LACKS.removeprefix(NOT_DEFINED)}"
    assert (mine.rule, mine.places, mine.seconds) == ("mine", ("here", "there"), 2.0)
    assert theirs.rule == "theirs"
    assert (other.rule, other.line) == ("mine", "ValueError: no")


def test_a_refusal_is_known_by_its_words():
    assert Failure("unit", "mine", "bures", str(RefusedError("of no use")), 0.0).refused
    assert not Failure("unit", "mine", "bures", "ValueError: of no use", 0.0).refused
