from dataclasses import replace

import pytest

from sdp_bench.bench.gate.check import Options, check
from sdp_bench.bench.gate.verdict import ALL_CASES, Status
from tests.bench.gate.gate_rules import baseline_of, few_cells, write_sampler

CHECK = Options(seed=7, speed=False)
ALL = few_cells(inputs=1, samples=2**13, probes=True)
PROBES = (
    "gelu chain",
    "silu chain",
    "convolutions and pools, image",
    "relu chain, correlated input",
    "relu chain, Cauchy input",
)
SCOPE = replace(ALL, probes=tuple(probe for probe in ALL.probes if probe.name in PROBES))


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """Baseline of the correct sampler."""
    folder = tmp_path_factory.mktemp("sampler")
    return baseline_of(folder / "ci.json", SCOPE, write_sampler(folder / "sampler.py"))


@pytest.fixture
def changed(tmp_path, known):
    """Verdict on a sampler with a change."""

    def judge(*change, **options):
        address = write_sampler(tmp_path / "sampler.py", *change, **options)
        return check(known, replace(CHECK, rules=(address,)), SCOPE).verdicts[0]

    return judge


def overall(verdict):
    """Numbers of the finding on all cells together."""
    return next(finding.numbers for finding in verdict.findings if finding.cell == ALL_CASES)


def test_a_sampling_rule_is_unchanged_under_its_seeds(changed):
    assert {finding.status for finding in changed().findings} == {Status.UNCHANGED}


def test_fewer_samples_are_caught_and_more_are_better(changed):
    assert changed(samples=12).status == "regression"
    more = changed(samples=60)
    assert more.status == "passed"
    assert Status.BETTER in {finding.status for finding in more.findings}


def test_other_draws_of_the_same_law_pass_in_cells_and_probes(changed):
    verdict = changed(offset=1)
    assert verdict.status == "passed"
    drawn = {finding.cell for finding in verdict.having(Status.REDRAWN)}
    assert {case.name for case in SCOPE.cases.values() if "Cauchy" not in case.name} == drawn - {ALL_CASES}


@pytest.mark.parametrize(
    ("change", "number", "size"),
    [
        ("covariance = 1.1 * covariance", "variance", 0.1 / 1.05),  # relative to the mean of both
        ("mean = mean + 0.1 * law.variance.sqrt()", "mean", 0.1),
    ],
)
@pytest.mark.parametrize("offset", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_another_law_is_caught_and_its_change_reported_with_its_error(changed, change, number, size, offset):
    """With the baseline's seeds and with others."""
    verdict = changed(change, offset=offset)
    assert verdict.status in {"changed", "regression"}
    numbers = overall(verdict)
    assert abs(numbers[f"{number} difference"] - size) < 5 * numbers[f"{number} stderr"] < 0.05


def test_lost_correlations_are_caught(changed):
    assert changed("covariance = torch.diag_embed(law.variance)").status in {"changed", "regression"}


def test_another_law_in_probes_alone_is_caught(changed):
    """The cells with oracles show other draws only."""
    verdict = changed("mean = mean + 0.3 * law.variance.sqrt()", when="x.dimension != 4", offset=1)
    assert verdict.status == "changed"
    assert not any(finding.stops for finding in verdict.findings if finding.cell.startswith("4-100"))


def test_a_wider_law_that_is_nearer_to_the_oracle_is_not_an_improvement(changed):
    """KL rewards wide covariances of few samples."""
    verdict = changed("covariance = 1.1 * covariance", offset=1)
    found = next(f for f in verdict.findings if f.cell.startswith("4-100"))
    assert found.numbers["log error difference"] < 0
    assert verdict.status == "changed"


def test_a_rule_that_fails_under_other_seeds_of_a_probe_is_a_failure(changed):
    verdict = changed("raise ValueError('no')", when="self.seed % 2 and x.dimension != 4", offset=1)
    assert {f.text for f in verdict.having(Status.FAILED)} == {"ValueError: no"}
