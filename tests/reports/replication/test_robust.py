import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from sdp_bench.bench.studies.robustness import METRICS
from sdp_bench.reports.replication.page import RULES, topics
from sdp_bench.reports.sections import introduction, robustness
from sdp_bench.reports.statement import Evidence, judged
from sdp_bench.reports.statistics.verdicts import Outcome
from tests.reports import made_up
from tests.reports.sections.helpers import ROBUSTNESS_COLUMNS, SCALED_OBJECTIVES, introduction_frame

SCALES = (1e-4, 1e-2, 1.0, 100.0, 1e4)
RUNS = 24


def hill(scale, best):
    """Falls by .1 a decade away from the best scale."""
    return -0.1 * abs(math.log10(scale / best))


def measured(left, noise, square=None, ce=0.05, clean=0.95, best=1.0, best_noise=1.0):
    """Accuracies of every objective: what attacks and noise leave at the best scale, by objective."""
    records, draws = [], np.random.default_rng(0)
    for objective in ("softmax", *SCALED_OBJECTIVES):
        scaled = objective != "softmax"
        for scale, seed in itertools.product(SCALES if scaled else (math.nan,), range(RUNS)):
            away = hill(scale, best) if scaled else 0.0
            attack = left[objective] + away
            noisy = noise[objective] + (hill(scale, best_noise) if scaled else 0.0)
            known = [
                ("clean", METRICS[0], "", clean + 0.005 * scaled),
                ("noise", METRICS[0], "0.5", noisy),
                ("square", METRICS[0], "16/255", (square or left)[objective] + away),
            ]
            for name in METRICS:
                known.append(("pgd_ce", name, "16/255", attack + ce * scaled))
                if scaled:
                    known.append(("pgd_own", name, "16/255", attack))
            model = ("robustness", "mnist", objective, scale, seed)
            records += [(*model, *where, value + 1e-3 * draws.standard_normal()) for *where, value in known]
    return pd.DataFrame(records, columns=ROBUSTNESS_COLUMNS[:-1])


PAPER = dict(zip(("softmax", *SCALED_OBJECTIVES), (0.14, 0.14, 0.85, 0.6, 0.7), strict=True))
NOISY = dict(zip(("softmax", *SCALED_OBJECTIVES), (0.5, 0.5, 0.9, 0.85, 0.9), strict=True))


def outcomes(frame, topic="robustness"):
    (chosen,) = (one for one in topics() if one.key == topic)
    (judged_topic,) = judged([chosen], SimpleNamespace(frame=frame, traits=made_up.TRAITS, runtime=()))
    return {statement.key: statement.answer for statement in judged_topic.statements}


def test_every_claim_is_ruled_on_and_holds_of_numbers_like_the_papers():
    answers = outcomes(measured(PAPER, NOISY, best_noise=1e-2))
    assert set(answers) == set(robustness.RULES)
    for key, answer in answers.items():
        assert answer.verdicts.outcome is Outcome.SUPPORTED, (key, answer.finding)
        assert answer.address == "#robustness"
        assert answer.fidelity.startswith("24 runs of MNIST")


@pytest.mark.slow
def test_claims_fail_of_numbers_that_say_the_opposite():
    upside_down = {name: 1 - value for name, value in PAPER.items()}
    noisy = dict.fromkeys(NOISY, 0.4) | {"softmax": 0.9}
    answers = outcomes(measured(upside_down, noisy, ce=-0.05, clean=0.9, best=1e-2, best_noise=100.0))
    for key in set(robustness.RULES) - {"robust-accuracy", "robust-dirichlet"}:
        assert answers[key].verdicts.outcome is Outcome.REFUTED, (key, answers[key].finding)
    gaining = outcomes(measured(PAPER | {"dirichlet": 0.4}, NOISY))["robust-dirichlet"]
    assert gaining.verdicts.outcome is Outcome.REFUTED


def test_robustness_that_only_vanishing_gradients_bring_depends_on_how_attacks_are_counted():
    broken = PAPER | dict.fromkeys(("pairwise_gaussian", "pairwise_marginal", "pairwise_cauchy"), 0.05)
    answers = outcomes(measured(PAPER, NOISY, square=broken))
    for key in ("robust-meaningful", "robust-most", "robust-improvement", "robust-baselines"):
        assert answers[key].verdicts.outcome is Outcome.SUPPORTED_OR_REFUTED, (key, answers[key].finding)
        assert "without gradients" in answers[key].finding
        assert dict(answers[key].verdicts.by_convention)["gradients not zero"].name == "SUPPORTED"


def test_nothing_measured_is_no_ruling():
    empty = pd.DataFrame(columns=ROBUSTNESS_COLUMNS)
    for topic in ("robustness", "introduction"):
        assert {each.verdicts.outcome for each in outcomes(empty, topic).values()} == {Outcome.NOT_MEASURED}


def test_scales_too_far_apart_determine_no_range():
    frame = measured(PAPER, NOISY)
    few = frame[frame["sigma"].isin((1e-4, 1e4)) | frame["sigma"].isna()]
    assert outcomes(few)["robust-range"].verdicts.outcome is Outcome.NOT_MEASURED


@pytest.mark.slow
def test_a_baseline_at_the_best_of_its_scales_is_not_better_by_noise_alone():
    """Softmax without scales is compared with the Dirichlet likelihood at five: all are equally accurate."""
    rng = np.random.default_rng(0)
    frame = measured(PAPER, NOISY)
    tests = 100
    hits = 0
    for _ in range(tests):
        frame["value"] = 0.5 + 0.01 * rng.standard_normal(len(frame))
        answer = RULES["robust-dirichlet"](Evidence(SimpleNamespace(frame=frame)))
        effects = [replace(effect, threshold=0.0) for trial in answer.trials for effect in trial.effects]
        hits += effects[0].p[1] < 0.05
    assert hits <= stats.binom.ppf(0.999, tests, 0.05)


@pytest.mark.parametrize(
    ("best", "expected"),
    [
        ((100.0, 10.0, 10.0, 1.0, 1.0, 0.1), Outcome.SUPPORTED),
        ((0.01, 0.1, 1.0, 1.0, 10.0, 100.0), Outcome.REFUTED),
    ],
)
def test_the_layers_best_scales_fall_or_rise(best, expected):
    frame = introduction_frame(best, seeds=RUNS)
    answers = outcomes(frame, "introduction")
    assert set(answers) == set(introduction.RULES)
    assert answers["introduction-layers"].verdicts.outcome is expected
    assert answers["introduction-decay"].verdicts.outcome is expected


@pytest.mark.parametrize(("best", "expected"), [(1.0, Outcome.SUPPORTED), (100.0, Outcome.REFUTED)])
def test_an_optimum_lies_between_the_scales_or_at_an_end(best, expected):
    answers = outcomes(introduction_frame((best,) * 6, seeds=RUNS), "introduction")
    assert answers["introduction-scale"].verdicts.outcome is expected


@pytest.mark.slow
@pytest.mark.parametrize(("side", "decades", "upper_end"), [(0, 13, 0.0), (1, 3, 0.8)])
def test_noise_alone_makes_no_best_scale(side, decades, upper_end):
    """The best of eleven inner scales is above an equal end by noise alone, and the better end above one."""
    rng = np.random.default_rng(0)
    tests = 200
    hits = 0
    for _ in range(tests):
        frame = introduction_frame((1.0,), seeds=30, scales=10.0 ** (np.arange(decades) - decades // 2))
        is_upper = frame["sigma"] == frame["sigma"].max()
        frame["value"] = np.where(is_upper, upper_end, 0.8) + 0.01 * rng.standard_normal(len(frame))
        tried = RULES["introduction-scale"](Evidence(SimpleNamespace(frame=frame)))
        hits += tried.trials[0].uncorrected[side] < 0.05
    assert hits <= stats.binom.ppf(0.9999, tests, 0.05)
