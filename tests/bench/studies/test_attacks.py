import pytest
import torch
from torch.nn import functional as F

from sdp_bench.bench.studies.robustness.group import RESTARTS, pgd, square

RADIUS = 0.1
ATTACKS = ("pgd", "square")


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(count=6, channels=1, size=8):
    return torch.rand(count, channels, size, size, generator=generator(9))


def run(attack, scores, pixels, labels, *, effort=20, radius=RADIUS, seed=0):
    """Attack of `effort` steps on cross-entropy, or ten times as many queries."""
    if attack == "square":
        return square(scores, pixels, labels, radius, queries=10 * effort, generator=generator(seed))

    def assess(tried, truth):
        return scores(tried), F.cross_entropy(scores(tried), truth, reduction="none")

    return pgd(assess, pixels, labels, radius, steps=effort, generator=generator(seed))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_stay_in_the_ball_and_among_images(attack, channels):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64 * channels, 5))
    net.requires_grad_(requires_grad=False)
    pixels = images(9, channels)
    pixels[0], pixels[1] = 0.0, 1.0
    labels = net(pixels).argmax(1)
    before = pixels.clone()
    attacked = run(attack, net, pixels, labels)
    assert torch.equal(pixels, before)
    assert (attacked.pixels - pixels).abs().max() <= RADIUS + 1e-6
    assert attacked.pixels.min() >= 0
    assert attacked.pixels.max() <= 1
    assert torch.equal(net(attacked.pixels).argmax(1) != labels, attacked.fooled)


def test_a_square_is_kept_only_where_it_makes_the_margin_smaller():
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2)
    ).requires_grad_(requires_grad=False)
    net[3].bias[1] += 1e3  # none falls
    lead, queried = torch.tensor([-1.0, 1.0]), []

    def scores(pixels):
        queried.append(net(pixels) @ lead)
        return net(pixels)

    pixels = images()
    attacked = square(
        scores, pixels, torch.ones(6, dtype=torch.int64), RADIUS, queries=100, generator=generator()
    )
    margins = torch.stack(queried)
    assert len(margins) == 100
    torch.testing.assert_close(net(attacked.pixels) @ lead, margins.amin(0))
    assert (margins.amin(0) < margins[0]).all()


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_seed_determines_the_attack(attack):
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)
    )
    net.requires_grad_(requires_grad=False)
    net[3].bias[1] += 1e3
    pixels, labels = images(), torch.ones(6, dtype=torch.int64)
    first = run(attack, net, pixels, labels, effort=1, seed=0).pixels
    second = run(attack, net, pixels, labels, effort=1, seed=0).pixels
    other = run(attack, net, pixels, labels, effort=1, seed=1).pixels
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def saturated(pixels, labels):
    """A loss that underflows: exp(-1000 margin) is 0 in float32, and so is its gradient."""
    margin = pixels.flatten(1).sum(1) - 20
    return torch.stack([torch.zeros_like(margin), margin], 1), torch.exp(-1000 * margin) * (labels + 1)


def test_a_saturated_model_stands_only_because_its_gradient_vanishes():
    """Half a radius further in any direction it would fall: search without gradients finds that."""
    pixels, labels = torch.full((3, 1, 8, 8), 0.4), torch.ones(3, dtype=torch.int64)
    attacked = pgd(saturated, pixels, labels, RADIUS, steps=10, generator=generator())
    assert not attacked.fooled.any()
    assert attacked.vanished.all()
    assert attacked.vanished_pixel.all()
    searched = square(
        lambda tried: saturated(tried, labels[: len(tried)])[0],
        pixels,
        labels,
        RADIUS,
        queries=200,
        generator=generator(),
    )
    assert searched.fooled.all()
    assert not searched.vanished.any()


def test_a_random_start_finds_what_the_gradient_at_the_image_hides():
    """A plateau around the image, and a slope beyond: only a point drawn in the ball sees it."""

    def assess(pixels, _):
        margin = 1 - 4 * ((pixels - 0.5).abs() - 0.01).clamp(min=0).flatten(1).amax(1) / RADIUS
        return torch.stack([torch.zeros_like(margin), margin], 1), -margin

    pixels, labels = torch.full((4, 1, 8, 8), 0.5), torch.ones(4, dtype=torch.int64)
    alone = pgd(assess, pixels, labels, RADIUS, steps=5, generator=generator(), restarts=1)
    assert not alone.fooled.any()
    assert RESTARTS > 1
    assert pgd(assess, pixels, labels, RADIUS, steps=5, generator=generator()).fooled.all()


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_optimum_of_a_linear_model_is_reached(attack):
    weight = torch.randn(1, 8, 8, generator=generator(4))
    pixels = images()
    worst = (pixels - RADIUS * weight.sign()).clamp(0, 1)
    offset = float((worst * weight).flatten(1).sum(1).min()) - 0.1  # no image crosses the boundary

    def scores(tried):
        margin = (tried * weight).flatten(1).sum(1) - offset
        return torch.stack([-margin, margin], 1)

    found = run(attack, scores, pixels, torch.ones(6, dtype=torch.int64), effort=60)
    assert not found.fooled.any()
    torch.testing.assert_close(found.pixels, worst)


def half_space(weight, offset):
    """Scores of class 1 above class 0 where the weighted sum of pixels is above an offset."""

    def scores(pixels):
        margin = (pixels * weight).flatten(1).sum(1) - offset
        return torch.stack([-margin, margin], 1)

    return scores


def test_only_images_that_have_not_fallen_are_evaluated_again():
    evaluated = []
    classify = half_space(torch.ones(1, 8, 8), 32.0)

    def scores(pixels):
        evaluated.append(len(pixels))
        return classify(pixels)

    pixels = torch.cat([torch.full((3, 1, 8, 8), 0.51), torch.ones(2, 1, 8, 8)])
    labels = torch.ones(5, dtype=torch.int64)
    found = square(scores, pixels, labels, RADIUS, queries=50, generator=generator())
    assert found.fooled.tolist() == [True] * 3 + [False] * 2
    assert (evaluated[0], evaluated[-1], len(evaluated)) == (5, 2, 50)


def test_a_pixel_without_weight_has_no_gradient():
    weight = torch.ones(1, 8, 8)
    weight[0, 0, 0] = 0.0
    found = run("pgd", half_space(weight, 25.0), images(), torch.ones(6, dtype=torch.int64))
    assert not found.vanished.any()
    assert found.vanished_pixel.all()


def test_a_gradient_that_is_not_a_number_counts_as_zero():
    def assess(pixels, _):
        total = pixels.flatten(1).sum(1)
        loss = (total * 0).sqrt() * total.clamp(max=0).sqrt()
        return torch.stack([torch.zeros_like(total), total + 1], 1), loss

    labels = torch.ones(6, dtype=torch.int64)
    found = pgd(assess, images(), labels, RADIUS, steps=3, generator=generator())
    assert found.vanished.all()
    assert found.pixels.isfinite().all()
