import dataclasses
import functools
import json
import math
import pickle
import shutil
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import sdp_ref
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments import experiments
from sdp_bench.bench.experiments.law_group import LawGroup
from sdp_bench.bench.experiments.predict import predict
from sdp_bench.bench.identity import OracleKey
from sdp_bench.bench.nets.architectures import Architecture
from sdp_bench.bench.nets.fully_connected import get_nets
from sdp_bench.bench.nets.recipes import Recipe
from sdp_bench.bench.noise import CAUCHY, GAUSSIAN, from_plain, noise_of, noise_of_law, to_plain
from sdp_bench.bench.replay.replay import stored_measurement
from sdp_bench.bench.results.columns import MEASURED, UNSUPPORTED
from sdp_bench.bench.results.folder import read
from sdp_bench.bench.rules import rule_of
from sdp_bench.bench.settings import Settings, Size
from sdp_bench.oracles.sampling.outputs import sample_outputs
from tests.bench.conftest import TINY, make_plan, run_all, statuses


@pytest.fixture
def net():
    architecture = Architecture(1, "relu", 8)
    return next(iter(get_nets(architecture, Recipe(epochs=100), [0])))


def test_keys_of_gaussian_subjects_are_what_they_were(net):
    """Stored results rest on these numbers; a change of them must be a decision."""
    x = torch.tensor([5.1, 3.5, 1.4, 0.2])

    def key_under(noise):
        group = LawGroup.of(net, noise, 0.1, [0], x[None], 2048, Settings().but(sampler="mc"))
        return dataclasses.replace(group.keys[0], net="net")

    key = key_under(GAUSSIAN)
    assert key == OracleKey("net", "2778a119ca7baf49", "gaussian:sigma=0.1", "mc", 2048)
    assert key.hex == "fee29b9ae3ffe5e2"
    heavy = key_under(CAUCHY)
    assert heavy == dataclasses.replace(key, noise="cauchy:gamma=0.1")
    assert heavy.hex == "ce7f0cf60de943ae"


def test_experiments_with_other_noise_have_separate_groups_and_oracles():
    settings = TINY.but(sigmas=(1.0,), rules=("sdp",), sizes=dict.fromkeys(experiments(), Size(1, 1)))
    plan = make_plan(settings, ("iris-tv", "iris-std", "iris-cauchy"))
    assert [group.noise for group in plan.groups.values()] == [GAUSSIAN, CAUCHY]
    gaussian, cauchy = plan.groups.values()
    assert isinstance(gaussian.law, sdp_ref.DiagonalGaussian)
    assert isinstance(cauchy.law, sdp_ref.Cauchy)
    assert cauchy.title.endswith("Cauchy noise 1")
    assert gaussian.title.endswith("sigma 1")
    assert gaussian.inputs[0].row == cauchy.inputs[0].row
    assert gaussian.keys[0] != cauchy.keys[0]


def test_rules_without_a_formula_for_the_noise_have_rows_with_the_reason(tmp_path):
    settings = TINY.but(rules=("sdp", "dvia", "oracle_moments"), nets=1, inputs=1, sigmas=(1.0,))
    plan = make_plan(settings, ("iris-tv", "iris-cauchy"))
    run_all(tmp_path / "r", plan, settings=settings)
    rows = statuses(tmp_path / "r")
    rules = rows.groupby(["noise", "status"])["rule"].agg(set)
    assert rules["gaussian", MEASURED] == {"sdp", "dvia", "oracle_moments"}
    assert rules["cauchy", MEASURED] == {"sdp"}
    assert rules["cauchy", UNSUPPORTED] == {"dvia", "oracle_moments"}
    assert ("gaussian", UNSUPPORTED) not in rules
    reasons = rows[rows["status"] == UNSUPPORTED].groupby("rule")["reason"].agg(set)
    assert all("'dvia' does not support Cauchy input" in reason for reason in reasons["dvia"])
    assert all("moments are infinite" in reason for reason in reasons["oracle_moments"])


COVARIANCE = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 0.5]])
RESIDUALS = np.array([[1.0, 0.0, 2.0], [0.0, -1.0, 1.0], [3.0, 1.0, 0.0], [-1.0, 0.5, 0.5]])
WRITTEN = (
    *("laplace", "uniform", "triangular", "student_t:10", "mixture:0.9*1+0.1*5", "scales:0.1/0.2/3"),
    *("uniform:0.3", "uniform:0.5/1/2", "triangular:0.5/1/2"),
    *("split_normal:+0.2-0.1", "split_normal:+0.2-0.1/+1-3/+0-2"),
)
SAMPLES = 2**16


def filled(kind):
    return noise_of(f"{kind}:x.npy", {"covariance": COVARIANCE, "residuals": RESIDUALS}[kind])


EVERY = {**{text: noise_of(text) for text in WRITTEN}, **{k: filled(k) for k in ("covariance", "residuals")}}


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("gaussian", "gaussian:sigma=0.1"),
        ("cauchy", "cauchy:gamma=0.1"),
        ("stable:1.5", "stable:alpha=1.5,gamma=0.1"),
        ("laplace", "laplace:sigma=0.1"),
        ("uniform", "uniform:sigma=0.1"),
        ("student_t:5", "student_t:df=5.0,sigma=0.1"),
        ("student_t:2", "student_t:df=2.0,gamma=0.1"),
        ("mixture:0.9*1+1e-1*5e+0", "mixture:0.9*1.0+0.1*5.0,sigma=0.1"),
        ("scales:0.1/0.20/3", "scales:0.1/0.2/3.0,sigma=0.1"),
        ("triangular", "triangular:sigma=0.1"),
        ("uniform:.5", "uniform:0.5,sigma=0.1"),
        ("triangular:0.5/1/0", "triangular:0.5/1.0/0.0,sigma=0.1"),
        ("split_normal:+0.2-1e-1", "split_normal:+0.2-0.1,sigma=0.1"),
        ("split_normal:+2E-1-.1/+1-0", "split_normal:+0.2-0.1/+1.0-0.0,sigma=0.1"),
    ],
)
def test_labels_are_words_for_ever(text, label):
    """Keys, and so seeds and stored results, rest on these words; a change must be a decision."""
    assert noise_of(text).label(0.1) == label
    assert noise_of(noise_of(text).text) == noise_of(text)


def test_labels_of_files_go_by_their_contents(tmp_path):
    """Stored results rest on these digests, too."""
    assert filled("covariance").label(0.1) == "covariance:85a6312d3a33ab4c,sigma=0.1"
    assert filled("residuals").label(0.1) == "residuals:5dc398d96a50ef8f,sigma=0.1"
    (tmp_path / "far").mkdir()
    for name in ("c.npy", "far/d.npy"):
        np.save(tmp_path / name, COVARIANCE)
    assert noise_of(f"covariance:{tmp_path}/c.npy") == noise_of(f"covariance:{tmp_path}/far/d.npy")
    assert noise_of(f"covariance:{tmp_path}/far/d.npy").text == "covariance:d.npy"
    np.save(tmp_path / "c.npy", COVARIANCE * 2)
    assert noise_of(f"covariance:{tmp_path}/c.npy") != filled("covariance")
    np.save(tmp_path / "s.npy", np.array([0.1, 0.2, 3.0]))
    assert noise_of(f"scales:{tmp_path}/s.npy") == noise_of("scales:0.1/0.2/3")
    assert noise_of("residuals:r.npy", np.ones((2, 3))) != noise_of("residuals:r.npy", np.ones((3, 2)))


def test_what_is_stored_is_the_same_noise_without_its_file():
    for family in (*EVERY.values(), GAUSSIAN, noise_of("stable:1.5")):
        again = from_plain(json.loads(json.dumps(to_plain(family))))
        for same in (again, pickle.loads(pickle.dumps(family))):
            assert same == family
            assert (same.text, same.name) == (family.text, family.name)
            law = family.law(torch.zeros(2, 3), 0.5)
            other = same.law(torch.zeros(2, 3), 0.5)
            for item in dataclasses.fields(law):
                a, b = getattr(law, item.name), getattr(other, item.name)
                assert torch.equal(a, b) if isinstance(a, torch.Tensor) else type(a) is type(b)
    settings = Settings().but(noise=filled("residuals"))
    assert Settings.from_dict(json.loads(json.dumps(settings.as_dict()))).design == settings.design
    assert "noise" not in Settings().as_dict()["design"]  # as it was before there was such a setting


@pytest.mark.parametrize(
    "plain",
    [
        {"text": "covariance:c.npy", "values": None},
        {"text": "covariance:c.npy", "values": "no"},
        {"text": "covariance:c.npy", "values": 3},
        {"text": "residuals:c.npy", "values": to_plain(EVERY["scales:0.1/0.2/3"])["values"]},
        {"text": None},
        {},
    ],
)
def test_noise_that_was_stored_otherwise_is_refused(plain):
    with pytest.raises(UserError):
        from_plain(plain)


def test_the_scale_is_a_standard_deviation_where_there_is_one():
    assert {noise.parameter for noise in EVERY.values()} == {"sigma"}
    for text in ("cauchy", "stable:1.5", "student_t:2"):
        noise = noise_of(text)
        assert noise.parameter == "gamma"
        assert not hasattr(noise.example, "variance")


# Standard deviation and kurtosis by hand, of a component at scale 1.
_MIXED = 0.9 + 0.1 * 25
EXACT = {
    "laplace": (1.0, 6.0),
    "uniform": (1.0, 1.8),
    "student_t:10": (1.0, 4.0),
    "mixture:0.9*1+0.1*5": (1.0, 3 * (0.9 + 0.1 * 625) / _MIXED**2),
    "scales:0.1/0.2/3": (np.array([0.1, 0.2, 3.0]), 3.0),
    "covariance": (np.sqrt(np.diag(COVARIANCE)), 3.0),
    # A half-width a has the variance a^2 / 3 (uniform) or a^2 / 6 (triangular), after the GUM, 4.3.
    "triangular": (1.0, 2.4),
    "uniform:0.3": (0.3 / math.sqrt(3), 1.8),
    "uniform:0.5/1/2": (np.array([0.5, 1.0, 2.0]) / math.sqrt(3), 1.8),
    "triangular:0.5/1/2": (np.array([0.5, 1.0, 2.0]) / math.sqrt(6), 2.4),
}


@functools.cache
def drawn(text, sampler="mc"):
    """Of the noise around (1, 2, 3) at scale 0.5, less that and in its units."""
    law = EVERY[text].law(torch.tensor([[1.0, 2.0, 3.0]]), 0.5)
    samples = sample_outputs(nn.Flatten(), law.to(torch.float64), SAMPLES, seed=3, sampler=sampler)
    return (samples.numpy() - [1, 2, 3]) / 0.5


def within(values, exact, factor=5.0):
    """Whether the mean of values is that, within some of its standard errors."""
    error = values.std(0) / math.sqrt(len(values))
    return bool((np.abs(values.mean(0) - exact) <= factor * error + 1e-12).all())


@pytest.mark.parametrize("text", EXACT)
def test_oracles_draw_the_moments_of_a_family(text):
    draws, (deviation, kurtosis) = drawn(text), EXACT[text]
    assert within(draws, 0.0)
    assert within(draws**2, np.square(deviation) * np.ones(3))
    assert within(draws**4, kurtosis * np.power(deviation, 4) * np.ones(3))
    correlated = COVARIANCE[0, 1] if text == "covariance" else 0.0
    assert within(draws[:, 0] * draws[:, 1], correlated)


@pytest.mark.parametrize(
    ("text", "sides"),
    [
        ("split_normal:+0.2-0.1", [(0.2, 0.1)] * 3),
        ("split_normal:+0.2-0.1/+1-3/+0-2", [(0.2, 0.1), (1, 3), (0, 2)]),
    ],
)
def test_split_normal_noise_has_its_mode_at_the_input_and_its_mean_elsewhere(text, sides):
    """A part above / (above + below) is above the input, and each side has the moments of half a normal."""
    draws, (above, below) = drawn(text), np.transpose(sides)
    width = above + below
    assert within(draws > 0, above / width)
    assert within(np.maximum(draws, 0) ** 2, above**3 / width)
    assert within(np.minimum(draws, 0) ** 2, below**3 / width)
    law = noise_of(text).law(torch.tensor([[1.0, 2.0, 3.0]]), 0.5)
    mean = math.sqrt(2 / math.pi) * (above - below)
    np.testing.assert_allclose(law.mean[0], [1, 2, 3] + 0.5 * mean, rtol=1e-6)
    assert within(draws, mean)
    assert "linearise at the mean of the noisy input" in noise_of(text).note


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("split_normal:0.2/0.1", r"'0.2' must be the standard deviations above and below, as \+0.2-0.1"),
        ("split_normal:+0.2", r"'\+0.2' must be the standard deviations above and below"),
        ("split_normal:+1--1", "standard deviations must be >= 0, the smallest is -1"),
        ("split_normal:+1-x", "the one below must be a number, got 'x'"),
        ("split_normal", "write one of"),
        ("uniform:-1", "half-widths must be >= 0, the smallest is -1"),
        ("triangular:a", "a half-width must be a number, got 'a'"),
        ("uniform:0", "some number must not be 0"),
        ("triangular:inf", "NaN or infinite"),
    ],
)
def test_asymmetric_errors_and_half_widths_that_are_wrong_are_refused_in_one_line(text, message):
    with pytest.raises(UserError, match=message) as caught:
        noise_of(text)
    assert "\n" not in str(caught.value)


def test_half_widths_and_asymmetric_errors_fit_their_inputs_and_come_from_files(tmp_path):
    noise_of("uniform:0.5").check((7,), (1.0,), "sobol")
    with pytest.raises(UserError, match=r"for inputs of shape \(3,\), the net takes \(2,\)"):
        noise_of("split_normal:+1-1/+2-1/+1-3").check((2,), (1.0,), "mc")
    (tmp_path / "a.csv").write_text("a,b\n0.5,1\n2,0\n")
    rows = noise_of(f"triangular:{tmp_path}/a.csv")
    scales = rows.law(torch.zeros(2, 2), 2.0, [1, 0]).scale
    torch.testing.assert_close(scales, torch.tensor([[4.0, 0.0], [1.0, 2.0]]))
    sides = noise_of(f"split_normal:{tmp_path}/a.csv").law(torch.zeros(3, 2), 2.0)
    torch.testing.assert_close(sides.above, torch.tensor([[1.0, 2.0]]).expand(3, 2))
    torch.testing.assert_close(sides.below, torch.tensor([[4.0, 0.0]]).expand(3, 2))
    with pytest.raises(UserError, match="two rows, the deviations above and those below"):
        noise_of("split_normal:x.npy", np.ones((3, 2)))


def test_a_mixture_chooses_one_scale_for_all_components():
    """E x²y² over E x² E y² is a third of the kurtosis."""
    squares = drawn("mixture:0.9*1+0.1*5") ** 2
    assert within(squares[:, 0] * squares[:, 1], EXACT["mixture:0.9*1+0.1*5"][1] / 3)


def test_residuals_are_drawn_as_they_are():
    points, counts = np.unique(drawn("residuals").round(9), axis=0, return_counts=True)
    assert np.allclose(points, np.unique(RESIDUALS, axis=0))
    assert (np.abs(counts / SAMPLES - 0.25) <= 5 * math.sqrt(0.25 * 0.75 / SAMPLES)).all()


@pytest.mark.parametrize("text", EVERY)
def test_sobol_points_have_the_law_that_plain_draws_have(text):
    plain, points = drawn(text), drawn(text, "sobol")
    for power in (1, 2, 3):
        assert within(plain**power, (points**power).mean(0))


def test_images_have_scales_covariances_and_residuals_of_their_shape():
    images = torch.rand(2, 1, 2, 2)
    scales = noise_of("scales:s.npy", np.arange(1.0, 5.0).reshape(1, 2, 2)).law(images, 2.0)
    assert torch.equal(scales.variance[1], 4 * torch.arange(1.0, 5.0).square().reshape(1, 2, 2))
    covariance = noise_of("covariance:c.npy", np.eye(4)).law(images, 2.0)
    assert torch.equal(covariance.covariance[1], 4 * torch.eye(4))
    residuals = noise_of("residuals:r.npy", np.ones((3, 1, 2, 2))).law(images, 2.0)
    assert torch.equal(residuals.samples, (images + 2).unsqueeze(1).expand(-1, 3, -1, -1, -1))


def test_numbers_for_each_feature_of_a_sequence_are_an_error_with_the_line_to_write():
    noise = noise_of("scales:1/2/3")
    with pytest.raises(UserError, match=r"takes \(20, 3\); repeat .*broadcast_to\(NUMBERS, \(20, 3\)\)"):
        noise.check((20, 3), (1.0,), "mc", 1)
    repeated = noise_of("scales:noise.npy", np.broadcast_to([1.0, 2.0, 3.0], (20, 3)))
    repeated.check((20, 3), (1.0,), "mc", 1)
    assert repeated.law(torch.zeros(1, 20, 3), 2.0).variance[0, 7].tolist() == [4.0, 16.0, 36.0]
    with pytest.raises(UserError, match=r"takes \(3, 20\)$"):
        noise.check((3, 20), (1.0,), "mc", 1)


def test_only_noise_with_numbers_notes_that_its_scale_is_a_factor():
    assert noise_of("scales:1/2").scale_notes == [
        "σ is a factor of the noise scales:1/2, not a standard deviation"
    ]
    assert GAUSSIAN.scale_notes == noise_of("laplace").scale_notes == []


def small(**options):
    sizes = dict.fromkeys(("iris-tv", "iris-std", "iris-noise", "iris-cauchy"), Size(1, 1))
    return TINY.but(**{"sizes": sizes, "sigmas": (0.5,), "rules": ("sdp",), **options})


def test_rules_that_take_moments_note_it_once_for_all_inputs():
    key = OracleKey("", "", "", "mc", 100)
    noise = EVERY["laplace"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predict(rule_of("moment_matching"), nn.Linear(3, 2), noise.law(torch.zeros(1, 3), 1.0), [key])
        plan = make_plan(small(noise="laplace"), ("iris-tv",))
    assert {group.note for group in plan.groups.values()} == {
        "Laplace noise: rules of moments take it for the Gaussian with its mean and covariance"
    }
    assert GAUSSIAN.note == noise_of("cauchy").note == EVERY["covariance"].note == ""


def test_an_experiment_on_moments_is_refused_under_noise_without_them():
    with pytest.raises(UserError, match="a finite variance is needed"):
        make_plan(small(noise="cauchy"), ("iris-std",))


def test_a_stored_run_is_replayed_when_the_file_of_its_noise_is_gone(tmp_path):
    np.save(tmp_path / "c.npy", np.diag([1.0, 2.0, 3.0, 4.0]))
    settings = small(noise=f"covariance:{tmp_path}/c.npy")
    frame = run_all(tmp_path / "r", make_plan(settings, ("iris-tv",)), settings=settings)
    (tmp_path / "c.npy").unlink()
    stored = read(shutil.copytree(tmp_path / "r", tmp_path / "elsewhere"))
    text = json.dumps(stored.run().settings)
    row = frame[(frame["rule"] == "sdp") & (frame["metric"] == "tv_headline")].iloc[0]
    made = stored_measurement(stored, row["key"])
    assert str(tmp_path) not in text
    assert torch.allclose(made.oracle.law.variance, 0.25 * torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
    law = made.prediction(made.oracle)[0].law
    assert torch.isfinite(law.covariance).all()
    assert made.oracle.key.hex == row["unit"]


def test_scales_of_a_csv_file_belong_to_all_inputs_or_to_each_of_them(tmp_path):
    single, many = tmp_path / "one.csv", tmp_path / "many.csv"
    single.write_text("a,b,c\n0.1,0.2,3\n")
    many.write_text("0.1,0.2,3\n1,2,0\n")
    assert noise_of(f"scales:{single}") == noise_of("scales:0.1/0.2/3")
    family = noise_of(f"scales:{many}")
    family.check((3,), (1.0,), "mc", 2)
    variance = family.law(torch.zeros(2, 3), 2.0, [1, 0]).variance
    torch.testing.assert_close(variance, torch.tensor([[4.0, 16.0, 0.0], [0.04, 0.16, 36.0]]))
    assert from_plain(json.loads(json.dumps(to_plain(family)))) == family
    for inputs in (3, None):
        with pytest.raises(UserError, match="2 rows of scales"):
            family.check((3,), (1.0,), "mc", inputs)


def test_a_law_around_zero_is_noise():
    x, zeros = torch.tensor([[0.5, -1.0]], dtype=torch.float64), torch.zeros(1, 2)
    covariance = torch.tensor([[[2.0, 0.5], [0.5, 1.0]]])
    law = noise_of_law(sdp_ref.Gaussian(zeros, covariance)).law(x, 1.0)
    torch.testing.assert_close(law.covariance, covariance.double())
    torch.testing.assert_close(law.mean, x)
    law = noise_of_law(sdp_ref.DiagonalGaussian(zeros, torch.tensor([[4.0, 9.0]]))).law(x, 0.5)
    torch.testing.assert_close(law.variance, torch.tensor([[1.0, 2.25]], dtype=torch.float64))
    law = noise_of_law(sdp_ref.Empirical(torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]]))).law(x, 1.0)
    torch.testing.assert_close(law.variance, torch.tensor([[1.0, 0.0]], dtype=torch.float64))


@pytest.mark.parametrize(
    ("law", "message"),
    [
        (sdp_ref.DiagonalGaussian(torch.ones(1, 2), torch.ones(1, 2)), "one row and mean 0"),
        (sdp_ref.DiagonalGaussian(torch.zeros(2, 2), torch.ones(2, 2)), "got 2 row"),
        (sdp_ref.Empirical(torch.tensor([[[1.0], [-1.0]]]), torch.tensor([[0.5, 0.5]])), "with weights"),
        (
            sdp_ref.LocationScale(torch.zeros(1, 2), torch.ones(1, 2), sdp_ref.laws.Shape("laplace")),
            "a LocationScale law cannot be noise",
        ),
    ],
)
def test_other_laws_are_no_noise(law, message):
    with pytest.raises(UserError, match=message):
        noise_of_law(law)
