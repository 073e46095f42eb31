"""Verdicts over conventions: what they come to, and in words."""

import pytest

from sdp_bench.reports.statistics.conventions import Outcome, Verdicts, tally
from sdp_bench.reports.statistics.verdicts import Verdict

LETTERS = {
    "H": Verdict.HOLDS,
    "F": Verdict.FAILS,
    "U": Verdict.UNDECIDED,
    "N": Verdict.NOT_MEASURED,
}


def verdicts(letters, largest=""):
    """One convention a letter, named a, b, c ..."""
    return Verdicts({chr(97 + place): LETTERS[each] for place, each in enumerate(letters)}, largest)


@pytest.mark.parametrize(
    ("letters", "outcome", "words"),
    [
        ("", Outcome.NOT_MEASURED, "not measured"),
        ("NN", Outcome.NOT_MEASURED, "not measured"),
        ("H", Outcome.HOLDS, "holds"),
        ("HH", Outcome.HOLDS, "holds in both"),
        ("HHHHHH", Outcome.HOLDS, "holds in all 6"),
        ("NHHH", Outcome.HOLDS, "holds in all 3; 1 not measured"),
        ("UUU", Outcome.UNDECIDED, "undecided in all 3"),
        ("F", Outcome.FAILS, "fails, effect E"),
        ("FFF", Outcome.FAILS, "fails in all 3, largest effect E"),
        ("FFFUFF", Outcome.FAILS_SOMEWHERE, "fails in 5 of 6, largest effect E; undecided in d"),
        ("NUUFUU", Outcome.FAILS_SOMEWHERE, "fails in 1 of 5 (d), effect E; undecided in 4; 1 not measured"),
        ("HUU", Outcome.HOLDS_SOMEWHERE, "holds in 1 of 3 (a); undecided in b and c"),
        ("HHHF", Outcome.TURNS, "fails in 1 of 4 (d), effect E; holds in 3"),
        ("HFUN", Outcome.TURNS, "fails in 1 of 3 (b), effect E; holds in a; undecided in c; 1 not measured"),
    ],
)
def test_no_word_stands_for_a_mixture(letters, outcome, words):
    found = verdicts(letters, "E" if "F" in letters else "")
    assert found.outcome is outcome
    assert found.words == words


def test_claims_are_counted_by_what_they_come_to():
    every = [verdicts(each) for each in ("HH", "HN", "FF", "FU", "UF", "HFU", "HU", "UU", "NN")]
    assert tally(every) == (
        "9 claims: 2 hold everywhere, 1 fails everywhere, 2 fail in some conventions and hold in none, "
        "1 turns with the convention, 1 holds in some conventions and fails in none, "
        "1 is undecided everywhere, 1 is not measured"
    )
    assert tally([verdicts("HH")]) == "1 claim: 1 holds everywhere"
