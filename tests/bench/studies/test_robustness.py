import math

import pytest
import torch
from torch import nn

import sdp_ref as sr
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.identity import SeedRoot
from sdp_bench.bench.settings import Settings, Size
from sdp_bench.bench.studies.classifiers import Images, Model, Objective, Trainer, TrainingImages
from sdp_bench.bench.studies.robustness import EXPERIMENT, METHODS, METRICS, NOISE
from sdp_bench.bench.studies.robustness.group import OBJECTIVES, evaluate
from tests.bench.studies.conftest import TEST, TRAIN

PROBLEM = TrainingImages(TRAIN.kept[:40], TRAIN.labels[:40])
TINY = Size(nets=1, inputs=10, epochs=1, datasets=("mnist",), sigmas=(0.1,), steps=2)
SMALL = Settings(sizes={"robustness": TINY})
BY_NAME = {objective.name: objective for objective in OBJECTIVES}
SEEDS = SeedRoot("0" * 16)


def at(name, scale):
    (scaled,) = BY_NAME[name].at([scale])
    return scaled


def measured(model, objective, methods, pixels=TEST.kept, labels=TEST.labels, radii=(8, 16), steps=2):
    images = Images(PROBLEM, pixels, labels, "made up")
    numbers = evaluate(model, objective, images, methods, SEEDS, radii=radii, steps=steps)
    return {(method, metric, component): value for method, metric, value, component in numbers}


@pytest.mark.parametrize(
    ("name", "rule", "kind"),
    [
        ("dirichlet", "marginal_moment_matching", sr.DiagonalGaussian),
        ("pairwise_gaussian", "sdp", sr.Gaussian),
        ("pairwise_marginal", "marginal_sdp", sr.DiagonalGaussian),
        ("pairwise_cauchy", "marginal_sdp", sr.Cauchy),
    ],
)
def test_an_objective_propagates_the_noise_of_its_name(name, rule, kind):
    net, pixels = PROBLEM.build(0), TRAIN.kept[:3].float() / 255
    law = at(name, 0.2).law(net, pixels)
    family, spread = (sr.Cauchy, "scale") if kind is sr.Cauchy else (sr.DiagonalGaussian, "variance")
    noise = family(pixels, torch.full_like(pixels, 0.2 if spread == "scale" else 0.04))
    expected = sr.propagate(net, noise, rule)
    assert type(law) is kind
    torch.testing.assert_close(law.location, expected.location)
    torch.testing.assert_close(getattr(law, spread), getattr(expected, spread))
    torch.testing.assert_close(at(name, 0.2).location(net, pixels), expected.location)


@pytest.mark.parametrize("scale", [1e-9, 1e4])
@pytest.mark.parametrize("name", [name for name in BY_NAME if name != "softmax"])
def test_models_of_extreme_scales_stay_finite_and_can_be_attacked(name, scale):
    trainer = Trainer(PROBLEM, at(name, scale), 0, 2)
    list(trainer.run())
    assert all(tensor.isfinite().all() for tensor in trainer.net.state_dict().values())
    numbers = measured(trainer.model, at(name, scale), METHODS, TEST.kept[:6], TEST.labels[:6])
    assert all(0 <= value <= 1 for value in numbers.values())


def test_a_model_that_looks_at_nothing_stands_with_and_falls_without_gradients():
    """It says 3 of everything: right for a tenth, and no attack has a gradient."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    with torch.no_grad():
        net[1].weight.zero_()
        net[1].bias.copy_(torch.eye(10)[3])
    numbers = measured(Model(net, 0.0, 0.0), Objective("softmax"), ("clean", "noise", "pgd_ce", "square"))
    assert numbers.pop(("clean", "accuracy", None)) == pytest.approx(0.1)
    for sigma in NOISE:
        assert numbers.pop(("noise", "accuracy", f"{sigma:g}")) == pytest.approx(0.1)
    for strength in ("8/255", "16/255"):
        assert numbers.pop(("pgd_ce", "accuracy", strength)) == pytest.approx(0.1)
        assert numbers.pop(("pgd_ce", "accuracy_gnz", strength)) == 0
        assert numbers.pop(("pgd_ce", "accuracy_gnz_pixel", strength)) == 0
        assert numbers.pop(("square", "accuracy", strength)) == pytest.approx(0.1)
    assert numbers == {}


def test_a_linear_model_has_the_robust_accuracy_of_its_margins():
    """Of scores (0, sum of pixels - b) the worst of a ball lowers each pixel by the radius, or to 0."""
    values = torch.arange(0, 250, 10, dtype=torch.uint8)
    pixels = values[:, None, None, None].expand(-1, 1, 8, 8).contiguous()
    labels = torch.ones(25, dtype=torch.int64)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    with torch.no_grad():
        net[1].weight.copy_(torch.stack([torch.zeros(64), torch.ones(64) / 64]))
        net[1].bias.copy_(torch.tensor([0.0, -100.5 / 255]))
    model = Model(net, 0.0, 0.0)
    numbers = measured(model, Objective("softmax"), ("clean", "pgd_ce", "square"), pixels, labels, steps=20)
    assert numbers["clean", "accuracy", None] == pytest.approx(float((values > 100).double().mean()))
    for radius in (8, 16):
        expected = float((values.int() - radius > 100).double().mean())
        for method in ("pgd_ce", "square"):
            assert numbers[method, "accuracy", f"{radius}/255"] == pytest.approx(expected)
        assert numbers["pgd_ce", "accuracy_gnz_pixel", f"{radius}/255"] == pytest.approx(expected)


@pytest.mark.parametrize("name", ["softmax", "pairwise_gaussian", "pairwise_cauchy"])
def test_no_attack_helps_and_stronger_ones_hurt_more(name):
    trainer = Trainer(PROBLEM, at(name, 0.1), 0, 10)
    list(trainer.run())
    methods = tuple(method for method in METHODS if name != "softmax" or method != "pgd_own")
    numbers = measured(trainer.model, at(name, 0.1), methods, TEST.kept[:10], TEST.labels[:10])
    clean = numbers["clean", "accuracy", None]
    for method in methods[2:]:
        small = numbers[method, "accuracy", "8/255"]
        large = numbers[method, "accuracy", "16/255"]
        assert large <= small <= clean
        if method != "square":
            for strength in ("8/255", "16/255"):
                kept = [numbers[method, metric, strength] for metric in METRICS]
                assert kept == sorted(kept, reverse=True)


def test_numbers_depend_on_the_key_alone():
    trainer = Trainer(PROBLEM, at("softmax", 0.0), 0, 20)
    list(trainer.run())
    images = Images(PROBLEM, TEST.kept, TEST.labels, "made up")

    def numbers(seeds):
        methods = ("noise", "pgd_ce", "square")
        return list(
            evaluate(trainer.model, Objective("softmax"), images, methods, seeds, radii=(40,), steps=2)
        )

    assert numbers(SEEDS) == numbers(SEEDS)
    assert numbers(SEEDS) != numbers(SeedRoot("1" * 16))


def test_noise_is_clamped_to_images_as_often_as_a_gaussian_leaves_them():
    """Of pixels of one half, those beyond 0 and 1 are two tails of the Gaussian, and end there."""
    seen = []

    class Watching(nn.Module):
        def forward(self, pixels):
            seen.append(pixels.clone())
            return pixels.flatten(1)[:, :10]

    half = torch.full((200, 1, 8, 8), 128, dtype=torch.uint8)
    net = nn.Sequential(Watching(), nn.Linear(10, 10))
    measured(Model(net, 0.0, 0.0), Objective("softmax"), ("noise",), half, torch.zeros(200).long())
    assert len(seen) == len(NOISE)
    for sigma, noisy in zip(NOISE, seen, strict=True):
        assert noisy.min() == 0
        assert noisy.max() == 1
        tails = math.erfc(0.5 / sigma / math.sqrt(2))
        assert float(((noisy == 0) | (noisy == 1)).double().mean()) == pytest.approx(tails, abs=0.02)


def test_a_set_whose_radii_are_not_known_is_refused_in_one_line(made_up):
    with pytest.raises(UserError, match="attacks images of mnist, cifar10, not of 'emnist-letters'"):
        EXPERIMENT.plan(SMALL.but(datasets=("emnist-letters",)), [])
