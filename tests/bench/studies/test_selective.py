"""Selective prediction: images of digits and letters, five objectives, five scores, and their records."""

import dataclasses
import pickle

import numpy as np
import pytest
import torch

import sdp_ref as sr
from sdp_bench.bench.datasets.base import ImageClassification
from sdp_bench.bench.datasets.download import DataMissingError
from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.experiments.predict import Scope
from sdp_bench.bench.nets import storage
from sdp_bench.bench.noise import CAUCHY
from sdp_bench.bench.runs import driver as run
from sdp_bench.bench.settings import Settings, Size
from sdp_bench.bench.studies import classifiers
from sdp_bench.bench.studies.classifiers import (
    START,
    Model,
    Trainer,
    TrainingImages,
    get_model,
)
from sdp_bench.bench.studies.selective import CERTIFICATES, EXPERIMENT, METRICS, READINGS, SCORES
from sdp_bench.bench.studies.selective.group import OBJECTIVES, POINTS, Images, evaluate, models
from sdp_ref import losses
from sdp_ref.rules import SDP, MarginalSDP
from tests.bench.experiments.images import images

SMALL = Settings(sizes={"selective": Size(nets=1, epochs=1)})


TRAIN, DIGITS = images(64), images(40, seed=1, split="test")
LETTERS = images(60, 19, first=1, seed=2, split="test", title="EMNIST letters")
PROBLEM = TrainingImages(TRAIN.pixels, TRAIN.labels)


@pytest.fixture
def made_up(monkeypatch):
    made = {("mnist", "train"): TRAIN, ("mnist", "test"): DIGITS, ("emnist-letters", "test"): LETTERS}
    monkeypatch.setattr(ImageClassification, "load", lambda self, split: made[self.name, split])


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "nets"


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


# Images -----------------------------------------------------------------------------------------


def test_there_are_as_many_letters_as_digits_and_none_of_them_can_be_right():
    chosen = Images(TRAIN, DIGITS, LETTERS)
    pixels, labels = chosen.tested
    assert len(pixels) == len(labels) == 80
    assert (labels[:40] == DIGITS.labels).all()
    assert (labels[40:] == -1).all()
    assert chosen.alphabet == "ABCDEFGHIJKLMNOPQRS"
    assert "letters ABCDEFGHIJKLMNOPQRS" in chosen.description


def test_a_limit_takes_the_classes_in_turn_the_same_ones_each_time():
    first, second = Images(TRAIN, DIGITS, LETTERS, 20), Images(TRAIN, DIGITS, LETTERS, 20)
    assert torch.equal(first.tested[0], second.tested[0])
    assert first.problem.labels.bincount().tolist() == [2] * 10
    assert first.tested[1][:20].bincount().tolist() == [2] * 10
    assert len(first.alphabet) == 19


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"limit": 0}, "must be positive, got 0"),
        ({"limit": 1}, "one class"),
        ({"train": dataclasses.replace(TRAIN, labels=TRAIN.labels * 0)}, "one class"),
        ({"train": dataclasses.replace(TRAIN, labels=TRAIN.labels + 1)}, "got 10"),
        ({"digits": dataclasses.replace(DIGITS, labels=DIGITS.labels - 1)}, "lie in 0..9"),
        ({"letters": dataclasses.replace(LETTERS, kept=LETTERS.pixels[:, :, :7])}, "one shape"),
    ],
)
def test_bad_images_are_refused_in_one_line(change, message):
    with pytest.raises(UserError, match=message) as caught:
        Images(**({"train": TRAIN, "digits": DIGITS, "letters": LETTERS} | change))
    assert "\n" not in str(caught.value)


def test_without_the_files_one_line_says_what_to_get(tmp_path, monkeypatch):
    monkeypatch.setenv("SDP_BENCH_DATA", str(tmp_path))
    with pytest.raises(DataMissingError, match="MNIST train") as caught:
        groups_of(SMALL)
    assert "\n" not in str(caught.value)


# Training ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_learns_and_gives_the_same_bits_again(name):
    first, second = (Trainer(PROBLEM, OBJECTIVES[name], 0, 30) for _ in range(2))
    for _ in zip(first.run(), second.run(), strict=True):
        pass
    assert same(first.net.state_dict(), second.net.state_dict())
    before = PROBLEM.architecture.build(0)
    assert not same(first.net.state_dict(), before.state_dict())
    pixels = TRAIN.pixels.float() / 255
    first_loss, last_loss = (
        float(trainer.loss(pixels, TRAIN.labels).detach())
        for trainer in (Trainer(PROBLEM, OBJECTIVES[name], 0, 1), first)
    )
    assert last_loss < first_loss
    assert (first.net(pixels).argmax(1) == TRAIN.labels).float().mean() > 0.5


def test_only_the_dirichlet_likelihood_trains_its_constants():
    start = float(torch.nn.functional.softplus(torch.tensor(START, dtype=torch.float64)))
    for name, objective in OBJECTIVES.items():
        trainer = Trainer(PROBLEM, objective, 0, 1)
        list(trainer.run())
        moved = trainer.model.offset != pytest.approx(start, rel=1e-6)
        assert moved == (name == "dirichlet")


def test_the_objectives_of_a_seed_start_from_one_net_and_seeds_differ():
    nets = [Trainer(PROBLEM, objective, 3, 1).net.state_dict() for objective in OBJECTIVES.values()]
    assert all(same(nets[0], net) for net in nets[1:])
    assert not same(nets[0], Trainer(PROBLEM, OBJECTIVES["softmax"], 4, 1).net.state_dict())


@pytest.mark.parametrize("name", ["softmax", "dirichlet"])
def test_a_training_that_was_killed_goes_on_to_the_same_weights(name, cache, monkeypatch):
    problem = TrainingImages(TRAIN.pixels.repeat(3, 1, 1, 1), TRAIN.labels.repeat(3))
    whole = get_model(problem, OBJECTIVES[name], 0, 3)
    for file in cache.iterdir():
        file.unlink()

    class KilledError(Exception):
        pass

    def kill(done, _):
        if done == 4:
            raise KilledError

    monkeypatch.setattr(storage, "SAVE_SECONDS", -1.0)
    with pytest.raises(KilledError):
        get_model(problem, OBJECTIVES[name], 0, 3, report=kill)
    assert sorted(file.suffix for file in cache.iterdir()) == [".before", ".checkpoint"]
    seen = []
    again = get_model(problem, OBJECTIVES[name], 0, 3, report=lambda done, _: seen.append(done))
    assert seen == [4, 5, 6]
    assert same(again.net.state_dict(), whole.net.state_dict())
    assert again.offset == whole.offset
    assert [file.suffix for file in cache.iterdir()] == [".safetensors"]


def test_a_model_of_the_cache_is_not_trained_again_and_a_damaged_one_is(cache):
    first = get_model(PROBLEM, OBJECTIVES["softmax"], 0, 2)
    seen = []
    second = get_model(PROBLEM, OBJECTIVES["softmax"], 0, 2, report=lambda done, _: seen.append(done))
    assert seen == []
    assert same(first.net.state_dict(), second.net.state_dict())
    (file,) = cache.iterdir()
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.warns(UserWarning, match="is damaged"):
        third = get_model(PROBLEM, OBJECTIVES["softmax"], 0, 2, report=lambda done, _: seen.append(done))
    assert seen == [1, 2]
    assert same(first.net.state_dict(), third.net.state_dict())


@pytest.mark.parametrize(("owner", "name"), [(classifiers, "VERSION"), (SDP, "version")])
def test_another_version_is_trained_again(owner, name, cache, monkeypatch):
    get_model(PROBLEM, OBJECTIVES["pairwise_gaussian"], 0, 1)
    monkeypatch.setattr(owner, name, 2)
    seen = []
    get_model(PROBLEM, OBJECTIVES["pairwise_gaussian"], 0, 1, report=lambda done, _: seen.append(done))
    assert seen == [1]


def test_a_cache_that_cannot_be_written_is_found_out_at_once(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("SDP_BENCH_CACHE", str(blocked))
    with pytest.raises(RunFailedError, match="SDP_BENCH_CACHE"):
        get_model(PROBLEM, OBJECTIVES["softmax"], 0, 1)


# Scores -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained():
    models = {}
    for name, objective in OBJECTIVES.items():
        trainer = Trainer(PROBLEM, objective, 0, 20)
        list(trainer.run())
        models[name] = trainer.model
    return models


@pytest.mark.rounding
@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_score_of_the_tables_is_finite_and_the_same_again(name, trained):
    first, second = (
        evaluate(trained[name], OBJECTIVES[name], SCORES[name], PROBLEM, DIGITS.pixels) for _ in range(2)
    )
    assert first.uncertainty.keys() == {(s, reading) for s in SCORES[name] for reading in READINGS[s]}
    assert torch.equal(first.predicted, second.predicted)
    for key, values in first.uncertainty.items():
        assert values.shape == (40,)
        assert values.dtype == torch.float64
        assert values.isfinite().all()
        assert torch.equal(values, second.uncertainty[key])
    assert (first.predicted == DIGITS.labels).double().mean() > 0.5


@pytest.mark.rounding
def test_a_linear_net_has_the_scores_of_its_exact_laws():
    """Scores of A x + b have covariance .01 A A^T, and Cauchy scales .1 |A| 1."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)).eval()
    model = Model(net, 1e-3, 2e-3)
    scored = evaluate(model, OBJECTIVES["softmax"], SCORES["softmax"], PROBLEM, DIGITS.pixels)
    weight, bias = net[1].weight.detach().double(), net[1].bias.detach().double()
    location = DIGITS.pixels.flatten(1).double() / 255 @ weight.T + bias
    gaussian = sr.Gaussian(location, (0.01 * weight @ weight.T).expand(40, -1, -1))
    cauchy = sr.Cauchy(location, (0.1 * weight.abs().sum(1)).expand(40, -1))
    expected = {
        ("softmax_entropy", ""): losses.softmax_entropy(location),
        ("dirichlet", "mean"): losses.softmax_entropy(location),
    }
    for combine in ("mean", "geometric", "minimum"):
        expected["pairwise_gaussian", combine] = losses.entropy(losses.pairwise_scores(gaussian, combine))
        expected["pairwise_cauchy", combine] = losses.entropy(losses.pairwise_scores(cauchy, combine))
    for key, values in expected.items():
        torch.testing.assert_close(scored.uncertainty[key], values, atol=1e-5, rtol=1e-5)
    total = 1e-4 + 1e-3 + 2e-3 * (location.softmax(1).square() @ gaussian.variance[0]).sqrt()
    torch.testing.assert_close(
        scored.uncertainty["dirichlet", "concentration"], total.log(), atol=1e-4, rtol=1e-4
    )
    law = torch.distributions.Dirichlet(location.softmax(1) / total[:, None])
    torch.testing.assert_close(scored.uncertainty["dirichlet", "law"], law.entropy(), atol=1e-2, rtol=1e-4)
    assert torch.equal(scored.predicted, location.argmax(1))
    alone = losses.OrthonormalCertificates.fit(TRAIN.pixels.flatten(1).float() / 255, 64)
    everything = alone.score(DIGITS.pixels.flatten(1).float() / 255)
    torch.testing.assert_close(
        scored.uncertainty["orthonormal_certificates", str(CERTIFICATES[-1])].float(), everything
    )


def test_fewer_certificates_are_those_that_would_be_fitted_alone(trained):
    model = trained["softmax"]
    many = TrainingImages(images(600, seed=5).pixels, images(600, seed=5).labels)
    names = ("orthonormal_certificates",)
    scored = evaluate(model, OBJECTIVES["softmax"], names, many, DIGITS.pixels)
    with torch.no_grad():
        known, asked = (model.net[:-1](x.float() / 255) for x in (many.pixels, DIGITS.pixels))
    alone = losses.OrthonormalCertificates.fit(known, 100).score(asked)
    torch.testing.assert_close(scored.uncertainty[names[0], "100"].float(), alone, atol=1e-6, rtol=1e-3)


@pytest.mark.rounding
def test_moment_matching_goes_on_where_it_was_trained_with(trained):
    """Diagonal laws at sigma .01, and the class of the propagated mean."""
    objective = OBJECTIVES["dirichlet"]
    model = trained["dirichlet"]
    scored = evaluate(model, objective, ("pairwise_gaussian",), PROBLEM, DIGITS.pixels)
    pixels = DIGITS.pixels.float() / 255
    law = sr.propagate(
        model.net,
        sr.DiagonalGaussian(pixels, torch.full_like(pixels, 1e-4)),
        "marginal_moment_matching",
    ).to(torch.float64)
    expected = losses.entropy(losses.pairwise_scores(law, "minimum"))
    torch.testing.assert_close(scored.uncertainty["pairwise_gaussian", "minimum"], expected)
    assert torch.equal(scored.predicted, law.mean.argmax(1))


@pytest.mark.rounding
def test_cauchy_pairs_of_moment_matching_have_the_scales_of_marginal_sdp_or_its_deviations(trained):
    model = trained["dirichlet"]
    scored = evaluate(model, OBJECTIVES["dirichlet"], ("pairwise_cauchy",), PROBLEM, DIGITS.pixels)
    pixels = DIGITS.pixels.float() / 255
    noisy = sr.Cauchy(pixels, torch.full_like(pixels, 1e-2))
    normal = sr.DiagonalGaussian(pixels, torch.full_like(pixels, 1e-4))
    cauchy = sr.propagate(model.net, noisy, "marginal_sdp").to(torch.float64)
    gaussian = sr.propagate(model.net, normal, "marginal_moment_matching").to(torch.float64)
    borrowed = sr.Cauchy(gaussian.location, gaussian.variance.sqrt())
    for combine in ("mean", "geometric", "minimum"):
        for reading, law in ((combine, cauchy), (f"sd_{combine}", borrowed)):
            expected = losses.entropy(losses.pairwise_scores(law, combine))
            torch.testing.assert_close(scored.uncertainty["pairwise_cauchy", reading], expected)


@pytest.mark.rounding
@pytest.mark.parametrize(
    ("name", "rule"),
    [("pairwise_gaussian", "sdp"), ("pairwise_marginal", "marginal_sdp"), ("pairwise_cauchy", "sdp")],
)
def test_both_kinds_of_pairs_have_laws_of_their_own_whichever_was_trained_with(name, rule, trained):
    """Gaussian pairs see Gaussian noise of standard deviation .1, Cauchy pairs Cauchy noise of scale .1."""
    model = trained[name]
    scored = evaluate(model, OBJECTIVES[name], SCORES[name], PROBLEM, DIGITS.pixels)
    pixels = DIGITS.pixels.float() / 255
    for score, noisy in (
        ("pairwise_gaussian", sr.DiagonalGaussian(pixels, torch.full_like(pixels, 0.01))),
        ("pairwise_cauchy", sr.Cauchy(pixels, torch.full_like(pixels, 0.1))),
    ):
        law = sr.propagate(model.net, noisy, rule).to(torch.float64)
        expected = losses.entropy(losses.pairwise_scores(law, "mean"))
        torch.testing.assert_close(scored.uncertainty[score, "mean"], expected)
    location = model.net(pixels).detach().double()
    torch.testing.assert_close(
        scored.uncertainty["softmax_entropy", ""], losses.softmax_entropy(location), atol=1e-6, rtol=1e-5
    )
    assert torch.equal(scored.predicted, location.argmax(1))


def test_cauchy_pairs_are_trained_by_the_law_of_cauchy_noise():
    """Of A x + b under Cauchy noise of scale .1 the scales are .1 |A| 1."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    pixels = DIGITS.pixels.float() / 255
    scores, loss = OBJECTIVES["pairwise_cauchy"].assess(net, pixels, DIGITS.labels, (0.0, 0.0))
    scale = (0.1 * net[1].weight.abs().sum(1)).expand(40, -1)
    torch.testing.assert_close(scores, net(pixels))
    torch.testing.assert_close(
        loss, losses.pairwise_loss(sr.Cauchy(net(pixels), scale), DIGITS.labels, "none")
    )


# The experiment ---------------------------------------------------------------------------------------


def groups_of(settings):
    return EXPERIMENT.expand(Scope(settings)).groups


def test_groups_are_objectives_by_seeds_known_by_their_images_and_epochs(made_up):
    settings = SMALL.but(sizes={"selective": Size(nets=2, epochs=1)})
    groups = groups_of(settings)
    assert [(g.units[0].objective, g.units[0].sigma, g.units[0].seed) for g in groups] == [
        *((name, None, seed) for name in OBJECTIVES for seed in range(2)),
        *(("dirichlet", scale, seed) for scale in (1e-3, 0.1, 1.0) for seed in range(2)),
    ]
    assert len({g.units[0].key for g in groups}) == len({g.title for g in groups}) == 16
    assert all(g.seconds > 0 for g in groups)
    keys = {g.units[0].key for g in groups}
    for other in (
        settings.but(sizes={"selective": Size(nets=2, epochs=2)}),
        settings.but(sizes={"selective": Size(nets=2, epochs=1, samples=20)}),
    ):
        assert keys.isdisjoint(g.units[0].key for g in groups_of(other))
    assert "letters ABCDEFGHIJKLMNOPQRS" in groups[0].units[0].design
    assert "1 epochs" in groups[0].units[0].design
    for group in groups:
        (unit,) = group.units
        assert unit.sigma is None or f"at sigma {unit.sigma:g}," in unit.design


def test_groups_travel_to_workers(made_up):
    for group in groups_of(SMALL):
        again = pickle.loads(pickle.dumps(group))
        assert (again.title, again.cells) == (group.title, group.cells)
        assert again.versions_of("dirichlet", "rcauc") == group.versions


def test_versions_are_those_of_the_experiment_the_training_and_the_rule(made_up, monkeypatch):
    def versions():
        return {group.units[0].objective: group.versions for group in groups_of(SMALL)}

    before = versions()
    assert before["softmax"] == "method 1, training 1"
    assert before["pairwise_gaussian"] == "method 1, training 1, rule 1"
    monkeypatch.setattr(SDP, "version", 2)
    after = versions()
    assert {name for name in before if before[name] != after[name]} == {
        "pairwise_gaussian",
        "pairwise_cauchy",
    }
    monkeypatch.setattr(type(EXPERIMENT), "version", 2)
    assert all(text.startswith("method 2, training 1") for text in versions().values())


@pytest.mark.parametrize(
    "change", [{"rule": MarginalSDP()}, {"sigma": 0.2}, {"learning_rate": 1e-4}, {"noise": CAUCHY}]
)
def test_what_an_objective_is_changes_its_own_units_alone(change, made_up, monkeypatch):
    def units():
        return {
            (group.units[0].objective, group.units[0].sigma): group.units[0].key for group in groups_of(SMALL)
        }

    before = units()
    other = dataclasses.replace(OBJECTIVES["pairwise_gaussian"], **change)
    monkeypatch.setitem(OBJECTIVES, "pairwise_gaussian", other)
    after = units()
    assert {key for key in before if before[key] != after[key]} == {("pairwise_gaussian", None)}


def test_the_paper_s_numbers_of_seeds_and_epochs(made_up):
    groups = groups_of(Settings())
    assert len(groups) == 80
    assert {g.epochs for g in groups} == {100}


@pytest.mark.parametrize("place", range(len(models())))
def test_a_group_gives_all_that_it_wants(place, made_up, cache):
    group = groups_of(SMALL)[place]
    result = run.run_group(group, group.cells)
    assert result.failures == []
    first = {(r.rule, r.metric) for r in result.records}
    assert {(rule, metric) for _, rule, metric in group.cells} == first
    for score in SCORES[group.units[0].objective]:
        values = {(r.metric, r.component or ""): r.value for r in result.records if r.rule == score}
        assert [k for k in values if k[0] == "rcauc"] == [("rcauc", each) for each in READINGS[score]]
        risk = np.array([values["risk", point] for point in POINTS])
        assert risk[0] == 0
        assert (np.diff(risk) >= -1e-12).all()
        accuracy = values["accuracy", ""]
        assert risk[-1] == pytest.approx(1 - accuracy / 2)
        area = values["rcauc", READINGS[score][0]]
        assert np.trapezoid(risk, dx=0.01) == pytest.approx(area, abs=2e-3)
        assert area >= 0.125
    assert {r.unit_of_measure for r in result.records} == {"1"}
    assert "" not in {r.component for r in result.records}  # what has one number has no name for it


def test_only_what_is_wanted_is_measured(made_up, cache):
    group = groups_of(SMALL)[2]
    (unit,) = group.units
    done = frozenset((unit.key, "pairwise_cauchy", metric) for metric in METRICS)
    result = run.run_group(group, group.left(done))
    assert {r.rule for r in result.records} == {"softmax_entropy", "pairwise_gaussian"}


def test_a_set_that_is_gone_is_a_failure_of_the_group(made_up, cache, monkeypatch):
    group = groups_of(SMALL)[0]

    def gone(*_):
        raise DataMissingError("EMNIST letters is not there")

    monkeypatch.setattr(ImageClassification, "load", gone)
    result = run.run_group(group, group.cells)
    assert result.records == []
    assert {f.rule for f in result.failures} == set(SCORES["softmax"])
    assert {f.error for f in result.failures} == {"EMNIST letters is not there"}
