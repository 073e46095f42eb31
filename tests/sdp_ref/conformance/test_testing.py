import pytest

from sdp_ref.testing import conformance_tests

pytest_plugins = ["pytester"]

MODULE = """
from sdp_ref.testing import conformance_tests
from tests.sdp_ref.conformance.mutants import Gated, MUTANTS
from tests.sdp_ref.conformance.test_kit import SupportsNothing

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


def test_a_bad_rule_is_told_at_once():
    with pytest.raises(ValueError, match="not found"):
        conformance_tests("spd")
    with pytest.raises(ValueError, match="not found"):
        conformance_tests("sdp", only=["afine"])
