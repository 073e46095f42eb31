"""Sampling rules that were made wrong: under their seeds and under others, in cells and in probes."""

from dataclasses import replace

import numpy as np
import pytest

from sdp_bench.bench.gate.answers.draws import Units
from sdp_bench.bench.gate.answers.moments import PredictedMoments
from sdp_bench.bench.gate.baseline import read
from sdp_bench.bench.gate.check import Options, check
from sdp_bench.bench.gate.comparisons.accuracy import ALL_CELLS
from sdp_bench.bench.gate.comparisons.evidence import nearness
from sdp_bench.bench.gate.verdict import Status
from sdp_bench.reports.selfcheck.gating.power import Power
from tests.bench.gate.gate_rules import baseline_of, few_cells, write_sampler
from tests.project import ROOT

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
    """Baseline of the sampler as it should be."""
    folder = tmp_path_factory.mktemp("sampler")
    return baseline_of(folder / "ci.json", SCOPE, write_sampler(folder / "sampler.py"))


@pytest.fixture
def changed(tmp_path, known):
    """Verdict on a sampler that was made otherwise."""

    def judge(*change, **options):
        address = write_sampler(tmp_path / "sampler.py", *change, **options)
        return check(known, replace(CHECK, rules=(address,)), SCOPE).verdicts[0]

    return judge


def test_other_draws_of_the_same_law_pass_in_cells_and_probes(changed):
    verdict = changed(offset=1)
    assert verdict.status == "passed"
    drawn = {finding.cell for finding in verdict.having(Status.REDRAWN)}
    assert {place.name for place in SCOPE.places.values() if "Cauchy" not in place.name} == drawn - {
        ALL_CELLS
    }
    assert verdict.causes == ()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("covariance = 1.01 * covariance", "covariance x 1.01"),
        ("mean = mean + 0.01 * law.variance.sqrt()", "mean +0.01 standard deviations"),
        ("covariance = torch.diag_embed(law.variance)", "off-diagonals of the covariance lost"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("covariance = 0.99 * covariance", "covariance x 0.99"),
                ("covariance = 1.5 * covariance", "covariance x 1.5"),
                ("mean = 1.01 * mean", "mean x 1.01"),
            )
        ),
    ],
)
def test_the_same_draws_with_another_law_are_caught_and_told(changed, change, text):
    verdict = changed(change)
    assert verdict.status in {"changed", "regression"}
    (cause,) = verdict.causes
    assert cause.text.startswith(f"{text} in 5 of 6 cells, ")
    assert cause.text.endswith(" unchanged")


@pytest.mark.parametrize(
    "change",
    ["mean, covariance = 3 * mean, 25 * covariance", "mean = mean + 0.3 * law.variance.sqrt()"],
)
def test_other_draws_with_another_law_in_probes_alone_are_caught(changed, change):
    """The cells with oracles show nothing but other draws."""
    verdict = changed(change, when="x.dimension != 4", offset=1)
    assert verdict.status == "changed"
    assert not any(finding.stops for finding in verdict.findings if finding.cell.startswith("4-100"))
    (cause,) = verdict.causes
    assert "those with probe net" in cause.text


@pytest.mark.parametrize("scale", [0.9, 1.1])
def test_other_draws_with_another_spread_are_caught(changed, scale):
    verdict = changed(f"covariance = {scale} * covariance", offset=1)
    assert verdict.status in {"changed", "regression"}
    assert verdict.causes[0].numbers["covariance factor"] == pytest.approx(scale, abs=0.03)


def test_a_wider_law_that_is_nearer_to_the_oracle_is_no_improvement(changed):
    """KL rewards wide covariances of few samples."""
    verdict = changed("covariance = 1.1 * covariance", offset=1)
    found = next(f for f in verdict.findings if f.cell.startswith("4-100"))
    assert found.numbers["log error difference"] < 0
    assert verdict.status == "changed"


def test_a_change_in_one_probe_under_the_same_seeds_is_caught(changed):
    verdict = changed(
        "covariance = 1.005 * covariance", when="any(isinstance(m, nn.GELU) for m in net.modules())"
    )
    assert [f.cell for f in verdict.findings if f.stops and f.cell in {p.name for p in SCOPE.probes}] == [
        "gelu chain"
    ]
    (cause,) = verdict.causes
    assert cause.text == "covariance x 1.005 in 1 of 6 cells, those with GELU, mean unchanged"


def test_a_rule_that_fails_under_other_seeds_of_a_probe_is_a_failure(changed):
    verdict = changed("raise ValueError('no')", when="self.seed % 2 and x.dimension != 4", offset=1)
    assert {"ValueError: no"} == {f.text for f in verdict.having(Status.FAILED)}


def test_numbers_of_draws_give_their_moments_back():
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((2, 3, 3))
    reference, drawn = (PredictedMoments(rng.standard_normal(3), f @ f.T) for f in factors)
    units = Units(reference)
    (numbers,) = units.numbers([drawn])
    assert len(numbers) == units.width
    again = units.moments(numbers)
    assert again.mean == pytest.approx(drawn.mean)
    assert again.covariance == pytest.approx(drawn.covariance)
    (own,) = units.numbers([reference])
    assert own[:6] == pytest.approx([0, 0, 0, 1, 1, 1])


def test_nearness_is_that_of_fisher():
    """The product of two uniform numbers is below x with the probability x (1 - log x)."""
    x = 0.1 * 0.2
    assert nearness("means", [(0.1, 99), (0.2, 99), (1.0, 0)]).p == pytest.approx(x * (1 - np.log(x)))
    assert nearness("means", [(1.0, 0)]).p == 1


def test_the_documentation_states_the_power_of_the_committed_baseline():
    baseline = read(ROOT / "reports/baselines/ci.json")
    rules = [rule for rule in baseline.rules.values() if rule.draws]
    powers = [
        Power(rule.draws, {key: len(moments.mean) for key, moments in rule.moments.items()}, len(rules))
        for rule in rules
    ]
    said = (ROOT / "docs/ci.md").read_text(encoding="utf-8")
    changes = {f"all covariances x {c}": [p.covariance(c) for p in powers] for c in (0.99, 0.98, 0.97)}
    changes["all means + 1 % of a standard deviation"] = [p.mean_shift(0.01) for p in powers]
    changes["all means x 1.01"] = [p.mean_factor(1.01) for p in powers]
    for c in (1.05, 1.1, 1.2):
        changes[f"one covariance x {c}"] = [p.covariance_in_one(c) for p in powers]
    for c in (2, 5, 10):
        changes[f"one mean + {c} % of a standard deviation"] = [p.shift_in_one(c / 100) for p in powers]
    for change, found in changes.items():
        assert f"| {change} | {' | '.join(f'{each:.2f}' for each in found)} |" in said
