import itertools

import pytest
import torch

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments.plan import plan_of
from sdp_bench.bench.results.columns import MEASURED
from sdp_bench.bench.runs.driver import run_group
from sdp_bench.bench.settings import Settings, Size
from sdp_bench.bench.studies.two_moons import EXPERIMENT
from sdp_bench.bench.studies.two_moons.group import Moons, moons, numbers, train, uncertainty
from sdp_bench.bench.studies.two_moons.recipes import RECIPES


def settings(**size):
    return Settings(sizes={EXPERIMENT.name: Size(**{"nets": 2, "epochs": 2} | size)})


def test_points_are_two_balanced_moons_and_far_ones_are_far():
    data = moons(3)
    assert data.points.shape == data.tested.shape == (300, 2)
    assert data.labels.sum() == data.truth.sum() == 150
    assert not torch.equal(data.points, data.tested)
    assert torch.cdist(data.far, data.points).min() > 1
    assert len(data.far) > 500
    assert torch.equal(moons(3).points, data.points)


@pytest.mark.parametrize("name", ["softmax", "softmax_gaussian"])
def test_uncertainty_is_the_entropy_of_the_larger_score(name):
    recipe = RECIPES[name]
    net = torch.nn.Linear(2, 2).double()
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
        net.bias.zero_()
    points = torch.tensor([[0.0, 0.3], [0.3, -1.0], [-0.6, 5.0]], dtype=torch.float64)
    x = points[:, 0] / 0.3  # the second score is x, in scales of its noise, and the first 0
    cauchy = 0.5 + torch.arctan(x) / torch.pi
    chance = torch.special.ndtr(x) if name == "softmax_gaussian" else cauchy
    entropy = -(chance * chance.log2() + (1 - chance) * (1 - chance).log2())
    assert torch.allclose(uncertainty(recipe, net, points), entropy, rtol=1e-6, atol=1e-9)


def test_the_chance_counts_pairs_and_equals_half():
    net = torch.nn.Linear(2, 2)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
        net.bias.zero_()
    tested = torch.tensor([[0.5, 0.0], [2.0, 0.0]])
    far = torch.tensor(
        [[0.1, 0.0], [-0.5, 0.0], [9.0, 0.0]]
    )  # more uncertain than both; level, and more; less
    data = Moons(tested, torch.tensor([1, 1]), tested, torch.tensor([1, 0]), far)
    values = numbers(RECIPES["softmax"], net, data)
    assert values["far_over_seen"] == pytest.approx((2 + 1.5 + 0) / 6)
    assert values["accuracy"] == 0.5
    assert values["entropy_seen"] > values["entropy_far"] * 0.5


def test_training_is_decided_by_its_seed_and_lowers_its_loss():
    recipe, data = RECIPES["pairwise_gaussian"], moons(0)
    state = torch.random.get_rng_state()
    once = train(recipe, data, 3, 0)
    again = train(recipe, data, 3, 0)
    other = train(recipe, data, 3, 1)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(once.parameters(), again.parameters(), strict=True))
    assert not torch.equal(once[0].weight, other[0].weight)
    accuracy = [numbers(recipe, train(recipe, data, steps, 0), data)["accuracy"] for steps in (0, 20)]
    assert accuracy[0] < 0.8 < accuracy[1]


def test_its_groups_are_recipes_times_seeds_and_their_rows_whole():
    plan = plan_of([EXPERIMENT], settings(), [])
    groups = plan.groups
    assert [(group.objective, group.seeds) for group in groups.values()] == [
        (name, (seed,)) for name, seed in itertools.product(RECIPES, range(2))
    ]
    assert plan.rows["unit"].nunique() == len(groups)
    longer = plan_of([EXPERIMENT], settings(epochs=3), [])
    assert not set(plan.rows["unit"]) & set(longer.rows["unit"])
    name, group = next(iter(groups.items()))
    measured = run_group(group, plan.rows[plan.rows["group"] == name])
    assert set(measured["status"]) == {MEASURED}
    assert set(measured["unit"]) == {group.key(0)}
    pairs = set(measured[["rule", "metric_spec"]].itertuples(index=False, name=None))
    assert pairs == {("sdp", metric) for metric in EXPERIMENT.metrics}
    first = measured.iloc[0]
    assert (first["dataset"], first["objective"], first["sigma"]) == ("two moons", "softmax", 0.3)
    assert "2-64-64-64-2" in first["recipe"]


def test_more_seeds_than_sets_of_points_are_refused():
    with pytest.raises(UserError, match="points for 1000 seeds, got 1001"):
        EXPERIMENT.plan(settings(nets=1001), [])


@pytest.mark.slow
def test_trained_with_propagation_it_is_less_certain_far_away():
    data = moons(0)
    usual = numbers(RECIPES["softmax"], train(RECIPES["softmax"], data, 150, 0), data)
    propagated = numbers(RECIPES["pairwise"], train(RECIPES["pairwise"], data, 150, 0), data)
    assert usual["far_over_seen"] < 0.35  # .17 to .20 with seeds 0 to 4, 300 steps
    assert propagated["far_over_seen"] > 0.8  # .94 to .99
