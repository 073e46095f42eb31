"""A user's rule in the results: what pages say of it is what the results keep, not what its name suggests."""

import numpy as np
import pytest

from sdp_bench.bench.results.folder import read
from sdp_bench.bench.validation.result import Candidate
from sdp_bench.reports.drilldown import selected_keys
from sdp_bench.reports.recommendation.answers import recommendations
from sdp_bench.reports.recommendation.judging import judge
from sdp_bench.reports.results import results_of
from sdp_bench.reports.sections.choice import bands_of, choice
from sdp_ref.rules import Traits
from tests.reports import made_up

METRIC = "tv_headline:cells=512,pilot_samples=131072"
TRAITS = {
    "sdp": Traits("SDP", "#0072b2", rank=10),
    "dvia": Traits("DVIA", "#d55e00", rank=20),
    "mine": Traits("Mine & yours", "#123456", sampling=0, rank=90),
    "bound": Traits("The bound", reference=True, rank=300),
}
DISTANCES = {"sdp": 0.2, "dvia": 0.4, "mine": 0.1, "bound": 0.01}


def stored(folder, nets):
    """Results in which a user's sampling rule is the best, and a reference better still."""
    rng = np.random.default_rng(0)
    rows = [
        {
            "unit": f"{net:016x}",
            "net": f"{net:016x}",
            "network": "4-100-3",
            "activation": "relu",
            "depth": 1,
            "seed": net,
            "input": 3,
            "noise": "gaussian",
            "sigma": 1.0,
            "accuracy": 0.98,
            "sampler": "mc",
            "samples": 10_000,
            "recipe": "adam",
            "rule": rule,
            "metric_spec": METRIC,
            "value": value + rng.normal(0, 1e-3),
            "floor": 0.01,
            "floor95": 0.012,
            "stderr": 4e-4,
            "unit_of_measure": "1",
            "seconds": 1e-3,
            **made_up.columns_of(TRAITS[rule]),
        }
        for net in range(nets)
        for rule, value in DISTANCES.items()
    ]
    made_up.write_results(folder, rows)
    return results_of(read(folder))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return stored(tmp_path_factory.mktemp("stored"), nets=4)


def test_the_report_never_calls_a_sampling_plugin_the_best_that_does_not_sample(results):
    (row,) = results.tables[0].rows
    assert [row.ranked(sampling=own)[0].rule for own in (True, False)] == ["mine", "sdp"]
    (band,) = bands_of(choice(results.tabled, results.traits))
    for answer in band.conditions[0].rankings:
        assert (answer.best.leader, answer.sampling, answer.deterministic.leader) == ("mine", True, "sdp")


def test_nor_does_the_scorecard(results):
    found = recommendations(results.frame, results.traits, [])
    assert {answer.ranking.leader for answer in found} == {"mine"}
    said = judge(results, Candidate("dvia"), []).verdict.details
    assert "compared with SDP, the best built-in rule: better in 0, worse in 1" in said
    assert "compared with rules of its kind: SDP better in 0, worse in 1" in said


def test_a_sampling_plugin_with_unknown_draws_is_not_ranked_where_no_spread_is_known(tmp_path):
    results = stored(tmp_path, nets=1)
    assert {answer.rule for answer in recommendations(results.frame, results.traits, [])} == {"sdp"}
    (band,) = bands_of(choice(results.tabled, results.traits))
    assert band.conditions[0].rankings[-1].best.leader == "sdp"


def test_label_colour_order_and_reference_are_those_stored(results):
    assert list(results.styles) == ["sdp", "dvia", "mine", "bound"]
    assert results.styles["dvia"].colour == "#d55e00"
    assert results.styles["mine"].label == "Mine & yours"
    assert results.styles["mine"].colour == TRAITS["mine"].colour
    (row,) = results.tables[0].rows
    assert not any(cell.best for cell in row.cells if cell.rule == "bound")


def test_neither_sampling_nor_references_are_drilled_into_as_the_worst(results):
    keys = selected_keys("worst:8", results.frame)
    assert {key.split("/")[1] for key in keys} == {"sdp", "dvia"}
