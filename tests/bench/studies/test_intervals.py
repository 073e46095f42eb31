import dataclasses
import itertools
import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from scipy import stats

from sdp_bench.bench.datasets.base import RegressionTable
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.studies.uci import METHODS, READINGS, group
from sdp_bench.bench.studies.uci.group import GRID, evaluate, gaussian_nll, mpiw, picp, select, splits
from sdp_bench.bench.studies.uci.stacked import OBJECTIVES, Hyperparameters, NetStack, Problem, StackTrainer
from tests.bench.studies.conftest import copy_of

SEEDS = (0, 1)
SETTINGS = GRID[:2] + GRID[5:7]


def dataset(rows=60, features=3, seed=0):
    random = np.random.default_rng(seed)
    x = random.standard_normal((rows, features)) * [1, 10, 100] + 5
    y = 3 * np.tanh(x[:, 0] - 5) + random.standard_normal(rows) / 3
    return RegressionTable("made", torch.from_numpy(x), torch.from_numpy(y), ("made.txt",))


def test_metrics_by_hand():
    y = torch.tensor([0.0, 1.0, 2.0, 3.0])
    low, high = torch.tensor([-1.0, 1.0, 1.0, 4.0]), torch.tensor([1.0, 2.0, 3.0, 5.0])
    assert picp(y, low, high) == 0.5  # an end does not count as inside
    assert mpiw(low, high) == pytest.approx((2 + 1 + 2 + 1) / 4)


ROW = st.tuples(st.floats(-5, 5), st.floats(-5, 5), st.floats(1e-3, 10))
"""Target, mean and variance."""


@given(st.lists(ROW, min_size=1, max_size=6))
def test_likelihood_is_scipys(rows):
    y, mean, variance = zip(*rows, strict=True)
    y = torch.tensor(y, dtype=torch.float64)
    mean = torch.tensor(mean, dtype=torch.float64)
    variance = torch.tensor(variance, dtype=torch.float64)
    expected = -stats.norm(mean.numpy(), variance.sqrt().numpy()).logpdf(y.numpy()).mean()
    assert float(gaussian_nll(y, mean, variance)) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_likelihood_at_variance_zero():
    y, zero = torch.tensor([1.0, 2.0]), torch.zeros(2)
    assert gaussian_nll(y, y, zero) == -math.inf
    assert gaussian_nll(y, torch.tensor([1.0, 3.0]), zero) == math.inf
    assert gaussian_nll(y, torch.tensor([1.0, 3.0]), torch.tensor([1.0, 0.0])) == math.inf


def test_the_published_split():
    rows = group.rows_of(308, 4)  # yacht
    order = np.random.RandomState(4).permutation(308)
    assert np.array_equal(rows["test"], order[:31])
    again = np.random.RandomState(4).permutation(277)
    assert np.array_equal(rows["validation"], order[31:][again[:56]])
    assert np.array_equal(rows["train"], order[31:][again[56:]])
    assert sorted(np.concatenate(list(rows.values()))) == list(range(308))


def test_scaling_is_by_training_rows_alone():
    data = dataset()
    parts = splits(data, SEEDS, torch.float64)
    for index, seed in enumerate(SEEDS):
        train = group.rows_of(60, seed)["train"]
        assert torch.allclose(parts.features["train"][index].mean(0), torch.zeros(3).double(), atol=1e-12)
        sd = parts.features["train"][index].std(0, correction=0)
        assert torch.allclose(sd, torch.ones(3).double())
        y = data.targets.numpy()
        expected = (y[group.rows_of(60, seed)["test"]] - y[train].mean()) / y[train].std()
        assert np.allclose(parts.targets["test"][index].numpy(), expected)
        assert float(parts.ranges[index]) == pytest.approx((y.max() - y.min()) / y[train].std())


def test_a_constant_feature_keeps_its_scale():
    data = dataset()
    data.features[:, 1] = 7.0
    for part in splits(data, SEEDS).features.values():
        assert torch.equal(part[..., 1], torch.zeros_like(part[..., 1]))


def test_sets_that_cannot_be_used():
    data = dataset()
    with pytest.raises(UserError, match="too small to split"):
        splits(dataset(rows=9), SEEDS)
    data.targets[3] = math.nan
    with pytest.raises(UserError, match="not finite"):
        splits(data, SEEDS)
    with pytest.raises(UserError, match="all the same"):
        splits(RegressionTable("flat", data.features, torch.ones(60), ()), SEEDS)


def test_the_narrowest_that_qualifies_is_selected():
    coverage = torch.tensor([[0.95, 0.93, 0.99, 0.9], [0.925, 0.975, 0.5, 1.0]])
    width = torch.tensor([[0.3, 0.2, 0.05, 0.1], [0.1, 0.1, 0.1, 0.1]])
    assert select(torch.stack([coverage, width, width])) == [1, None]  # the window's ends are outside


def test_the_best_variance_of_each_setting():
    coverage = torch.tensor([[0.5, 0.94, 0.96, 1.0], [0.5, 0.98, 0.99, 1.0]])
    width = torch.tensor([[1.0, 3.0, 2.0, 4.0], [1.0, 2.0, 3.0, 4.0]])
    best = group.best_variance(torch.stack([coverage, width, width]))
    assert best.tolist() == [2, 1]  # none of the second qualifies: nearest to 95 %


@pytest.fixture(scope="module")
def parts():
    return splits(dataset(rows=200), SEEDS, torch.float64)  # of 36 validation rows 34 or 35 may be covered


@pytest.fixture(scope="module")
def stacks(parts):
    """Stacks of nets by objective, as many as some method mixes."""
    members = {}
    for method in METHODS.values():
        members[method.objective] = max(method.members, members.get(method.objective, 1))
    made = {}
    for name, count in members.items():
        made[name] = []
        for member in range(count):
            data = Problem(parts.features["train"], parts.targets["train"], SEEDS, member)
            trainer = StackTrainer(data, OBJECTIVES[name], SETTINGS)
            for _ in trainer.run(60):
                pass
            made[name].append(trainer.nets)
    return made


def stacks_of(method, stacks):
    return stacks[METHODS[method].objective][: METHODS[method].members]


@pytest.mark.parametrize(
    "method",
    [pytest.param(name, marks=pytest.mark.slow) if name.endswith("=1000") else name for name in METHODS],
)
def test_what_is_selected_scores_as_a_plain_evaluation_says(method, parts, stacks):
    """Each method again for one net, with torch's own layers and autograd."""
    stacks_of_method = stacks_of(method, stacks)
    numbers_by_reading = evaluate(method, stacks_of_method, parts, SETTINGS, SEEDS)
    assert set(numbers_by_reading) == (set(READINGS) if METHODS[method].propagates else {None})
    selected = []  # index of the seed, and numbers
    for numbers_by_seed in numbers_by_reading.values():
        selected += enumerate(numbers_by_seed)
    assert any("picp" in numbers for _, numbers in selected)
    for index, numbers in selected:
        if numbers["qualified"] == 0:
            assert numbers == {"qualified": 0}
            continue
        assert group.WINDOW[0] < numbers["validation_picp"] < group.WINDOW[1]
        assert ("input_variance" in numbers) == METHODS[method].propagates
        setting = Hyperparameters(numbers["learning_rate"], numbers["weight_decay"])
        net_index = index * len(SETTINGS) + SETTINGS.index(setting)
        nets = [copy_of(stack, net_index)[0] for stack in stacks_of_method]
        for part, prefix in (("validation", "validation_"), ("test", "")):
            x, y = parts.features[part][index], parts.targets[part][index]
            low, high, law = plain(method, nets, x, numbers.get("input_variance"), part, SEEDS[index])
            covered = float(((low < y) & (y < high)).double().mean())
            assert numbers[f"{prefix}picp"] == pytest.approx(covered)
            width = float((high - low).mean() / parts.ranges[index])
            assert numbers[f"{prefix}mpiw"] == pytest.approx(width)
        mean, variance = law  # of the test rows
        expected = -stats.norm(mean.numpy(), variance.sqrt().numpy()).logpdf(y.numpy()).mean()
        assert numbers["nll"] == pytest.approx(expected)


@pytest.mark.parametrize("method", ["sdp", "sdp+pnn"])
def test_a_set_has_the_scan_and_the_variance_that_its_first_run_found(method, parts, stacks):
    """Every candidate of the first seed again, one by one."""
    stacks_of_method = stacks_of(method, stacks)
    x, y = parts.features["validation"][0], parts.targets["validation"][0]

    def best(variances):
        """Return the input variance of the best candidate: narrowest, or else nearest to 95 %."""
        candidates = []
        for index, variance in itertools.product(range(len(SETTINGS)), variances):
            net = copy_of(stacks_of_method[0], index)[0]
            low, high, _ = plain(method, [net], x, variance, "validation", SEEDS[0])
            coverage = float(((low < y) & (y < high)).double().mean())
            qualifies = group.WINDOW[0] < coverage < group.WINDOW[1]
            size = float((high - low).mean()) if qualifies else abs(coverage - 0.95)
            candidates.append((not qualifies, size, variance))
        assert not all(missed for missed, _, _ in candidates)
        return min(candidates)[2]

    best_decade = best(10.0**k for k in range(-8, 1))
    scan = [best_decade * 10 ** (step / 10) for step in range(-5, 6)]
    narrowest = best(scan)
    numbers = evaluate(method, stacks_of_method, parts, SETTINGS, SEEDS)
    for of_seed in numbers["set_scan"]:
        if "picp" in of_seed:
            distance = min(abs(of_seed["input_variance"] / variance - 1) for variance in scan)
            assert distance == pytest.approx(0, abs=1e-9)
    assert numbers["set_scan"][0]["input_variance"] == pytest.approx(narrowest)
    for of_seed in numbers["set_variance"]:
        if "picp" in of_seed:
            assert of_seed["input_variance"] == pytest.approx(narrowest)


def plain(method, nets, x, variance, part, seed):
    """Ends, and mean and variance of the law, of predictions by torch's own layers."""
    if method in ("sqr", "sqr_ends"):
        low, high = quantile(nets[0], x, 0.025), quantile(nets[0], x, 0.975)
        return low, high, ((low + high) / 2, ((high - low) / 3.92).square())
    if method.startswith("monte_carlo"):
        mean, variance = sampled_moments(nets[0], x, variance, int(method.partition("=")[2]), part, seed)
    elif len(nets) > 1:
        mean, variance = moments_of_mixture(nets, x)
    else:
        mean, variance = linearised_moments(nets[0], x, variance or 0.0, has_variance="pnn" in method)
    half = 1.96 * variance.sqrt()
    return mean - half, mean + half, (mean, variance)


def quantile(net, x, level):
    encoded = torch.full((len(x), 1), 12 * (level - 0.5))
    return net(torch.cat([x, encoded], 1))[:, 0].detach()


def sampled_moments(net, x, variance, samples, part, seed):
    noise = np.random.default_rng([seed, *part.encode()]).standard_normal((samples, *x.shape))
    outputs = net(x + variance**0.5 * torch.from_numpy(noise))[..., 0].detach()
    return outputs.mean(0), outputs.var(0)


def moments_of_mixture(nets, x):
    """Moments of the mixture of the Gaussians that the nets predict."""
    outputs = torch.stack([net(x).detach() for net in nets])
    second = torch.nn.functional.softplus(outputs[..., 1]) + 1e-6 + outputs[..., 0].square()
    mean = outputs[..., 0].mean(0)
    return mean, second.mean(0) - mean.square()


def linearised_moments(net, x, variance, *, has_variance):
    """Mean and variance of SDP, with the variance that a PNN predicts."""
    rows = x.clone().requires_grad_()
    outputs = net(rows)
    (slopes,) = torch.autograd.grad(outputs[:, 0].sum(), rows)
    predicted = torch.zeros(len(x))
    if has_variance:
        predicted = torch.nn.functional.softplus(outputs[:, 1]) + 1e-6
    return outputs[:, 0].detach(), (predicted + variance * slopes.square().sum(1)).detach()


def test_an_ensemble_of_one_is_its_net(parts, stacks, monkeypatch):
    monkeypatch.setitem(METHODS, "one", dataclasses.replace(METHODS["ensemble:members=5"], members=1))
    (alone,) = evaluate("pnn", stacks["pnn"][:1], parts, SETTINGS, SEEDS).values()
    (mixed,) = evaluate("one", stacks["pnn"][:1], parts, SETTINGS, SEEDS).values()
    assert mixed == alone


def test_no_setting_qualifies(parts, stacks):
    nets = stacks["pnn"][0]
    offset = nets.offset - torch.tensor([[0.0], [50.0]])  # a variance near 0
    certain = NetStack(**{**nets.tensors, "offset": offset})
    numbers = evaluate("pnn", [certain], parts, SETTINGS, SEEDS)
    assert numbers == {None: [{"qualified": 0}] * len(SEEDS)}
