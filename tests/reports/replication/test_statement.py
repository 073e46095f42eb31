from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from sdp_bench.reports.statement import Answer, Effect, Statement, Topic, judged
from sdp_bench.reports.statistics.verdicts import Outcome, Verdict
from sdp_bench.reports.style import labels
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
    assert answer.finding.startswith("lead: 2.00")
    assert "needed > 1.50 (in 30 of 30 seeds)" in answer.finding
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


def signs(more, less, equal=0, size=1.0):
    """Effect with given numbers of replicates above 0, below and equal to it."""
    return Effect("lead", np.repeat([size, -size, 0.0], [more, less, equal]))


# If all agree, p is 2^-n: .063 of 4, .031 of 5 and .004 of 8. It is .011 of 9 of 10, .0037 of 13 of 15, which
# is significant among ten statements, and .047 of 16 of 23.
@pytest.mark.parametrize(
    ("part", "others", "reason", "more"),
    [
        (signs(4, 0), 0, "the number of seeds decides: 4 are too few for a significant result", 1),
        (signs(5, 0), 9, "the number of seeds decides: 5 are too few", 3),
        (signs(9, 1), 9, "the correction over 10 statements decides: this one alone would be supported", 5),
        (signs(1, 9), 9, "the correction over 10 statements decides: this one alone would be refuted", 5),
        (signs(7, 3), 0, "the data do not decide: 7 of 10 seeds are above the threshold", 13),
        (signs(5, 0, 5), 0, "the resolution of the measurement decides: 5 of 10 seeds equal", None),
        (signs(5, 5), 0, "the data do not decide: 5 of 10 seeds are above the threshold", None),
        (
            replace(signs(10, 0), values=np.repeat([0.9, 1.1], 5), threshold=1.0, ours=True),
            0,
            "our threshold decides: 5 of 10 seeds are above it, and 10 would be above a threshold of zero",
            None,
        ),
    ],
)
def test_undecided_statements_say_what_decides_and_how_many_more_replicates_would(
    results, part, others, reason, more
):
    def judge(effect):
        family = [Answer.of({(): [one]}, "seed") for one in (effect, *[signs(12, 12)] * others)]
        return verdicts(results, *family)[0]

    answer = judge(part)
    assert answer.verdicts.outcome is Outcome.UNDECIDED
    assert answer.why.startswith(reason)
    if more is None:
        assert answer.why.endswith("; the data lie at the threshold")
        return
    assert answer.why.endswith(f"; {labels.plural(more, 'more seed')} like these would decide")
    # with the same shares, rounded down, and the number before does not decide
    more_of, less_of = part.sides
    total = len(part.values)

    for count, decided in ((total + more, True), (total + more - 1, False)):
        sides = [count * side // total for side in (more_of, less_of)]
        outcome = judge(signs(*sides, count - sum(sides))).verdicts.outcome
        assert (outcome is not Outcome.UNDECIDED) == decided


def test_a_statement_that_cannot_be_significant_takes_no_part_in_the_correction(results):
    tested = Answer.of({(): [signs(6, 0)]}, "seed")  # p is .016
    for size, outcome in ((4, Outcome.SUPPORTED), (6, Outcome.UNDECIDED)):
        others = [Answer.of({(): [signs(size // 2, size // 2)]}, "seed")] * 9
        assert verdicts(results, tested, *others)[0].verdicts.outcome is outcome


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
