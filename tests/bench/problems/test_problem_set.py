"""The frozen problem set: it is what it was, spans what decides, and each truth is admitted."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.problems import making, verifying
from sdp_bench.bench.problems.exporting import CLIPPED, export
from sdp_bench.bench.problems.making import Ask, admitted, draft, refusals, write
from sdp_bench.bench.problems.problem_set import (
    DIGESTS,
    NAME,
    Floor,
    digest_of,
    folder_of,
    problem_set,
    read,
)
from sdp_bench.bench.settings import Settings

DIGEST = "f87a74f44e17deb1dd69bcadc4d2ef31ce3ba2e0758601b27af7c60b5c18a546"
"""Of sdp-bench-1, for ever. If this test fails, the change belongs into sdp-bench-2."""


@pytest.fixture(scope="module")
def problems():
    return problem_set()


def first(problems):
    """A truth and its floor."""
    place = problems.places[0]
    return problems.truths[place.keys[0]], place.floors[0]


def test_the_set_is_what_it_was():
    assert DIGESTS[NAME] == DIGEST
    assert digest_of(folder_of(NAME)) == DIGEST


@pytest.mark.parametrize("name", ["problems.json", "oracles.json", "inputs.safetensors"])
def test_a_file_that_was_changed_is_refused(name, tmp_path):
    copy = shutil.copytree(folder_of(NAME), tmp_path / "set")
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(UserError, match="not the one of its name"):
        read(copy, DIGEST)


def test_it_spans_what_decides_between_rules(problems):
    assert 40 <= len(problems.problems) <= 80
    nets = [problems.nets[place.net].architecture for place in problems.places]
    iris = [net for net, place in zip(nets, problems.places, strict=True) if place.net.startswith("iris")]
    assert {net.depth for net in iris} >= {1, 4, 9}
    assert {net.activation for net in iris} == {"relu", "gelu"}
    gaussian = {place.scale for place in problems.places if place.noise == "gaussian"}
    assert min(gaussian) <= 0.1
    assert max(gaussian) >= 10
    assert {place.noise for place in problems.places} == {"gaussian", "laplace", "cauchy"}
    assert all(len(place.rows) == len(set(place.rows)) == 3 for place in problems.places)
    size = sum(path.stat().st_size for path in folder_of(NAME).rglob("*") if path.is_file())
    assert size < 4e6


def test_nets_inputs_and_noise_give_the_keys_that_are_frozen(problems):
    for place, group in zip(problems.places, problems.groups(Settings(), ("sdp",)), strict=True):
        assert tuple(subject.key.hex for subject in group.subjects) == place.keys
        assert set(place.keys) <= set(problems.truths)


def test_every_truth_is_admitted(problems):
    for place in problems.places:
        for key, floor in zip(place.keys, place.floors, strict=True):
            assert not list(refusals(problems.truths[key], floor)), place.name


@pytest.mark.parametrize("name", ["finite", "second draw", "sobol draw", "float64"])
def test_a_truth_whose_check_failed_or_was_not_made_is_refused(problems, name):
    truth, floor = first(problems)
    without = tuple(check for check in truth.checks if check.name != name)
    assert any(name in each for each in refusals(replace(truth, checks=without), floor))
    failed = tuple(replace(check, passed=check.name != name) for check in truth.checks)
    assert any(name in each for each in refusals(replace(truth, checks=failed), floor))


def test_a_check_that_passed_by_word_alone_is_refused(problems):
    truth, floor = first(problems)
    checks = tuple(
        replace(check, numbers=dict(check.numbers) | {"p": 1e-9}) if check.name == "second draw" else check
        for check in truth.checks
    )
    assert any("second draw" in each for each in refusals(replace(truth, checks=checks), floor))


@pytest.mark.parametrize(
    "floor", [Floor(0.0, 0.0), Floor(0.02, 0.04), Floor(0.02, 0.01), Floor(float("nan"), 1)]
)
def test_a_truth_without_a_small_floor_is_refused(problems, floor):
    truth, _ = first(problems)
    assert any("floor" in each for each in refusals(truth, floor))


def test_an_oracle_of_few_samples_is_not_admitted():
    asked = (Ask("iris-relu-1", "iris-relu-1x100", "gaussian", (1.0,), making.FEW_OUTPUTS, 2**11),)
    (group,) = draft(asked, "few", 16).groups(Settings(), ("sdp",))
    with pytest.raises(RunFailedError, match="floor of total variation"):
        admitted(group)


def test_a_set_is_not_written_over_another(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunFailedError, match="never changes"):
        write(draft(making.ASKED[:1]), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.rounding
def test_an_oracle_is_drawn_again_as_it_is_frozen():
    verdict = verifying.verify((1, 66))
    assert not [str(finding) for finding in verdict.findings if finding.stops]


def test_a_copy_is_the_set_and_its_models_are_the_nets(problems, tmp_path):
    pytest.importorskip("onnx")
    left_out = export(NAME, tmp_path, onnx=True)
    assert [line.partition(":")[0] for line in left_out] == ["rotations-decoder"]  # RMSNorm
    models = {path.stem for path in tmp_path.glob("nets/*.onnx")}
    assert models == set(problems.nets) - {"rotations-decoder"}
    for path in tmp_path.glob("nets/*.onnx"):
        path.unlink()
    assert digest_of(tmp_path) == DIGEST
    with pytest.raises(RunFailedError, match="not empty"):
        export(NAME, tmp_path)


def test_who_takes_a_copy_finds_the_statistics_of_heavy_tails_by_random_numbers_of_their_own(
    problems, tmp_path
):
    export(NAME, tmp_path)
    assert digest_of(tmp_path) == DIGEST
    bounds = json.loads((tmp_path / CLIPPED).read_text(encoding="utf-8"))
    heavy = [place for place in problems.places if place.heavy]
    assert [*bounds] == [name for place in heavy for name in place.problems]
    torch.manual_seed(0)
    for place in heavy:
        net, (x, *_) = problems.nets[place.net].build(), problems.inputs[place.name]
        truth = problems.truths[place.keys[0]].statistics
        noise = place.scale * torch.distributions.Cauchy(0.0, 1.0).sample((2**16, *x.shape))
        lower, upper = (torch.tensor(bounds[place.problems[0]][end]) for end in ("lower", "upper"))
        clipped = net(x + noise).detach().clamp(lower, upper).double().numpy()
        error = np.hypot(truth.mean_stderr, clipped.std(0) / 2**8)
        assert (abs(clipped.mean(0) - truth.mean) < 5 * error).all(), place.name


def test_an_unknown_set_is_refused():
    with pytest.raises(UserError, match="sdp-bench-1"):
        problem_set("sdp-bench-0")
