from decimal import Decimal

import pytest

from sdp_bench.reports.paper import FOLDER, experiment, printed, simulation_tables

TABLES_ROWS_AND_SUM = 32, 509, "436.7412"

# Rows, and the exact sums of the values and of the standard deviations.
EXPERIMENTS = {
    "interval_uci_main": (96, "55.50", "4.43"),
    "interval_uci_mc": (32, "19.11", "2.75"),
    "nll_uci": (48, "-45.860", "8.436"),
    "rcauc_mnist": (10, "213.3", "7.4"),
    "rcauc_mnist_main": (10, "213.3", "0"),
    "runtime_cifar10": (8, "359.78", "0"),
    "tv_class_resnet18": (12, "0.24534", "1.05737"),
    "tv_class_resnet18_main": (12, "0.24534", "0"),
}


def test_the_simulation_tables_have_their_rows_and_the_sum_of_their_numbers():
    frame = simulation_tables()
    total = sum(map(Decimal, frame["value"]), Decimal(0))
    assert (frame["table"].nunique(), len(frame), str(total)) == TABLES_ROWS_AND_SUM


def test_every_cell_is_there_once_and_in_range():
    frame = simulation_tables()
    assert not frame.duplicated(["table", "sigma", "method", "component"]).any()
    overlaps = frame.loc[frame["metric"] == "1-tv", "value"].astype(float)
    assert overlaps.between(0, 1).all()
    assert (frame.loc[frame["metric"] != "1-tv", "value"].astype(float) > 0).all()
    assert frame["label"].nunique() == frame["table"].nunique()


def test_digits_are_kept_as_printed():
    assert printed("1-tv", "relu", 4, 1000, "sdp").value == "0.6808"
    assert printed("1-tv", "leaky_relu", 2, 0.1, "sdp").sd == "0.0085"
    zeros = printed("1-tv", "sigmoid", 4, 1000, "marginal_moment_matching")
    assert (zeros.value, zeros.sd) == ("0.8070", "")
    assert printed("std_ratio", "relu", 4, 0.1, "marginal_sdp", "1").value == "0.0180"


def test_misprints_are_what_the_readme_says():
    frame = simulation_tables()
    cells = ["sigma", "method"]

    def values(table, method=None):
        rows = frame[frame["table"] == table]
        rows = rows if method is None else rows[rows["method"] == method]
        return rows.sort_values(cells)["value"].tolist()

    assert values("w1_main") == values("w1_relu_6") != values("w1_relu_4")
    assert values("tv_main", "monte_carlo:samples=100") == values("tv_relu_4_mc", "monte_carlo:samples=5")


@pytest.mark.parametrize(
    "cell",
    [
        ("1-tv", "relu", 9, 1000, "sdp"),
        ("1-tv", "relu", 4, 0.1, "moment_matching"),
        ("1-tv", "tanh", 4, 0.1, "sdp"),
        ("1-tv", "relu", 3, 0.1, "sdp"),
        ("w1", "relu", 4, 10, "sdp"),
    ],
)
def test_numbers_that_the_paper_does_not_print_are_missing(cell):
    assert printed(*cell) is None


def test_every_experiment_has_its_rows_and_the_sums_of_its_numbers():
    found = {}
    for path in (FOLDER / "experiments").glob("*.csv"):
        frame = experiment(path.stem)
        sums = [sum((Decimal(x or 0) for x in frame[column]), Decimal(0)) for column in ("value", "sd")]
        found[path.stem] = (len(frame), *map(str, sums))
    assert found == EXPERIMENTS


def test_misprinted_tables_are_not_compared_with():
    w1 = printed("w1", "relu", 4, 0.1, "dvia")
    assert (w1.value, w1.label) == ("0.1322", "Table 21")
    sampled = printed("1-tv", "relu", 4, 0.1, "monte_carlo:samples=100")
    assert (sampled.value, sampled.label) == ("0.9451", "Table 17")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_cell_of_an_experiment_is_there_once_under_one_label(name):
    frame = experiment(name)
    axes = [column for column in frame if column not in ("label", "value", "sd", "unit")]
    assert not frame.duplicated(axes).any()
    if not name.startswith("rcauc"):  # a list; the other tables have each method as often as any other
        assert frame.groupby(["method", "metric"]).size().nunique() == 1
    assert frame["label"].nunique() == 1
    assert len(set(frame["sd"] == "")) == 1


@pytest.mark.parametrize("name", ["tv_class_resnet18", "rcauc_mnist"])
def test_the_supplement_repeats_the_main_text_with_standard_deviations(name):
    supplement = experiment(name).drop(columns=["label", "sd"])
    assert supplement.equals(experiment(f"{name}_main").drop(columns=["label", "sd"]))
