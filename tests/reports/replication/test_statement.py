import numpy as np
import pytest
from scipy import stats

from sdp_bench.reports.statement import Answer, Effect, Statement, Topic, judged
from sdp_bench.reports.statistics.verdicts import Outcome, Verdict
from tests.reports import made_up

# Quantiles of a normal law: as like a sample of it as thirty numbers can be.
NOISE = stats.norm.ppf((np.arange(30) + 0.5) / 30)


@pytest.fixture(scope="module")
def results():
    return made_up.results(made_up.frame())


def effect(mean, noise=NOISE, **options):
    return Effect("lead", mean + noise, **options)


def verdicts(results, *rules):
    statements = tuple(
        Statement(f"s{place}", (1, 1), "words", rule=lambda _, one=one: one)
        for place, one in enumerate(rules)
    )
    (made,) = judged([Topic("t", "Topic", statements)], results)
    return [one.answer for one in made.statements]


def test_a_statement_holds_if_every_part_does_and_fails_if_one_is_wrong(results):
    good, bad, unclear = effect(3), effect(-3), effect(0.1)
    for parts, outcome in (
        ((good,), Outcome.SUPPORTED),
        ((good, good), Outcome.SUPPORTED),
        ((good, bad), Outcome.REFUTED),
        ((good, unclear), Outcome.UNDECIDED),
    ):
        (answer,) = verdicts(results, Answer.of({(): parts}, "net"))
        assert answer.verdicts.outcome is outcome, parts


def test_thresholds_are_shown_on_the_scale_of_the_effect(results):
    ratio = effect(np.log(2), NOISE / 10, threshold=np.log(1.5), shown=np.exp)
    (answer,) = verdicts(results, Answer.of({(): [ratio]}, "seed"))
    assert answer.verdicts.outcome is Outcome.SUPPORTED
    assert answer.finding.startswith("lead: 2.000 (1.9")
    assert "needed > 1.50 (30 seeds)" in answer.finding
    falling = effect(-np.log(2), NOISE / 10, shown=lambda value: np.exp(-value))
    (answer,) = verdicts(results, Answer.of({(): [falling]}, "seed"))
    assert "needed < 1.00" in answer.finding


def test_a_statement_without_conventions_is_of_the_family_of_each(results):
    unclear = Answer.of({("PD Gauss mean", "Dirichlet law"): [effect(0.01)]}, "net")
    others = [unclear] * 19
    for settled in ((), ("PD Gauss mean",), ("Dirichlet law",)):
        one = Answer.of({settled: [effect(0.6)]}, "net")
        assert verdicts(results, one)[0].verdicts.outcome is Outcome.SUPPORTED
        assert verdicts(results, one, *others)[0].verdicts.outcome is Outcome.UNDECIDED
    # Under another reading of the same score it is not of that family.
    other = Answer.of({("PD Gauss vote",): [effect(0.6)]}, "net")
    assert verdicts(results, other, *others)[0].verdicts.outcome is Outcome.SUPPORTED


def test_a_failure_under_any_convention_is_listed_first(results):
    two = Answer.of({("one",): [effect(3)], ("other",): [effect(-3)]}, "net")
    (answer,) = verdicts(results, two)
    assert answer.verdicts.outcome is Outcome.SUPPORTED_OR_REFUTED
    assert answer.verdicts.by_convention == {"one": Verdict.SUPPORTED, "other": Verdict.REFUTED}
    assert answer.finding.startswith("other: lead: −3.00")


@pytest.mark.parametrize(
    ("parts", "others", "reason"),
    [
        ([effect(5, NOISE[:2])], 0, "the number of seeds cannot decide: 2 seeds, at least 3"),
        ([effect(5, NOISE[:4])], 0, "the number of seeds cannot decide: 4 seeds would not"),
        ([effect(0.1)], 0, "the data do not decide: the interval contains the threshold"),
        (
            [effect(0.6)],
            19,
            "the data do not decide: the interval of this effect alone excludes the threshold",
        ),
        ([effect(1.1, threshold=1.0, ours=True)], 0, "the threshold decides"),
        ([effect(1.1, threshold=1.0)], 0, "the data do not decide: the interval contains the threshold"),
    ],
)
def test_undecided_statements_say_why(results, parts, others, reason):
    statement = Answer.of({(): parts}, "seed")
    others_of_family = [Answer.of({(): [effect(0.01)]}, "seed")] * others
    answer = verdicts(results, statement, *others_of_family)[0]
    assert answer.verdicts.outcome is Outcome.UNDECIDED
    assert answer.why.startswith(reason)


def test_without_data_or_without_a_rule_nothing_is_measured(results):
    without_data = Statement("a", (1, 1), "words", rule=lambda _: None)
    without_rule = Statement("b", (2, 2), "words", reason="nobody knows")
    (topic,) = judged([Topic("t", "Topic", (without_data, without_rule))], results)
    assert {one.answer.verdicts.outcome for one in topic.statements} == {Outcome.NOT_MEASURED}
    first, second = topic.statements
    assert "not measured" in first.answer.finding
    assert "nobody knows" in second.answer.finding


def test_of_two_refutations_the_larger_is_shown(results):
    trials = {("one",): [effect(-3)], ("other",): [effect(-4)]}
    (answer,) = verdicts(results, Answer.of(trials, "net"))
    assert answer.finding.startswith("other: lead: −4.00")


def test_certain_answers_have_no_trial():
    assert Answer.certain(holds=True, finding="").verdicts.outcome is Outcome.SUPPORTED
    assert Answer.certain(holds=False, finding="").verdicts.outcome is Outcome.REFUTED


def test_effects_without_replicates_are_no_answer():
    assert Answer.of({(): []}, "net") is None
    assert Answer.of({(): [effect(1), effect(1, NOISE[:0])]}, "net") is None
