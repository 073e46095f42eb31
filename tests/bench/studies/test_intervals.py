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


@given(st.lists(st.tuples(*[st.floats(-5, 5)] * 2, st.floats(1e-3, 10)), min_size=1, max_size=6))
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
    for place, seed in enumerate(SEEDS):
        train = group.rows_of(60, seed)["train"]
        assert torch.allclose(parts.features["train"][place].mean(0), torch.zeros(3).double(), atol=1e-12)
        sd = parts.features["train"][place].std(0, correction=0)
        assert torch.allclose(sd, torch.ones(3).double())
        y = data.targets.numpy()
        expected = (y[group.rows_of(60, seed)["test"]] - y[train].mean()) / y[train].std()
        assert np.allclose(parts.targets["test"][place].numpy(), expected)
        assert float(parts.ranges[place]) == pytest.approx((y.max() - y.min()) / y[train].std())


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
    for how in METHODS.values():
        members[how.objective] = max(how.members, members.get(how.objective, 1))
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
    [pytest.param(each, marks=pytest.mark.slow) if each.endswith("=1000") else each for each in METHODS],
)
def test_what_is_selected_scores_as_a_plain_evaluation_says(method, parts, stacks):
    """Each method again for one net, with torch's own layers and autograd."""
    own = stacks_of(method, stacks)
    found = evaluate(method, own, parts, SETTINGS, SEEDS)
    assert set(found) == (set(READINGS) if METHODS[method].propagates else {None})
    assert any("picp" in chosen for each in found.values() for chosen in each)
    for place, chosen in ((place, each[place]) for each in found.values() for place in range(len(SEEDS))):
        if chosen["qualified"] == 0:
            assert chosen == {"qualified": 0}
            continue
        assert group.WINDOW[0] < chosen["validation_picp"] < group.WINDOW[1]
        assert ("input_variance" in chosen) == METHODS[method].propagates
        setting = Hyperparameters(chosen["learning_rate"], chosen["weight_decay"])
        index = place * len(SETTINGS) + SETTINGS.index(setting)
        nets = [copy_of(each, index)[0] for each in own]
        for part, prefix in (("validation", "validation_"), ("test", "")):
            x, y = parts.features[part][place], parts.targets[part][place]
            low, high, law = plain(method, nets, x, chosen.get("input_variance"), part, SEEDS[place])
            covered = float(((low < y) & (y < high)).double().mean())
            assert chosen[f"{prefix}picp"] == pytest.approx(covered)
            width = float((high - low).mean() / parts.ranges[place])
            assert chosen[f"{prefix}mpiw"] == pytest.approx(width)
        expected = -stats.norm(law[0].numpy(), law[1].sqrt().numpy()).logpdf(y.numpy()).mean()
        assert chosen["nll"] == pytest.approx(expected)


@pytest.mark.parametrize("method", ["sdp", "sdp+pnn"])
def test_a_set_has_the_scan_and_the_variance_that_its_first_run_found(method, parts, stacks):
    """Every candidate of the first seed again, one by one."""
    own = stacks_of(method, stacks)
    x, y = parts.features["validation"][0], parts.targets["validation"][0]

    def best(variances):
        scored = []
        for index, variance in itertools.product(range(len(SETTINGS)), variances):
            low, high, _ = plain(method, [copy_of(own[0], index)[0]], x, variance, "validation", SEEDS[0])
            coverage = float(((low < y) & (y < high)).double().mean())
            fits = group.WINDOW[0] < coverage < group.WINDOW[1]
            scored.append((not fits, float((high - low).mean()) if fits else abs(coverage - 0.95), variance))
        assert not all(missed for missed, _, _ in scored)
        return min(scored)[2]

    scanned = [best(10.0**k for k in range(-8, 1)) * 10 ** (step / 10) for step in range(-5, 6)]
    found = evaluate(method, own, parts, SETTINGS, SEEDS)
    for chosen in found["set_scan"]:
        assert "picp" not in chosen or min(
            abs(chosen["input_variance"] / each - 1) for each in scanned
        ) == pytest.approx(0, abs=1e-9)
    narrowest = best(scanned)
    assert found["set_scan"][0]["input_variance"] == pytest.approx(narrowest)
    for chosen in found["set_variance"]:
        assert "picp" not in chosen or chosen["input_variance"] == pytest.approx(narrowest)


def plain(method, nets, x, variance, part, seed):
    """Ends, and mean and variance of the law, of predictions by torch's own layers."""
    net = nets[0]
    if method in ("sqr", "sqr_ends"):

        def quantile(level):
            encoded = torch.full((len(x), 1), 12 * (level - 0.5))
            return net(torch.cat([x, encoded], 1))[:, 0].detach()

        low = quantile(0.025)
        high = quantile(0.975)
        return low, high, ((low + high) / 2, ((high - low) / 3.92).square())
    if method.startswith("monte_carlo"):
        samples = int(method.partition("=")[2])
        noise = np.random.default_rng([seed, *part.encode()]).standard_normal((samples, *x.shape))
        out = net(x + variance**0.5 * torch.from_numpy(noise))[..., 0].detach()
        law = out.mean(0), out.var(0)
    elif len(nets) > 1:  # moments of the mixture of Gaussians
        out = torch.stack([each(x).detach() for each in nets])
        second = torch.nn.functional.softplus(out[..., 1]) + 1e-6 + out[..., 0].square()
        mean = out[..., 0].mean(0)
        law = mean, second.mean(0) - mean.square()
    else:
        rows = x.clone().requires_grad_()
        out = net(rows)
        (slopes,) = torch.autograd.grad(out[:, 0].sum(), rows)
        own = torch.nn.functional.softplus(out[:, 1]) + 1e-6 if "pnn" in method else torch.zeros(len(x))
        gain = 0.0 if variance is None else variance * slopes.square().sum(1)
        law = out[:, 0].detach(), (own + gain).detach()
    half = 1.96 * law[1].sqrt()
    return law[0] - half, law[0] + half, law


def test_no_setting_qualifies(parts, stacks):
    (nets, *_) = stacks["pnn"]
    sure = NetStack(**{**nets.tensors, "offset": nets.offset - torch.tensor([[0.0], [50.0]])})  # variance ~ 0
    (found,) = evaluate("pnn", [sure], parts, SETTINGS, SEEDS).values()
    assert found == [{"qualified": 0}] * len(SEEDS)
