from decimal import Decimal

import pytest

from sdp_bench.reports.paper import experiment, experiments, printed, simulation_tables

COUNTS_AND_SUMS = {
    "tv_main": (25, 13.2708),
    "w1_main": (9, 38.8925),
    "tv_relu_1": (20, 13.7108),
    "tv_relu_2": (20, 11.8400),
    "tv_relu_4": (20, 9.7702),
    "tv_relu_6": (20, 10.0208),
    "tv_relu_9": (16, 8.3920),
    "tv_relu_14": (16, 8.1223),
    "tv_relu_19": (16, 8.3124),
    "tv_relu_24": (16, 7.7198),
    "tv_relu_1_mc": (20, 17.3898),
    "tv_relu_2_mc": (20, 16.5159),
    "tv_relu_4_mc": (20, 14.7291),
    "tv_relu_6_mc": (20, 14.3256),
    "w1_relu_1": (9, 15.0344),
    "w1_relu_2": (9, 25.7540),
    "w1_relu_4": (9, 37.0838),
    "w1_relu_6": (9, 38.8925),
    "tv_leaky_relu_1": (15, 9.1447),
    "tv_leaky_relu_2": (15, 7.4959),
    "tv_leaky_relu_4": (15, 6.1644),
    "tv_leaky_relu_6": (15, 6.3630),
    "tv_sigmoid_4": (15, 12.5685),
    "std_ratio_relu_4": (60, 38.7755),
    "tv_silu_1": (10, 6.9389),
    "tv_silu_2": (10, 5.9689),
    "tv_silu_4": (10, 5.2057),
    "tv_silu_6": (10, 5.0214),
    "tv_gelu_1": (10, 6.9122),
    "tv_gelu_2": (10, 5.9897),
    "tv_gelu_4": (10, 5.2407),
    "tv_gelu_6": (10, 5.1750),
}

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


def test_every_table_has_its_rows_and_the_sum_of_its_numbers():
    frame = simulation_tables()
    grouped = frame.assign(number=frame["value"].astype(float)).groupby("table")["number"]
    found = {table: (len(numbers), round(numbers.sum(), 4)) for table, numbers in grouped}
    assert found == COUNTS_AND_SUMS


def test_every_cell_is_there_once_and_in_range():
    frame = simulation_tables()
    assert not frame.duplicated(["table", "sigma", "method", "component"]).any()
    overlaps = frame.loc[frame["metric"] == "1-tv", "value"].astype(float)
    assert overlaps.between(0, 1).all()
    assert (frame.loc[frame["metric"] != "1-tv", "value"].astype(float) > 0).all()
    assert frame["label"].nunique() == len(COUNTS_AND_SUMS)


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
def test_what_the_paper_does_not_print_is_none(cell):
    assert printed(*cell) is None


def test_every_experiment_has_its_rows_and_the_sums_of_its_numbers():
    found = {}
    for name in experiments():
        frame = experiment(name)
        sums = [sum((Decimal(x or 0) for x in frame[column]), Decimal(0)) for column in ("value", "sd")]
        found[name] = (len(frame), *map(str, sums))
    assert found == EXPERIMENTS
