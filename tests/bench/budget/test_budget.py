"""Uncertainty budgets against exact indices."""

import math
import re
import shlex

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch
from torch import nn

import sdp_bench
import sdp_ref as sr
from sdp_bench.bench.budget.budget import CONSTANT, DEPENDENT, HEAVY_TAILS, LINEAR_CONSTANT, budget_of
from sdp_bench.bench.budget.groups import groups_of
from sdp_bench.bench.budget.sentences import sentences
from sdp_bench.bench.budget.sobol import sobol_indices
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.noise import noise_of


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def budget(function, law, groups="", samples=2**14, seed=0, **options):
    net = function if isinstance(function, nn.Module) else Function(function)
    event = tuple(law.event_shape)
    return budget_of(net, law, groups_of(groups, event), samples, seed=seed, **options)


def gaussian(variances, mean=0.0):
    variance = torch.tensor([variances], dtype=torch.float64)
    return sr.DiagonalGaussian(torch.full_like(variance, mean), variance)


def uniform(low, high, count):
    """Independent uniform inputs between two numbers."""
    location = torch.full((1, count), (low + high) / 2, dtype=torch.float64)
    return sr.LocationScale(location, torch.full_like(location, (high - low) / 2), sr.laws.Shape("uniform"))


def assert_covers(table, name, exact, factor=1.6):
    """Within an interval of 1.6 times the width, which misses one of 600 exact values."""
    half = factor * (table[f"{name}_high"] - table[f"{name}_low"]) / 2 + 1e-12
    middle = (table[f"{name}_high"] + table[f"{name}_low"]) / 2
    assert (np.abs(middle - exact) <= half).all(), (table, exact)


def test_shares_of_a_linear_net_are_exact():
    net = nn.Linear(3, 2, dtype=torch.float64)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.0, 2.0, 0.0], [3.0, -1.0, 2.0]]))
    table = budget(net, gaussian([1.0, 0.5, 4.0]))
    exact = np.array([1, 2, 0]) / 3, np.array([9, 0.5, 16]) / 25.5
    np.testing.assert_allclose(table["linear"], np.concatenate(exact), rtol=1e-12)
    for name in ("first", "total"):
        assert_covers(table, name, np.concatenate(exact))
    first = table[table["output"] == 0]
    assert first["largest"].tolist() == ["no", "yes", "no"]
    assert first["total"].iloc[2] == 0
    signs = np.sign(table["correlation"].round(1))
    assert signs.tolist() == [1, 1, 0, 1, -1, 1]
    correlation = [1 / 3**0.5, (2 / 3) ** 0.5, 0, 3 / 25.5**0.5, -((0.5 / 25.5) ** 0.5), 4 / 25.5**0.5]
    assert_covers(table, "correlation", correlation, factor=2)
    covariance = np.array([1, 1, 0, 3, -0.5, 8])
    products = np.array([1, 0.5, 4, 1, 0.5, 4]) * np.repeat([3, 25.5], 3)
    error = np.sqrt((products + covariance**2) / 2**14)  # of the covariance of a Gaussian sample
    assert (np.abs(table["covariance"] - covariance) < 4 * error).all()


def test_correlated_noise_has_linear_shares_that_sum_to_one_and_no_sobol_indices():
    covariance = torch.tensor([[[1.0, 0.8, 0.0], [0.8, 1.0, 0.0], [0.0, 0.0, 1.0]]], dtype=torch.float64)
    law = sr.Gaussian(torch.zeros(1, 3, dtype=torch.float64), covariance)
    net = nn.Linear(3, 1, dtype=torch.float64)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.0, -0.5, 0.5]]))
    table = budget(net, law)
    # Var(y) = 1 + 0.25 + 0.25 - 2 * 0.8 * 0.5 = 0.7
    np.testing.assert_allclose(table["linear"], [0.6 / 0.7, -0.15 / 0.7, 0.25 / 0.7], rtol=1e-12)
    assert table["total"].isna().all()
    assert set(table["note"]) == {f"{DEPENDENT}; take dependent ones together: --groups x0+x1,x2"}
    together = budget(net, law, groups="x0+x1,x2")
    np.testing.assert_allclose(together["linear"], [0.45 / 0.7, 0.25 / 0.7], rtol=1e-12)
    assert_covers(together, "first", together["linear"])
    assert_covers(together, "total", together["linear"])


def chain(*correlations):
    """Gaussian noise of unit variances in which each input is correlated with the next one."""
    matrix = torch.eye(len(correlations) + 1, dtype=torch.float64)
    for index, correlation in enumerate(correlations):
        matrix[index, index + 1] = matrix[index + 1, index] = correlation
    return sr.Gaussian(torch.zeros(1, len(matrix), dtype=torch.float64), matrix[None])


@pytest.mark.parametrize(
    ("correlations", "groups", "hint"),
    [
        ((0.4, 0.4, 0.0), "", "--groups x0+x1+x2,x3"),  # the first and the third depend through the second
        ((0.0, 0.5, 0.0), "x3,x1", "--groups x3"),  # the other groups depend on each other
        ((0.4, 0.4, 0.4), "", ""),  # all depend on each other
        ((0.0, 0.5, 0.0), "2", ""),  # blocks cannot be listed
    ],
)
def test_the_note_on_dependent_groups_names_the_groups_to_take_together(correlations, groups, hint):
    law = chain(*correlations)
    (note,) = budget(nn.Linear(4, 1, dtype=torch.float64), law, groups, samples=256)["note"].unique()
    assert note.startswith(DEPENDENT)
    assert note.endswith(hint)
    assert ("--groups" in note) == bool(hint)
    if hint:
        listed = hint.partition(" ")[2]
        assert budget(nn.Linear(4, 1, dtype=torch.float64), law, listed, samples=256)["note"].eq("").all()


def test_the_note_can_be_typed_for_names_with_separators():
    names, net = ("a,b", "a b", "x-1"), nn.Linear(3, 1, dtype=torch.float64)
    (note,) = budget_of(net, chain(0.4, 0.0), groups_of("", (3,), names), 256)["note"].unique()
    words = shlex.split(note.partition("--groups ")[2])
    assert words == ["0+a b,x-1"]
    assert len(groups_of(words[0], (3,), names)) == 2


def test_components_of_an_image_have_no_names_to_list():
    law = sr.Gaussian(torch.zeros(1, 2, 2, dtype=torch.float64), chain(0.4, 0.0, 0.0).covariance)
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 1, dtype=torch.float64))
    (note,) = budget_of(net, law, groups_of("", (2, 2)), 256)["note"].unique()
    assert note == DEPENDENT


def test_one_random_scale_makes_uncorrelated_inputs_dependent():
    noise = noise_of("mixture:0.9*1+0.1*5").law(torch.zeros(1, 2, dtype=torch.float64), 1.0)
    table = budget(nn.Linear(2, 1, dtype=torch.float64), noise)
    assert table["total"].isna().all()
    assert set(table["note"]) == {DEPENDENT}


def ishigami(x):
    return (x[:, :1].sin() + 7 * x[:, 1:2].sin() ** 2 + 0.1 * x[:, 2:] ** 4 * x[:, :1].sin()).double()


def ishigami_indices():
    a, b = 7, 0.1
    only = 0.5 * (1 + b * math.pi**4 / 5) ** 2, a**2 / 8, 0.0
    both = b**2 * math.pi**8 * (1 / 18 - 1 / 50)
    variance = sum(only) + both
    first = np.array(only) / variance
    return first, first + np.array([both, 0, both]) / variance


def test_indices_of_the_ishigami_function():
    first, total = ishigami_indices()
    table = budget(ishigami, uniform(-math.pi, math.pi, 3))
    assert_covers(table, "first", first)
    assert_covers(table, "total", total)
    assert table["largest"].tolist() == ["yes", "no", "no"]


def test_intervals_cover_the_indices_as_often_as_they_say():
    first, total = ishigami_indices()
    law, hits = uniform(-math.pi, math.pi, 3), []
    for seed in range(100):
        table = budget(ishigami, law, samples=1024, seed=seed)
        for name, exact in (("first", first), ("total", total)):
            hits += [(table[f"{name}_low"] <= exact) & (exact <= table[f"{name}_high"])]
    # Six indices of a call share its samples, so the standard error is at most that of 100 calls.
    assert np.mean(hits) >= 0.95 - 3 * (0.95 * 0.05 / 100) ** 0.5


def test_indices_of_the_g_function_of_sobol():
    a = np.array([0.0, 1.0, 4.5, 9.0])
    single = 1 / (3 * (1 + a) ** 2)
    variance = np.prod(1 + single) - 1
    total = single * (np.prod(1 + single) / (1 + single)) / variance
    weights = torch.from_numpy(a)

    def function(x):
        return (((4 * x - 2).abs() + weights) / (1 + weights)).prod(1, keepdim=True)

    table = budget(function, uniform(0, 1, 4))
    assert_covers(table, "first", single / variance)
    assert_covers(table, "total", total)


def test_a_product_is_pure_interaction_which_linearisation_misses():
    table = budget(lambda x: x.prod(1, keepdim=True), gaussian([1.0, 1.0]))
    assert table["linear"].isna().all()
    assert set(table["note"]) == {LINEAR_CONSTANT}
    assert_covers(table, "first", 0)
    assert_covers(table, "total", 1)
    assert table["largest"].tolist() == ["undecided", "undecided"]
    assert_covers(table, "correlation", 0)
    assert "largest undecided" in sentences(table.assign(sigma=1.0, input=0), "net")[1]


def exponential(rate, slope):
    return lambda x: (rate * x[:, :1]).exp() + slope * x[:, 1:]


@pytest.mark.parametrize(
    ("function", "count", "mean"),
    [
        (exponential(2.0, 20.0), 2, 0.0),
        (exponential(1.5, 2.0), 2, 0.0),
        (lambda x: x.prod(1, keepdim=True), 8, 0.0),
    ],
)
def test_no_group_is_the_largest_if_few_samples_dominate_the_variance(function, count, mean):
    """4096 samples miss the tails, so that the intervals contain the exact indices in 62 to 82 % of cases."""
    law = gaussian([1.0] * count, mean)
    for seed in range(10):
        table = budget(function, law, samples=4096, seed=seed)
        assert table["note"].str.contains(HEAVY_TAILS, regex=False).all()
        assert set(table["largest"]) == {"undecided"}


@pytest.mark.parametrize(
    ("function", "law"),
    [
        (ishigami, uniform(-math.pi, math.pi, 3)),
        (lambda x: x.sum(1, keepdim=True), gaussian([1.0, 2.0])),
        (lambda x: x[:, :1] * (x[:, 1:] + 1), gaussian([1.0, 1.0], mean=1.0)),
    ],
)
def test_moderate_tails_have_no_note(function, law):
    for seed in range(10):
        assert (budget(function, law, samples=4096, seed=seed)["note"] == "").all()


def test_the_words_name_the_outputs_of_a_note():
    def function(x):
        return torch.cat([x[:, :1] + 2 * x[:, 1:], exponential(2.0, 20.0)(x)], 1)

    table = budget(function, gaussian([1.0, 1.0]), samples=4096).assign(sigma=1.0, input=0)
    lines = sentences(table, "net")
    assert lines[1].startswith("  σ = 1, output 0: largest x1: x1 ")
    assert lines[2].startswith("  σ = 1, output 1: largest undecided: ")
    assert lines[-1] == f"  note on output 1: {HEAVY_TAILS}"


def test_large_negative_shares_are_listed_before_small_positive_ones():
    """The variance of 3 a - b is 9 + 1 - 6 * 0.9 = 4.6, and the share of b is (1 - 3 * 0.9) / 4.64."""
    weights = torch.tensor([3.0, -1.0, 0.1, 0.1, 0.1, 0.1], dtype=torch.float64)
    covariance = torch.eye(6, dtype=torch.float64)
    covariance[0, 1] = covariance[1, 0] = 0.9
    law = sr.Gaussian(torch.zeros(1, 6, dtype=torch.float64), covariance[None])
    table = budget(lambda x: (x @ weights)[:, None], law, samples=256)
    line = sentences(table.assign(sigma=1.0, input=0), "net")[1]
    assert "x0 linear 135.8 %; x1 linear -36.6 %; x2 linear 0.2 %" in line
    assert line.endswith("; smaller shares for 1 other group")


def test_words_keep_shares_between_zero_and_one():
    """A pure interaction has the first-order index 0, and estimates of both signs."""
    tables = [
        budget(lambda x: x.prod(1, keepdim=True), gaussian([1.0, 1.0]), samples=512, seed=seed)
        for seed in range(20)
    ]
    assert min(table["first"].min() for table in tables) < -0.01
    for table in tables:
        line = sentences(table.assign(sigma=1.0, input=0), "net")[1]
        assert "-" not in line
        assert not any(float(number) > 100 for number in re.findall(r"[\d.]+(?= %)", line))


def test_one_input_has_the_whole_variance():
    table = budget(lambda x: x.exp(), gaussian([1.0]), samples=512)
    assert table[["linear", "largest"]].to_numpy().tolist() == [[1.0, "yes"]]
    assert_covers(table, "total", 1)
    assert table["covariance"][0] > 0


def test_a_constant_output_has_no_shares_but_a_reason():
    table = budget(lambda x: torch.cat([x, 0 * x[:, :1] + 2], 1), gaussian([1.0, 1.0]), samples=256)
    constant = table[table["output"] == 2]
    assert constant["note"].tolist() == [CONSTANT] * 2
    assert constant[["linear", "first", "total", "correlation"]].isna().all().all()
    assert (table[table["output"] == 0]["note"] == "").all()


@pytest.mark.parametrize("offset", [1e3, 1e6])
def test_a_spread_that_float32_hides_is_divided(offset):
    """An output with a spread of 1e-3, so that rounding in float32 would exceed it at the larger offset."""
    net = nn.Linear(2, 1)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1e-3, 2e-3]]))
        net.bias.fill_(offset)
    table = budget(net, gaussian([1.0, 1.0]).to(dtype=torch.float32))
    assert net.weight.dtype == torch.float32  # the user's net is not converted
    assert set(table["note"]) == {""}
    for name in ("linear", "first", "total"):
        assert_covers(
            table.assign(linear_low=table["linear"], linear_high=table["linear"] + 1e-7), name, [0.2, 0.8]
        )


def test_a_net_that_only_runs_in_float32_has_a_constant_output_below_its_rounding():
    def function(x):
        return 1e6 + 1e-3 * x.float()

    table = budget(function, gaussian([1.0]).to(dtype=torch.float32), samples=256)
    assert set(table["note"]) == {CONSTANT}


def test_estimates_are_those_of_scipy():
    generator = np.random.default_rng(0)
    a, b, exchanged = (generator.normal(size=shape) for shape in ((256, 2), (256, 2), (3, 256, 2)))
    ours = sobol_indices(a, b, exchanged)
    functions = {"f_A": a.T, "f_B": b.T, "f_AB": exchanged.transpose(0, 2, 1)}
    theirs = scipy.stats.sobol_indices(func=functions, n=256)
    # scipy divides by the variance of both samples together
    np.testing.assert_allclose(ours.first.T, theirs.first_order, atol=1e-9)
    np.testing.assert_allclose(ours.total.T, theirs.total_order, atol=1e-9)


def test_a_net_without_gradient_has_sobol_indices():
    def function(x):
        return torch.from_numpy(np.asarray(x.detach().numpy()) ** 3)

    table = budget(function, gaussian([1.0, 4.0]))
    assert table["linear"].isna().all()
    assert table["note"].str.startswith("no linearisation").all()
    assert table["largest"].tolist() == ["yes", "no", "no", "yes"]
    assert_covers(table, "total", [1, 0, 0, 1])


@pytest.mark.parametrize(
    ("text", "event", "sizes"),
    [
        ("", (3,), [1, 1, 1]),
        ("", (2, 2), [1, 1, 1, 1]),
        ("", (40,), [3] * 8 + [2] * 8),
        ("", (3, 8, 8), [12] * 16),
        ("", (1, 160), [10] * 16),
        ("2x1", (1, 4, 6), [12, 12]),
        ("0+2", (4,), [2, 2]),
    ],
)
def test_groups_divide_the_components(text, event, sizes):
    groups = groups_of(text, event)
    assert [group.mask.sum() for group in groups] == sizes
    assert (sum(group.mask.astype(int) for group in groups) == 1).all()
    assert len({group.name for group in groups}) == len(groups)


def test_blocks_of_an_image_are_squares_named_by_rows_and_columns():
    group = groups_of("2x2", (3, 4, 6))[1]
    assert group.name == "rows 0-1 columns 3-5"
    mask = group.mask.reshape(3, 4, 6)
    assert mask[:, :2, 3:].all()
    assert mask.sum() == 18


def test_blocks_of_a_signal_are_named_by_their_ends():
    assert [group.name for group in groups_of("3", (1, 10))] == ["0-3", "4-6", "7-9"]


@pytest.mark.parametrize(
    ("text", "event", "message"),
    [
        ("mass", (2,), "there is no column 'mass': there are speed, slope"),
        ("speed,0", (2,), "column '0' is in two groups"),
        ("3", (2,), "more blocks than inputs of shape"),
        ("a+b", (2, 2), "have no columns; divide them into blocks"),
        ("100", (200,), "100 groups take too many samples"),
    ],
)
def test_groups_that_do_not_fit_are_one_line(text, event, message):
    with pytest.raises(UserError, match=message):
        groups_of(text, event, ["speed", "slope"] if event == (2,) else ())


def test_columns_of_a_table_have_their_names(tmp_path):
    (tmp_path / "x.csv").write_text("speed,slope,temperature\n1,2,3\n2,3,4\n")
    net = nn.Linear(3, 1)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[2.0, 0.0, 1.0]]))
    table = sdp_bench.budget(net, tmp_path / "x.csv", sigma=0.1, groups="speed+slope", samples=256)
    assert table["group"].tolist() == ["speed+slope", "others"] * 2
    np.testing.assert_allclose(table["linear"], [0.8, 0.2] * 2, rtol=1e-5)
    assert table["input"].tolist() == [0, 0, 1, 1]
    named = sdp_bench.budget(net, tmp_path / "x.csv", sigma=0.1, samples=256)
    assert named["group"].unique().tolist() == ["speed", "slope", "temperature"]
    with pytest.raises(UserError, match="Cauchy noise has no variance"):
        sdp_bench.budget(net, tmp_path / "x.csv", sigma=0.1, noise="cauchy")


@pytest.mark.parametrize("rule", ["sdp", "moment_matching", "unscented"])
def test_covariances_with_inputs_under_a_rule(rule):
    """Cov(x, f(x)) = E[f'] Var(x) for Gaussian x (Stein's lemma); for a linear net it is C W^T."""
    torch.manual_seed(0)
    net = nn.Linear(3, 2, dtype=torch.float64)
    factor = torch.randn(1, 3, 3, dtype=torch.float64)
    x = sr.Gaussian(torch.zeros(1, 3, dtype=torch.float64), factor @ factor.mT)
    torch.testing.assert_close(sr.input_covariance(net, x, rule), x.covariance @ net.weight.mT)
    if rule == "moment_matching":
        x = gaussian([0.25], mean=0.3)
        relu = sr.input_covariance(nn.Sequential(nn.ReLU()), x, rule)
        assert float(relu) == pytest.approx(0.25 * scipy.stats.norm.cdf(0.3 / 0.5), rel=1e-6)


def test_the_words_count_the_inputs_at_which_a_group_is_the_largest():
    left = budget(lambda x: x[:, :1] + 0 * x[:, 1:], gaussian([1.0, 1.0]), samples=256)
    right = budget(lambda x: x[:, 1:] + 0 * x[:, :1], gaussian([1.0, 1.0]), samples=256)
    product = budget(lambda x: x.prod(1, keepdim=True), gaussian([1.0, 1.0]), samples=256)
    tables = [left, left, right, product]
    rows = pd.concat([table.assign(sigma=1.0, input=i) for i, table in enumerate(tables)])
    assert "largest x0 at 2, x1 at 1, undecided at 1 of 4 inputs: x0" in sentences(rows, "net")[1]
