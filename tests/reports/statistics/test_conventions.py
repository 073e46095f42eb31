"""Verdicts over conventions, and their summary in words."""

import pytest

from sdp_bench.reports.statistics.conventions import Outcome, Verdicts
from sdp_bench.reports.statistics.verdicts import Verdict

LETTERS = {
    "S": Verdict.SUPPORTED,
    "R": Verdict.REFUTED,
    "U": Verdict.UNDECIDED,
    "N": Verdict.NOT_MEASURED,
}


def verdicts(letters):
    """One convention a letter, named a, b, c ..."""
    return Verdicts({chr(97 + place): LETTERS[each] for place, each in enumerate(letters)})


@pytest.mark.parametrize(
    ("letters", "outcome", "words"),
    [
        ("", Outcome.NOT_MEASURED, "not measured"),
        ("NN", Outcome.NOT_MEASURED, "not measured"),
        ("S", Outcome.SUPPORTED, "supported"),
        ("SS", Outcome.SUPPORTED, "supported in both"),
        ("SSSSSS", Outcome.SUPPORTED, "supported in all 6"),
        ("NSSS", Outcome.SUPPORTED, "supported in all 3; 1 not measured"),
        ("UUU", Outcome.UNDECIDED, "undecided in all 3"),
        ("R", Outcome.REFUTED, "refuted"),
        ("RRR", Outcome.REFUTED, "refuted in all 3"),
        ("RRRURR", Outcome.PARTLY_REFUTED, "refuted in 5 of 6; undecided in d"),
        ("NUURUU", Outcome.PARTLY_REFUTED, "refuted in 1 of 5 (d); undecided in 4; 1 not measured"),
        ("SUU", Outcome.PARTLY_SUPPORTED, "supported in 1 of 3 (a); undecided in b and c"),
        ("SSSR", Outcome.DEPENDS, "refuted in 1 of 4 (d); supported in 3"),
        ("SRUN", Outcome.DEPENDS, "refuted in 1 of 3 (b); supported in a; undecided in c; 1 not measured"),
    ],
)
def test_no_word_stands_for_a_mixture(letters, outcome, words):
    assert verdicts(letters).outcome is outcome
    assert verdicts(letters).words == words
