import pytest

import sdp_ref
from sdp_bench.reports.rule_facts import ask, descriptions, facts
from sdp_ref.conformance.report import VERSION


def test_what_is_kept_of_docstrings_is_what_they_say():
    assert facts()["described"] == descriptions()
    assert set(facts()["described"]) == set(sdp_ref.rules())


def test_verdicts_are_of_this_kit():
    assert {kit["version"] for kit in facts()["kit"].values()} == {VERSION}
    assert {"sdp", "dvia", "unscented", "monte_carlo:samples=100"} <= set(facts()["kit"])


@pytest.mark.slow
def test_the_kit_is_asked_and_what_it_says_is_told():
    said = []
    (answer,) = ask(["marginal_sdp"], said.append).values()
    assert said == [f"marginal_sdp {answer['verdict']}"]
    assert answer == facts()["kit"]["marginal_sdp"]
