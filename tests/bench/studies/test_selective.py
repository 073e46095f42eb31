import itertools

import numpy as np
import pytest
import torch

import sdp_ref as sr
from sdp_bench.bench.experiments.plan import plan_of
from sdp_bench.bench.results.columns import MEASURED
from sdp_bench.bench.runs import driver as run
from sdp_bench.bench.settings import Settings, Size
from sdp_bench.bench.studies import classifiers
from sdp_bench.bench.studies.classifiers import START, Model, Trainer, TrainingImages, get_model
from sdp_bench.bench.studies.selective import CERTIFICATES, EXPERIMENT, READINGS, SCORES
from sdp_bench.bench.studies.selective.group import OBJECTIVES, POINTS, evaluate, load
from sdp_ref import losses
from sdp_ref.rules import SDP
from tests.bench.studies.conftest import TEST, TRAIN, images

SMALL = Settings(sizes={"selective": Size(nets=1, epochs=1)})


PROBLEM = TrainingImages(TRAIN.kept, TRAIN.labels)


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


def test_there_are_as_many_letters_as_digits_and_none_of_them_can_be_right(made_up):
    chosen = load()
    labels = chosen.labels
    assert len(chosen.pixels) == len(labels) == 80
    assert (labels[:40] == TEST.labels).all()
    assert (labels[40:] == -1).all()
    assert "letters ABCDEFGHIJKLMNOPQRS" in chosen.description


@pytest.fixture(scope="module")
def trained():
    """Trainers of all objectives after three steps."""
    trainers = {name: Trainer(PROBLEM, objective, 0, 3) for name, objective in OBJECTIVES.items()}
    for trainer in trainers.values():
        list(trainer.run())
    return trainers


@pytest.mark.slow
@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_learns_and_gives_the_same_bits_again(name):
    first = Trainer(PROBLEM, OBJECTIVES[name], 0, 30)
    second = Trainer(PROBLEM, OBJECTIVES[name], 0, 30)
    for trainer in (first, second):
        list(trainer.run())
    assert same(first.net.state_dict(), second.net.state_dict())
    before = PROBLEM.architecture.build(0)
    assert not same(first.net.state_dict(), before.state_dict())
    pixels = TRAIN.kept.float() / 255
    rows = torch.arange(len(TRAIN.labels))
    untrained = Trainer(PROBLEM, OBJECTIVES[name], 0, 1)
    first_loss = float(untrained.loss(rows).detach())
    last_loss = float(first.loss(rows).detach())
    assert last_loss < first_loss
    assert (first.net(pixels).argmax(1) == TRAIN.labels).float().mean() > 0.5


def test_only_the_dirichlet_likelihood_trains_its_constants(trained):
    start = float(torch.nn.functional.softplus(torch.tensor(START, dtype=torch.float64)))
    for name, trainer in trained.items():
        moved = trainer.model.offset != pytest.approx(start, rel=1e-6)
        assert moved == (name == "dirichlet")


@pytest.mark.parametrize("name", ["softmax", "dirichlet"])
def test_a_training_that_was_killed_goes_on_to_the_same_weights(name):
    problem = TrainingImages(TRAIN.kept.repeat(3, 1, 1, 1), TRAIN.labels.repeat(3))
    whole = Trainer(problem, OBJECTIVES[name], 0, 3)
    killed = Trainer(problem, OBJECTIVES[name], 0, 3)
    resumed = Trainer(problem, OBJECTIVES[name], 0, 3)
    list(whole.run())
    list(itertools.islice(killed.run(), 3))
    resumed.restore(killed.to_bytes())
    assert 0 < killed.step == resumed.step < whole.step
    list(resumed.run())
    assert same(resumed.net.state_dict(), whole.net.state_dict())
    assert resumed.model.offset == whole.model.offset


@pytest.mark.parametrize(("owner", "name"), [(classifiers, "VERSION"), (SDP, "version")])
def test_another_version_is_trained_again(owner, name, cache, monkeypatch):
    for version, files in ((1, 1), (1, 1), (2, 2)):
        monkeypatch.setattr(owner, name, version)
        get_model(PROBLEM, OBJECTIVES["pairwise_gaussian"], 0, 1)
        assert len(list(cache.iterdir())) == files


@pytest.mark.rounding
def test_a_linear_net_has_the_scores_of_its_exact_laws():
    """Scores of A x + b have covariance .01 A A^T, and Cauchy scales .1 |A| 1."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)).eval()
    model = Model(net, 1e-3, 2e-3)
    classes, uncertainty = evaluate(model, OBJECTIVES["softmax"], SCORES["softmax"], PROBLEM, TEST.kept)

    weight, bias = net[1].weight.detach().double(), net[1].bias.detach().double()
    location = TEST.kept.flatten(1).double() / 255 @ weight.T + bias
    covariance = 0.01 * weight @ weight.T
    assert torch.equal(classes, location.argmax(1))
    entropy = losses.softmax_entropy(location)
    torch.testing.assert_close(uncertainty["softmax_entropy", ""], entropy, atol=1e-5, rtol=1e-5)

    gaussian = sr.Gaussian(location, covariance.expand(40, -1, -1))
    cauchy = sr.Cauchy(location, (0.1 * weight.abs().sum(1)).expand(40, -1))
    for combine in ("mean", "geometric", "minimum"):
        for score, law in (("pairwise_gaussian", gaussian), ("pairwise_cauchy", cauchy)):
            expected = losses.entropy(losses.pairwise_scores(law, combine))
            torch.testing.assert_close(uncertainty[score, combine], expected, atol=1e-5, rtol=1e-5)

    # Dirichlet output: probabilities over a scale of 1e-4 + offset + slope * deviation (Gast & Roth).
    probabilities = location.softmax(1)
    deviation = (probabilities.square() @ covariance.diagonal()).sqrt()
    scale = 1e-4 + 1e-3 + 2e-3 * deviation
    torch.testing.assert_close(uncertainty["dirichlet", "mean"], entropy, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(uncertainty["dirichlet", "concentration"], scale.log(), atol=1e-4, rtol=1e-4)
    law = torch.distributions.Dirichlet(probabilities / scale[:, None])
    torch.testing.assert_close(uncertainty["dirichlet", "law"], law.entropy(), atol=1e-2, rtol=1e-4)

    # The net has one layer, so its features are the pixels.
    certificates = losses.OrthonormalCertificates.fit(TRAIN.kept.flatten(1).float() / 255, 64)
    expected = certificates.score(TEST.kept.flatten(1).float() / 255)
    actual = uncertainty["orthonormal_certificates", str(CERTIFICATES[-1])]
    torch.testing.assert_close(actual.float(), expected)


def test_models_of_one_seed_start_from_one_net_and_seeds_differ():
    nets = [Trainer(PROBLEM, objective, 3, 1).net.state_dict() for objective in OBJECTIVES.values()]
    assert all(same(nets[0], net) for net in nets[1:])
    assert not same(nets[0], Trainer(PROBLEM, OBJECTIVES["softmax"], 4, 1).net.state_dict())


def test_fewer_certificates_are_those_that_would_be_fitted_alone(trained):
    net, name = trained["softmax"].model.net, "orthonormal_certificates"
    many = images(600, seed=5)
    problem = TrainingImages(many.kept, many.labels)
    _, uncertainty = evaluate(trained["softmax"].model, OBJECTIVES["softmax"], (name,), problem, TEST.kept)
    with torch.no_grad():
        fitted = net[:-1](many.kept.float() / 255)
        scored = net[:-1](TEST.kept.float() / 255)
    alone = losses.OrthonormalCertificates.fit(fitted, 100).score(scored)
    torch.testing.assert_close(uncertainty[name, "100"].float(), alone, atol=1e-6, rtol=1e-3)


@pytest.mark.rounding
@pytest.mark.parametrize(
    ("name", "scale", "gaussian", "cauchy"),
    [
        ("dirichlet", 0.01, "marginal_moment_matching", "marginal_sdp"),
        ("pairwise_gaussian", 0.1, "sdp", "sdp"),
        ("pairwise_marginal", 0.1, "marginal_sdp", "marginal_sdp"),
        ("pairwise_cauchy", 0.1, "sdp", "sdp"),
    ],
)
def test_both_kinds_of_pairs_have_laws_of_their_own_whichever_was_trained_with(
    name, scale, gaussian, cauchy, trained
):
    """Gaussian pairs see Gaussian noise of the model's scale, Cauchy pairs Cauchy noise or its deviations."""
    model, pixels = trained[name].model, TEST.kept.float() / 255
    classes, uncertainty = evaluate(model, OBJECTIVES[name], SCORES[name], PROBLEM, TEST.kept)
    normal = sr.DiagonalGaussian(pixels, torch.full_like(pixels, scale**2))
    noisy = sr.Cauchy(pixels, torch.full_like(pixels, scale))
    first = sr.propagate(model.net, normal, gaussian).to(torch.float64)
    second = sr.propagate(model.net, noisy, cauchy).to(torch.float64)
    borrowed = sr.Cauchy(first.location, first.variance.sqrt())
    for combine in ("mean", "geometric", "minimum"):
        for key, law in (
            (("pairwise_gaussian", combine), first),
            (("pairwise_cauchy", combine), second),
            (("pairwise_cauchy", f"sd_{combine}"), borrowed),
        ):
            expected = losses.entropy(losses.pairwise_scores(law, combine))
            torch.testing.assert_close(uncertainty[key], expected)
    assert torch.equal(classes, first.location.argmax(1))


@pytest.mark.parametrize("index", [0, 1, 4])
def test_a_group_gives_all_that_it_wants(index, made_up, cache):
    plan = plan_of([EXPERIMENT], SMALL, [])
    name, group = [*plan.groups.items()][index]
    measured = run.run_group(group, plan.rows[plan.rows["group"] == name])
    assert set(measured["status"]) == {MEASURED}
    for score in SCORES[group.objective]:
        rows = measured[measured["rule"] == score]
        components = rows["component"].where(rows["component"].notna(), "")
        values = dict(zip(zip(rows["metric_spec"], components, strict=True), rows["value"], strict=True))
        assert [k for k in values if k[0] == "rcauc"] == [("rcauc", reading) for reading in READINGS[score]]
        risk = np.array([values["risk", point] for point in POINTS])
        assert risk[0] == 0
        assert (np.diff(risk) >= -1e-12).all()
        accuracy = values["accuracy", ""]
        assert risk[-1] == pytest.approx(1 - accuracy / 2)
        area = values["rcauc", READINGS[score][0]]
        assert np.trapezoid(risk, dx=0.01) == pytest.approx(area, abs=2e-3)
        assert area >= 0.125
    assert set(measured["unit_of_measure"]) == {"1"}
    assert "" not in set(measured["component"])  # what has one number has no name for it
