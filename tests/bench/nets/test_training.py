import dataclasses

import pytest
import torch

from sdp_bench.bench.datasets.base import stratified_rows
from sdp_bench.bench.datasets.sets import IRIS
from sdp_bench.bench.experiments import experiments, preset
from sdp_bench.bench.nets import fully_connected, recipes
from sdp_bench.bench.nets.architectures import Architecture
from sdp_bench.bench.nets.fully_connected import TrainedNet, file_name, get_nets, train
from sdp_bench.bench.nets.net import net_from_bytes
from sdp_bench.bench.nets.recipes import Recipe
from sdp_ref.activations import ACTIVATIONS

SHORT = Recipe(epochs=300)
SMALL = Architecture(1, width=16)


@pytest.mark.rounding
def test_seeds_trained_together_are_as_if_trained_alone():
    """Rounding may differ between batch sizes; after 300 steps weights agree to 1e-4."""
    together = train(SMALL, SHORT, [0, 1, 2])
    (alone,) = train(SMALL, SHORT, [1])
    for name, weight in alone.state.items():
        assert torch.allclose(weight, together[1].state[name], atol=1e-4)
    assert len({net.digest for net in together}) == 3


def test_training_is_repeatable_and_free_of_global_state():
    torch.manual_seed(1)
    first = train(SMALL, SHORT, [3])[0]
    torch.manual_seed(2)
    assert train(SMALL, SHORT, [3])[0].digest == first.digest


@pytest.mark.parametrize("activation", list(ACTIVATIONS)[:6])
def test_the_batched_forward_is_the_nets_own(activation):
    (net,) = train(Architecture(2, activation, 8), Recipe(epochs=50), [0])
    x = IRIS.load().features
    layers = [(net.state[f"{k}.weight"][None], net.state[f"{k}.bias"][None]) for k in (0, 2, 4)]
    batched = fully_connected._forward(layers, x[None], net.architecture.nonlinearity())[0]
    assert torch.allclose(batched, net.build()(x), rtol=1e-5, atol=1e-6)


def test_the_cache_gives_back_what_was_trained():
    first = get_nets(SMALL, SHORT, [0, 1])
    data = IRIS.load("raw")
    right = first[0].build()(data.features).argmax(1) == data.labels
    assert first[0].accuracy == pytest.approx(float(right.double().mean()))
    assert first[0].accuracy > 0.6
    again = get_nets(SMALL, SHORT, [1, 2])
    assert [net.source for net in again] == ["cache", "trained"]
    assert again[0].digest == first[1].digest
    assert again[0].accuracy == first[1].accuracy


def test_every_part_of_the_recipe_names_the_file():
    base = file_name(SMALL, SHORT, 0)
    others = [
        file_name(Architecture(2, width=16), SHORT, 0),
        file_name(Architecture(1, "tanh", 16), SHORT, 0),
        file_name(SMALL, dataclasses.replace(SHORT, optimizer="adam"), 0),
        file_name(SMALL, dataclasses.replace(SHORT, learning_rate=0.1), 0),
        file_name(SMALL, dataclasses.replace(SHORT, features="standardised"), 0),
        file_name(SMALL, SHORT, 1),
    ]
    assert len({base, *others}) == 7


def test_committed_nets_serve_the_smoke_preset_and_have_learned():
    nets = [net for depth in (1, 2, 4) for net in fully_connected.committed(Architecture(depth), Recipe(), 1)]
    assert [net.architecture.depth for net in nets] == [1, 2, 4]
    assert all(net.source == "committed" and net.accuracy > 0.9 for net in nets)
    assert fully_connected.committed(SMALL, SHORT, 3) == []


@pytest.mark.parametrize(
    ("reached", "trained", "chosen"),
    [
        ([[0.95, 0.5, 0.9], [0.9, 0.95, 1.0]], [2, 3], 1),  # tried until one trains every seed
        ([[0.3, 0.95], [0.3, 0.3], [0.99, 0.3]], [1, 0, 1], 0),  # level: the order decides
    ],
)
def test_the_first_recipe_that_trains_every_seed_is_chosen_or_the_one_with_the_most(reached, trained, chosen):
    accuracies = iter(reached)
    trials = recipes.attempt(SMALL, lambda _: next(accuracies))
    assert [trial.trained for trial in trials] == trained
    assert recipes.choose(trials) == recipes.CANDIDATES[chosen]
    assert recipes.choose([]) == recipes.CANDIDATES[0]


def test_the_committed_evidence_covers_the_experiments_and_names_a_recipe_that_trains():
    paper = preset("paper")
    kinds = {(a.activation, a.depth) for item in experiments().values() for a, _ in item.kinds(paper)}
    tried = recipes.evidence()
    assert {(t.activation, t.depth) for t in tried} == kinds
    best = {kind: max(t.trained for t in tried if (t.activation, t.depth) == kind) for kind in kinds}
    for activation, depth in kinds:
        recipe = recipes.recipe_for(Architecture(depth, activation))
        chosen = next(t for t in tried if (t.activation, t.depth, t.recipe) == (activation, depth, recipe))
        assert chosen.trained == best[activation, depth]


def test_inputs_are_stratified_and_nested():
    labels = IRIS.load().labels
    rows = stratified_rows(labels, 10)
    assert rows[:4] == stratified_rows(labels, 4)
    assert torch.bincount(labels[list(rows[:9])]).tolist() == [3, 3, 3]
    assert len(set(stratified_rows(labels, 150))) == 150
    with pytest.raises(ValueError, match="between 1 and 150"):
        stratified_rows(labels, 151)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Architecture(1, "swoosh"), "choose from relu, leaky_relu, sigmoid, silu, gelu, tanh"),
        (lambda: Architecture(0), "positive"),
        (lambda: Recipe(optimizer="lbfgs"), "choose from sgd, adam"),
        (lambda: Recipe(features="whitened"), "choose from raw, standardised"),
        (lambda: Recipe(learning_rate=0.0), "positive"),
        (lambda: TrainedNet.from_bytes(b"nonsense", "x"), "not a net file of sdp-bench"),
        (lambda: net_from_bytes(b"nonsense", "x"), "not a net file of sdp-bench"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
