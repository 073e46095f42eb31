"""Layer of introduction: where the law enters, the groups and what they record."""

import dataclasses
import pickle

import pytest
import torch

from sdp_bench.bench.datasets.base import ImageClassification
from sdp_bench.bench.datasets.download import DataMissingError
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments.predict import Scope
from sdp_bench.bench.runs import driver as run
from sdp_bench.bench.settings import Settings, Size
from sdp_bench.bench.studies import SCALES
from sdp_bench.bench.studies.classifiers import ImageSplits, Model, Trainer
from sdp_bench.bench.studies.introduction import EXPERIMENT
from sdp_bench.bench.studies.introduction.group import OBJECTIVES, FlatImages, accuracy
from sdp_ref.rules import MarginalMomentMatching, MarginalSDP
from tests.bench.experiments.images import images

TRAIN, TEST = images(120), images(40, seed=1, split="test")
PROBLEM = FlatImages(TRAIN.pixels, TRAIN.labels)
SMALL = Settings(sizes={"introduction": Size(nets=1, epochs=1, sigmas=(0.1,))})


@pytest.fixture
def made_up(monkeypatch):
    monkeypatch.setattr(ImageClassification, "load", lambda _, split: {"train": TRAIN, "test": TEST}[split])


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path / "cache"))


def groups_of(settings):
    return EXPERIMENT.expand(Scope(settings)).groups


def at(objective, scale):
    (found,) = objective.at([scale])
    return found


# Where the law enters ---------------------------------------------------------------------------------


def test_the_net_is_the_paper_s_for_images_of_its_size():
    digits = FlatImages(torch.zeros(2, 1, 28, 28, dtype=torch.uint8), torch.tensor([0, 1]))
    assert digits.architecture.label == "784-256-256-256-256-10"
    assert (
        sum(p.numel() for p in digits.build(0).parameters()) == 784 * 256 + 3 * 256**2 + 2560 + 4 * 256 + 10
    )


def test_initial_weights_depend_on_the_seed_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second, other = (
        torch.cat([p.flatten() for p in PROBLEM.build(s).parameters()]) for s in (0, 0, 1)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("layer", range(6))
def test_the_law_enters_after_so_many_layers(layer):
    """What comes before is the plain net; what comes after propagates a Gaussian of the scale's variance."""
    net = PROBLEM.build(0)
    pixels = TRAIN.pixels[:5].float() / 255
    law = at(OBJECTIVES[layer], 0.3).law(net, pixels)
    hidden = pixels.flatten(1)
    linear = [module for module in net if isinstance(module, torch.nn.Linear)]
    for number, module in enumerate(linear[:layer]):
        hidden = module(hidden) if number == 4 else module(hidden).relu()
    variance = torch.full_like(hidden, 0.09)
    for number, module in enumerate(linear[layer:], start=layer):
        hidden, variance = module(hidden), variance @ module.weight.square().T
        if number < 4:
            variance = variance * (hidden > 0)
            hidden = hidden.relu()
    torch.testing.assert_close(law.mean, hidden)
    torch.testing.assert_close(law.variance, variance)
    torch.testing.assert_close(law.mean, net(pixels))


def test_every_layer_learns_and_gives_the_same_bits_again():
    for objective in OBJECTIVES[::5]:
        first, second = (Trainer(PROBLEM, at(objective, 1.0), 0, 30) for _ in range(2))
        for _ in zip(first.run(), second.run(), strict=True):
            pass
        states = [trainer.net.state_dict() for trainer in (first, second)]
        assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
        assert accuracy(first.model, TRAIN.pixels, TRAIN.labels) > 0.2


@pytest.mark.parametrize("scale", [1e-9, 1e4])
def test_extreme_scales_are_trained_with_and_stay_finite(scale):
    for layer in (0, 5):
        trainer = Trainer(PROBLEM, at(OBJECTIVES[layer], scale), 0, 3)
        list(trainer.run())
        assert all(tensor.isfinite().all() for tensor in trainer.net.state_dict().values())


def test_accuracy_is_the_share_of_images_that_the_net_gets_right():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    with torch.no_grad():
        net[1].weight.zero_()
        net[1].bias.copy_(torch.eye(10)[3])
    always_three = Model(net, 0.0, 0.0)
    assert accuracy(always_three, TEST.pixels, TEST.labels) == pytest.approx(0.1)
    assert accuracy(always_three, TEST.pixels[TEST.labels == 3], TEST.labels[TEST.labels == 3]) == 1.0


# The experiment ---------------------------------------------------------------------------------------


def test_the_paper_s_design():
    size = EXPERIMENT.size(Settings())
    assert (size.nets, size.epochs, size.samples, size.inputs) == (3, 100, None, None)
    assert size.sigmas == SCALES
    assert SCALES[0] == 1e-9
    assert SCALES[-1] == 1e4
    assert len(SCALES) == 14


def test_groups_are_layers_by_scales_by_seeds_known_by_all_that_matters(made_up):
    settings = SMALL.but(sizes={"introduction": Size(nets=2, epochs=1, sigmas=(1e-3, 1.0))})
    groups = groups_of(settings)
    units = [unit for group in groups for unit in group.units]
    assert len({unit.key for unit in units}) == len(units) == 24
    assert {(unit.objective, unit.sigma, unit.seed) for unit in units} == {
        (f"layer_{layer}", sigma, seed) for layer in range(6) for sigma in (1e-3, 1.0) for seed in range(2)
    }
    keys = {unit.key for unit in units}
    for other in (
        settings.but(epochs=2),
        settings.but(samples=100),
        settings.but(sizes={"introduction": Size(nets=2, epochs=1, inputs=20, sigmas=(1e-3, 1.0))}),
        settings.but(sigmas=(0.5,)),
    ):
        assert keys.isdisjoint(unit.key for group in groups_of(other) for unit in group.units)


def test_what_a_user_says_of_samples_and_scales_takes_the_place_of_the_preset_s(made_up):
    (group, *_), few = groups_of(SMALL.but(samples=100)), groups_of(SMALL.but(sigmas=(0.5, 5.0)))
    assert "trained on 100 images" in group.units[0].design
    assert {group.units[0].sigma for group in few} == {0.5, 5.0}


def test_a_group_gives_one_accuracy_and_travels(made_up, cache):
    group = pickle.loads(pickle.dumps(groups_of(SMALL)[3]))
    result = run.run_group(group, group.cells)
    assert result.failures == []
    (record,) = result.records
    assert (record.rule, record.metric, record.component) == ("marginal_sdp", "accuracy", None)
    assert 0 <= record.value <= 1
    assert group.title == "introduction mnist layer_3 at 0.1 seed 0"
    assert group.seconds > 0


def test_a_set_that_is_gone_is_a_failure_of_the_group(made_up, cache, monkeypatch):
    group = groups_of(SMALL)[0]

    def gone(*_):
        raise DataMissingError("MNIST is not there")

    monkeypatch.setattr(ImageClassification, "load", gone)
    result = run.run_group(group, group.cells)
    assert [failure.error for failure in result.failures] == ["MNIST is not there"]


def test_without_the_files_one_line_says_what_to_get(tmp_path, monkeypatch):
    monkeypatch.setenv("SDP_BENCH_DATA", str(tmp_path))
    with pytest.raises(DataMissingError, match="MNIST train") as caught:
        groups_of(SMALL)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trained": 0}, "images to train on must be positive, got 0"),
        ({"tested": -1}, "images to test on must be positive, got -1"),
        ({"trained": 1}, "one class"),
        ({"train": dataclasses.replace(TRAIN, labels=TRAIN.labels + 1)}, "got 10"),
        ({"test": dataclasses.replace(TEST, kept=TEST.pixels[:, :, :7])}, "one shape"),
    ],
)
def test_bad_images_are_refused_in_one_line(change, message):
    with pytest.raises(UserError, match=message) as caught:
        ImageSplits(**({"train": TRAIN, "test": TEST} | change))
    assert "\n" not in str(caught.value)


def test_its_numbers_rest_on_its_version_its_training_and_its_rule(made_up, monkeypatch):
    def versions():
        return {group.versions for group in groups_of(SMALL)}

    assert versions() == {"method 1, training 1, rule 1"}
    monkeypatch.setattr(MarginalMomentMatching, "version", 2)
    assert versions() == {"method 1, training 1, rule 1"}
    monkeypatch.setattr(MarginalSDP, "version", 2)
    assert versions() == {"method 1, training 1, rule 2"}
