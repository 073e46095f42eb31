import json
import random
import re

import numpy as np
import pytest
import torch
from torch import nn

import sdp_ref as sr
from sdp_ref.conformance import CHECKS, CheckResult, ConformanceReport
from sdp_ref.conformance.report import VERSION
from sdp_ref.laws import unchecked
from sdp_ref.testing import conformance_tests
from tests.sdp_ref.conformance.mutants import (
    MUTANTS,
    SOUND,
    Gated,
    Marginal,
    Matched,
    MixedDensity,
    Sampled,
    SupportsNothing,
)

NAMES = [check.name for check in CHECKS]


@pytest.fixture(autouse=True)
def _print_options():
    yield
    torch.set_printoptions(profile="default")  # examples set the precision


def test_every_check_has_a_mutant():
    assert set(MUTANTS) == set(NAMES)


@pytest.mark.parametrize("check", NAMES)
def test_a_mutant_is_caught_by_its_check_with_an_example_that_runs(check, capsys):
    mutant = MUTANTS[check]()
    report = sr.check_rule(mutant, only=[check])
    assert not report.passed
    found = report[check]
    assert found.status == "failed"
    assert found.detail
    assert found.numbers["cases"] >= 1
    names = {"rule": mutant}
    exec(found.example, names)
    assert isinstance(names["x"], sr.Law)
    assert names["x"].batch == 1 or check == "batch"
    assert f"FAILED   {check}" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("check", NAMES)
def test_no_other_check_catches_a_mutant(check):
    assert {result.name for result in sr.check_rule(MUTANTS[check]()).unexpected} == {check}


@pytest.mark.parametrize("kind", SOUND)
def test_a_sound_rule_passes(kind):
    report = sr.check_rule(kind())
    assert not report.failed, str(report)
    assert report.passed
    assert report.ran >= 14


def test_an_improper_density_is_caught():
    assert sr.check_rule(MixedDensity(), only=["law"])["law"].status == "failed"


SPECS = (
    *sr.rules(),
    "dvia:means=regular",
    "dvia:means=regular_covariance",
    "marginal_moment_matching:precision=1e-5",
    "second_order:probes=2",
    "unscented:kappa=20",
    "cubature:degree=5",
    "cubature:degree=5,scheme=sparse",
    "monte_carlo:samples=2,sampler=sobol",
    "monte_carlo:samples=100,sampler=antithetic",
    "monte_carlo:samples=100,sampler=whitened",
    "control_variate:samples=100,coefficient=jacobian",
    "split:base=sdp,k=9",
    "split:base=marginal_sdp,k=9",
)
KNOWN = {
    "second_order:probes=2": {"permutation", "batch"},
    "split": {"gradients", "diagonal", "permutation"},
    "split:base=sdp,k=9": {"diagonal"},
    "split:base=marginal_sdp,k=9": {"diagonal"},
    "dvia": {"diagonal", "positive-semidefinite"},
    "dvia:means=regular": {"diagonal", "positive-semidefinite"},
    "dvia:means=regular_covariance": {"diagonal", "positive-semidefinite"},
    "control_variate:samples=100,coefficient=jacobian": {"permutation", "batch", "positive-semidefinite"},
    "cubature:degree=5": {"positive-semidefinite"},
    "cubature:degree=5,scheme=sparse": {"positive-semidefinite"},
}


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS)
def test_a_built_in_rule_fails_only_where_its_formula_does(spec):
    report = sr.check_rule(spec)
    assert not report.unexpected, str(report)
    assert {result.name for result in report.failed} == KNOWN.get(spec, set())
    assert report.ran >= 16


def test_known_faults_are_known_and_still_failures():
    report = sr.check_rule("dvia", only=["diagonal", "positive-semidefinite", "affine"])
    assert not report.passed
    assert report.unexpected == ()
    assert report["diagonal"].status == "failed"
    assert "82 %" in report["diagonal"].known
    assert report["diagonal"].numbers["expected"] == pytest.approx(3.0902e-06, rel=1e-4)  # closed form
    assert "2 failed (2 known)" in report.summary
    assert "rule = sr.rule('dvia')" in report["diagonal"].example


def test_a_known_fault_that_does_not_show_is_reported():
    class Modest(Gated):
        known_faults = {"affine": "never tried"}  # noqa: RUF012

    report = sr.check_rule(Modest(), only=["affine"])
    assert report["affine"].status == "passed"
    assert "does not show (never tried)" in report["affine"].detail


@pytest.mark.parametrize(
    ("rule", "smooth", "kinked"),
    [
        ("sdp", (2, 4, 1), (1, 2, 0)),
        ("moment_matching", (4, 4, 1), (1, 2, 0)),
        ("marginal_moment_matching", (2, 2, 0), (1, 2, 0)),
    ],
)
def test_orders_of_convergence_are_those_of_the_expansion(rule, smooth, kinked):
    """The third cumulants that moment matching ignores are of order 4, and correlations of order 2."""
    result = sr.check_rule(rule, only="order")["order"]
    for kind, orders in (("smooth", smooth), ("kinked", kinked)):
        for quantity, order in zip(("mean", "covariance", "law"), orders, strict=True):
            assert result.numbers[f"{kind} {quantity}"] == pytest.approx(order, abs=0.2), (kind, quantity)
    assert result.numbers["affine mean"] == np.inf
    assert "affine mean exact" in result.detail
    assert f"; kinked mean {kinked[0]}.0, covariance {kinked[1]}.0, law 0.0" in result.detail


def test_an_order_that_is_not_reached_fails_and_an_unknown_one_is_reported():
    rule = Gated()
    rule.orders = {"kinked mean": 2, "smooth man": 4}
    result = sr.check_rule(rule, only="order")["order"]
    assert result.status == "failed"
    assert result.detail == "the error of the kinked mean is of order 1.00 in the noise, not 2"
    assert '"smooth man"' in sr.check_rule(rule)["orders"].detail


def test_claims_determine_the_checks():
    assert sr.check_rule(Matched(), only="moments")["moments"].status == "skipped"
    rule = Matched()
    rule.claims = ["moments", "marginal moments"]
    report = sr.check_rule(rule, only=["moments", "marginal-moments", "several"])
    assert report["moments"].status == report["marginal-moments"].status == "passed"
    assert report.passed
    marginal = Marginal()
    marginal.claims = {"moments"}
    assert 'claims "marginal moments"' in sr.check_rule(marginal, only="moments")["moments"].detail


def test_one_reason_for_many_failures_is_reported_once():
    class Broken(Gated):
        name = "broken"

        def propagate(self, net, x):
            raise RuntimeError("forgot a key")

    names = ("affine", "small-noise", "dtype", "moments")
    report = sr.check_rule(Broken(), only=names)
    assert [each.same_as for each in report.checks] == [None, "affine", "affine", None]
    assert report.causes == ("failed affine, small-noise, dtype: raised RuntimeError: forgot a key",)
    assert str(report).count("forgot a key") == 2  # once at the first check, once as the cause
    assert report.as_dict()["checks"][1]["same_as"] == "affine"


def test_a_sampling_rule_may_claim_moments():
    rule = Sampled()
    rule.claims = {"moments", "marginal moments"}
    assert sr.check_rule(rule, only=["moments", "marginal-moments"]).passed


class SpreadLeft(Gated):
    """The gradient in the spread of inputs of one family is halved; that in the mean is right."""

    name = "spread-left"
    graph = True

    def __init__(self, family, spread):
        self.family, self.spread = family, spread

    def propagate(self, net, x):
        if isinstance(x, self.family):
            spread = getattr(x, self.spread)
            x = self.family(x.mean, (spread + spread.detach()) / 2)
        return super().propagate(net, x)


class WeightLeft(Gated):
    name = "weight-left"
    graph = True

    def linear(self, net, w, b, mean, covariance):
        return super().linear(net, (w + w.detach()) / 2, b, mean, covariance)


@pytest.mark.parametrize(
    ("rule", "leaf"),
    [
        (SpreadLeft(sr.DiagonalGaussian, "variance"), "variance"),
        (SpreadLeft(sr.Gaussian, "covariance"), "factor of the covariance"),
        (WeightLeft(), "0.weight"),
    ],
)
def test_the_gradient_that_is_wrong_is_the_one_that_is_named(rule, leaf):
    found = sr.check_rule(rule, only="gradients")["gradients"]
    assert found.detail.startswith(f"in the {leaf} the gradient is ")
    assert found.numbers["error"] > found.numbers["tolerance"]


class RootAtZero(Gated):
    """Right gradients, but not finite at a point mass."""

    name = "root-at-zero"
    graph = True

    def outer(self, d, covariance):
        v = covariance.diagonal(dim1=1, dim2=2)
        s = v.sqrt()
        return super().outer(d, covariance + torch.diag_embed(s * s - v))


def test_a_gradient_that_is_not_finite_is_named():
    found = sr.check_rule(RootAtZero(), only="gradients")["gradients"]
    assert found.detail.startswith("at a singular input the gradient in the ")


class WiderInCompany(Matched):
    name = "wider-in-company"

    def law(self, mean, covariance):
        n = mean.shape[1]
        return super().law(mean, covariance * (1 + 0.01 * (n - 1)))


def test_an_output_in_company_is_compared_with_it_alone():
    found = sr.check_rule(WiderInCompany(), only="diagonal")["diagonal"]
    assert "compared with the same output alone" in found.detail


def test_a_rule_may_say_that_it_is_not_differentiable():
    detached = type("Detached", (MUTANTS["gradients"],), {"differentiable": False})()
    report = sr.check_rule(detached, only="gradients")
    assert report["gradients"].status == "skipped"


def test_a_rule_that_supports_nothing_has_not_passed_and_unknown_checks_are_reported():
    report = sr.check_rule(SupportsNothing())
    assert report.ran == 0
    assert not report.passed
    assert all(result.status == "skipped" for result in report.checks)
    assert "does not support anything" in report["affine"].detail
    assert '"the moon"' in report["claims"].detail
    assert '"afine"' in report["known-faults"].detail


def test_a_seed_without_samples_makes_an_unknown_error():
    class Hidden(Sampled):
        def __init__(self, seed=0):
            super().__init__(100, seed)
            self.count = self.samples
            del self.samples

        def draws(self, x):
            generator = torch.Generator().manual_seed(self.seed)
            return torch.randn(1, self.count, x.dimension, generator=generator, dtype=torch.float64)

    report = sr.check_rule(Hidden(), only=["affine", "determinism"])
    assert "its error is unknown" in report["affine"].detail
    assert report["determinism"].status == "passed"


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda x: x.mean, "returned a Tensor"),
        (lambda x: sr.Cauchy(x.mean, x.mean.abs()), "returned a Cauchy"),
        (lambda x: unchecked(sr.Gaussian, x.mean, x.mean), "covariance of the result has shape (1, 1)"),
        (lambda x: sr.DiagonalGaussian(*x.mean.abs().repeat(2, 2, 1)), "mean of the result has shape (2, 1)"),
        (lambda x: unchecked(sr.DiagonalGaussian, x.mean, 1.0), "variance of the result is a float"),
        (lambda x: sr.DiagonalGaussian(*x.mean.abs().repeat(2, 1, 3)), "mean has shape (1, 3), not (1, 1)"),
    ],
)
def test_a_result_of_the_wrong_kind_fails(result, message):
    class Wrong:
        name = "wrong"

        def propagate(self, net, x):
            return result(x)

    found = sr.check_rule(Wrong(), only="affine")["affine"]
    assert found.status == "failed"
    assert message in found.detail


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (3, "int 3 has no `name`"),
        ("spd", "rule 'spd' not found"),
        (Gated, "check_rule(Gated())"),
        (type("Odd", (), {"name": 7, "propagate": print})(), "got 7"),
        (type("Odd", (), {"name": "odd", "propagate": 1})(), "propagate must be a function"),
        (type("Odd", (Gated,), {"claims": "moments"})(), "collection of strings"),
        (type("Odd", (Gated,), {"known_faults": ["affine"]})(), "must map"),
        (type("Odd", (Gated,), {"orders": {"smooth mean": "4"}})(), "orders must map names"),
        (type("Odd", (Gated,), {"differentiable": "no"})(), "differentiable must be True or False, got 'no'"),
    ],
)
def test_an_object_that_is_not_a_rule_is_refused(rule, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        sr.check_rule(rule)


def test_unknown_checks_rules_and_seeds_are_refused():
    for call in (sr.check_rule, conformance_tests):
        with pytest.raises(ValueError, match="check 'afine' not found; did you mean 'affine'"):
            call("sdp", only=["afine"])
    with pytest.raises(ValueError, match="rule 'spd' not found"):
        conformance_tests("spd")
    with pytest.raises(ValueError, match="seed must be"):
        sr.check_rule("sdp", seed=-1)


class Careless(Gated):
    """Disturbs all global state that it can reach."""

    name = "careless"

    def propagate(self, net, x):
        torch.manual_seed(7)
        np.random.seed(7)  # noqa: NPY002
        random.seed(7)
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        return super().propagate(net, x)


@pytest.mark.parametrize("rule", [Careless(), MUTANTS["global-rng"]()])
def test_the_kit_leaves_global_state_alone(rule):
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    random.seed(3)
    before = (torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate())  # noqa: NPY002
    threads = torch.get_num_threads()
    sr.check_rule(rule, only=["affine", "determinism", "global-rng", "gradients"])
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    assert random.getstate() == before[2]
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()
    assert torch.get_num_threads() == threads


def test_the_report_reads_as_text_and_as_json():
    seen = []
    report = sr.check_rule(MUTANTS["zero-variance"](), only=["affine", "zero-variance"], progress=seen.append)
    assert tuple(seen) == report.checks
    assert isinstance(report, ConformanceReport)
    text = str(report)
    assert f"kit {VERSION}, 2 of 2 checks ran: 1 passed, 1 failed" in text
    assert f"failed zero-variance: {report['zero-variance'].detail}" in text
    assert "x = sr.DiagonalGaussian(" in text
    plain = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert plain["counts"] == {"passed": 1, "failed": 1, "skipped": 0}
    assert plain["unexpected"] == ["zero-variance"]
    assert plain["checks"][1]["numbers"]["got"] == "nan"
    with pytest.raises(KeyError):
        report["nothing"]


def test_a_notebook_shows_errors_and_tolerances_of_checks():
    report = sr.check_rule("sdp", only="affine")
    html = report._repr_html_()
    assert f"{report['affine'].numbers['error']:.3g}" in html
    assert f"{report['affine'].numbers['tolerance']:.3g}" in html


class OfSdp:
    name = "of-sdp"

    def propagate(self, net, x):
        return sr.propagate(net, x, "sdp")


class BlocksOf(Gated):
    """Laws beyond the first few get the covariance of the first."""

    def __init__(self, size):
        self.size = size

    def law(self, mean, covariance):
        rows = torch.arange(len(mean))
        return super().law(mean, covariance[torch.where(rows < self.size, rows, 0)])


class BranchAlone(OfSdp):
    def propagate(self, net, x):
        if isinstance(net, nn.Sequential):
            net = nn.Sequential(*(getattr(m, "branch", m) for m in net))
        return super().propagate(net, x)


@pytest.mark.parametrize(
    ("rule", "checks"), [(BranchAlone(), {"affine", "small-noise"}), (BlocksOf(16), {"batch"})]
)
def test_a_wrong_rule_fails_where_it_must(rule, checks):
    report = sr.check_rule(rule, only=["affine", "small-noise", "batch"])
    assert {result.name for result in report.failed} == checks
    for result in report.failed:
        names = {"rule": rule}
        exec(result.example, names)
        assert isinstance(names["net"], nn.Module)


def test_a_rejected_case_is_reported_with_its_reason():
    detail = sr.check_rule(Gated(), only="affine")["affine"].detail
    for module in ("Flatten", "Conv2d", "Sequential", "Residual", "BatchNorm1d", "Conv1d", "PixelShuffle"):
        assert f"does not support {module}" in detail


@pytest.mark.parametrize(
    ("spec", "status"),
    [("moment_matching", "passed"), ("unscented", "passed"), ("sdp", "failed"), ("dvia", "skipped")],
)
def test_rules_that_do_and_do_not_keep_the_second_order(spec, status):
    class Claims:
        name = spec
        claims = ("second order",)

        def propagate(self, net, x):
            return sr.propagate(net, x, spec)

    assert sr.check_rule(Claims(), only="second-order")["second-order"].status == status


def test_skipped_checks_give_the_reason():
    report = sr.check_rule("marginal_sdp", only=["symmetry", "mean-shift", "sampling-error", "moments"])
    assert report.ran == 0
    assert "off-diagonal" in report["mean-shift"].detail
    assert "`samples`" in report["sampling-error"].detail
    assert "graph" in sr.check_rule(Gated(), only="gradients")["gradients"].detail


class RaisesOnTwoThreads(Gated):
    def propagate(self, net, x):
        if torch.get_num_threads() > 1:
            raise RuntimeError("no second thread")
        return super().propagate(net, x)


def test_the_number_of_threads_is_restored_after_a_rule_that_raises():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert not sr.check_rule(RaisesOnTwoThreads(), only="threads").passed
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_a_report_without_a_passed_check_has_not_passed():
    assert not ConformanceReport("none", ()).passed
    skipped = CheckResult("a", "?", "skipped", "why")
    passed = CheckResult("b", "?", "passed", "")
    assert not ConformanceReport("none", (skipped,)).passed
    assert ConformanceReport("some", (skipped, passed)).passed


class Exits(OfSdp):
    """Ends the process for kinked nets."""

    name = "exits"

    def propagate(self, net, x):
        if any(isinstance(module, nn.ReLU) for module in net.modules()):
            raise SystemExit(7)
        return super().propagate(net, x)


def test_a_rule_that_ends_the_process_fails_instead():
    report = sr.check_rule(Exits(), only=["affine", "scale"])
    assert report["affine"].status == "passed"
    assert report["scale"].status == "failed"
    assert "SystemExit" in report["scale"].detail
    assert "nn.ReLU()" in report["scale"].example


pytest_plugins = ["pytester"]

MODULE = """
from sdp_ref.testing import conformance_tests
from tests.sdp_ref.conformance.mutants import MUTANTS, Gated, SupportsNothing

class Known(Gated):
    known_faults = {{"affine": "never was"}}

test_rule = conformance_tests({rule}, only={only})
"""


@pytest.fixture
def run(pytester, monkeypatch, request):
    monkeypatch.syspath_prepend(str(request.config.rootpath))

    def session(rule, only):
        pytester.makepyfile(MODULE.format(rule=rule, only=only))
        return pytester.runpytest_inprocess("-rsxf", "-p", "no:cacheprovider", "-p", "no:benchmark")

    return session


def test_each_check_is_a_test_and_a_skip_has_its_reason(run):
    result = run("Gated()", ["affine", "moments"])
    result.assert_outcomes(passed=2, skipped=1)
    result.stdout.fnmatch_lines(['*it does not claim "moments"*'])


def test_a_failure_shows_the_example(run):
    result = run("MUTANTS['affine']()", ["affine"])
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*FAILED*affine*mean*", "*net = nn.Sequential(nn.Linear(1, 1))*"])


def test_a_known_fault_is_an_expected_failure(run):
    result = run("'dvia'", ["diagonal"])
    result.assert_outcomes(xfailed=1, passed=1)
    result.stdout.fnmatch_lines(["*known: *82 %*"])


def test_green_cannot_mean_that_nothing_ran(run):
    result = run("SupportsNothing()", ["affine", "dtype"])
    result.assert_outcomes(skipped=2, failed=1)
    result.stdout.fnmatch_lines(["*no check ran*"])
