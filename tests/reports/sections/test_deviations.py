import numpy as np
import pytest

from sdp_bench.reports.page import build
from sdp_bench.reports.sections.deviations import Deviations, deviation_table, shown
from tests.reports import made_up
from tests.reports.helpers import plain_text
from tests.reports.made_up import TRAITS, checked


@pytest.fixture(scope="module")
def frame():
    return checked(made_up.frame(depths=(1, 4), nets=3, inputs=3, experiments=("iris-std",)))


def test_factors_are_means_of_logarithms_over_outputs_inputs_nets_and_depths(frame):
    rows = frame[frame["metric"] == "std_ratio"]
    table = deviation_table("ReLU nets", rows, TRAITS)
    logarithms = np.abs(np.log(rows["value"]))
    means = logarithms.groupby([rows["rule"], rows["sigma"]], observed=True).mean()
    assert set(table.cells) == set(means.index)
    for key, cell in table.cells.items():
        assert cell.factor == pytest.approx(np.exp(means[key]))
        low, high = map(float, cell.interval.split(" to "))
        assert low <= round(cell.factor, 3) <= high or cell.factor > 10


def test_the_smallest_error_is_marked_and_sampling_never_underlined(frame):
    table = deviation_table("ReLU nets", frame[frame["metric"] == "std_ratio"], TRAITS)
    for sigma in table.sigmas:
        cells = {rule: table.cells[rule, sigma] for rule in table.rules}
        best = min(cells, key=lambda rule: cells[rule].factor)
        assert cells[best].is_best
        assert not any(
            cell.is_best_deterministic and TRAITS.is_sampling(rule) for rule, cell in cells.items()
        )
    assert not table.cells["marginal_sdp", 1.0].is_best


def test_the_page_has_the_time_of_each_rule_with_its_errors(tmp_path):
    results = made_up.results(made_up.frame(depths=(1,), nets=3, inputs=3, experiments=("iris-std",)))
    text = (build(results, tmp_path, [Deviations()]).parent / "choice.html").read_text(encoding="utf-8")
    (table,) = Deviations().build(results)["tables"]
    assert set(table.rules) <= set(table.costs.by_rule)
    row = f"SDP 2\u00a0ms {' '.join(shown(table.cells['sdp', sigma].factor) for sigma in table.sigmas)}"
    assert " ".join(row.split()) in plain_text(text)


def test_there_is_no_table_without_measurements_of_standard_deviations():
    assert Deviations().build(made_up.results(made_up.frame(depths=(1,), experiments=("iris-tv",)))) is None
