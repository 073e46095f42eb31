import functools
import json
import shutil

import numpy as np
import pytest
import torch

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments import chosen, experiment
from sdp_bench.bench.experiments.plan import plan_of
from sdp_bench.bench.experiments.problem_set import FOLDER, NAME, NETS, ORACLES, digest_of, problem_set
from sdp_bench.bench.metrics.oracle import Oracle, independent_blocks
from sdp_bench.bench.results.folder import net_of
from sdp_bench.bench.settings import Settings
from sdp_bench.oracles.moments.moments import Moments
from tests.bench.conftest import nets_of, run_all

DIGEST = "f87a74f44e17deb1dd69bcadc4d2ef31ce3ba2e0758601b27af7c60b5c18a546"
"""Of sdp-bench-1, for ever. If this test fails, the change belongs into sdp-bench-2."""
TRIMMED = 0.01
"""Under Cauchy noise the frozen statistics are of outputs clipped at these quantiles of a pilot draw."""


def groups(*rules):
    return [*plan_of([experiment(NAME)], Settings(rules=rules), ()).groups.values()]


@pytest.fixture(scope="module")
def truths():
    content = json.loads((FOLDER / ORACLES).read_text())
    return {truth["key"]: truth for truth in content["oracles"]}


def test_the_set_never_changes():
    assert digest_of(FOLDER) == DIGEST


@pytest.mark.parametrize("name", ["problems.json", "oracles.json", "inputs.safetensors"])
def test_a_changed_file_is_refused(name, tmp_path):
    copy = shutil.copytree(FOLDER, tmp_path / "set")
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(UserError, match="differs"):
        problem_set(copy)


def test_nets_inputs_and_noise_give_the_frozen_keys(truths):
    for setting, group in zip(problem_set().settings, groups("sdp"), strict=True):
        assert tuple(key.hex for key in group.keys) == setting.keys
        assert set(setting.keys) <= set(truths)


def test_every_truth_was_admitted(truths):
    """Independent seeds, another sampler and another precision find the same distribution; finite samples."""
    for setting in problem_set().settings:
        for key in setting.keys:
            checks = {check["name"]: check["passed"] for check in truths[key]["checks"]}
            assert {"finite", "second draw", "sobol draw", "float64"} <= set(checks)
            assert all(checks.values())


class Clipped(Oracle):
    """An oracle whose samples are clipped at quantiles of its pilot, so that heavy tails have moments."""

    @functools.cached_property
    def bounds(self):
        values = (
            super()._draw(min(2**16, self.sampling.pilot_samples), self.key.seed("bounds"), "mc").double()
        )
        return torch.quantile(values, torch.tensor([TRIMMED, 1 - TRIMMED], dtype=values.dtype), dim=0)

    def _draw(self, samples, seed, sampler):
        drawn = super()._draw(samples, seed, sampler)
        low, high = self.bounds
        low = low.to(drawn.dtype)
        high = high.to(drawn.dtype)
        return drawn.clamp(low, high)

    @functools.cached_property
    def moments(self):
        return Moments.from_samples(self.samples, independent_blocks(self.sampler))


@pytest.mark.rounding
@pytest.mark.parametrize("noise", ["gaussian", "cauchy"])
def test_an_oracle_is_drawn_again_as_it_is_frozen(noise, truths):
    """Tolerances: rounding of other kernels; another precision or a noise level 0.1 % larger exceeds them."""
    oracle_class = Clipped if noise == "cauchy" else Oracle
    group = next(group for group in groups("sdp") if group.noise.family == noise)
    key, sampling = group.keys[0], group.settings.sampling
    oracle, frozen = oracle_class(group.net.build(), group.law[0], key, sampling), truths[key.hex]
    assert key.seed("oracle") == frozen["seed"]
    statistics = frozen["statistics"]
    samples, moments = oracle.samples.double().numpy(), oracle.moments
    assert str(oracle.samples.dtype) == f"torch.{statistics['dtype']}"
    deviation = np.sqrt(np.diag(statistics["covariance"]))
    rows = samples[:: len(samples) // len(statistics["rows"])][: len(statistics["rows"])]
    assert (abs(rows - statistics["rows"]) <= 5e-5 * deviation).all()
    assert (abs(moments.mean - statistics["mean"]) <= 0.1 * np.array(statistics["mean_stderr"])).all()
    covariance_off = abs(moments.covariance - statistics["covariance"])
    assert (covariance_off <= 0.01 * np.array(statistics["covariance_stderr"])).all()
    classes = np.bincount(samples.argmax(1), minlength=samples.shape[1])
    assert abs(classes - statistics["classes"]).sum() / 2 <= 1e-4 * len(samples)


def test_it_keeps_its_sampling_next_to_other_experiments():
    (net, *_) = problem_set().nets.values()
    settings = Settings(rules=("sdp",)).but(samples=2**18, pilot_samples=1000, sigmas=(1.0,))
    alone = {(group.net.digest, group.noise, group.sigma): group for group in groups("sdp")}
    plan = plan_of(chosen(["iris-tv", "iris-tv-activations", NAME]), settings, [net])
    of_set = plan.rows[plan.rows["experiment"] == NAME]
    groups_of_set = [plan.groups[name] for name in of_set["group"].unique()]
    assert len(groups_of_set) == len(alone)
    for group in groups_of_set:
        frozen = alone[group.net.digest, group.noise, group.sigma]
        assert group.settings.sampling == frozen.settings.sampling
        assert group.locations.equal(frozen.locations)


def test_a_run_stores_its_nets(tmp_path):
    settings = Settings(rules=("marginal_sdp",))
    plan = plan_of([experiment(NAME)], settings, ())
    digests = {net.digest for net in problem_set().nets.values()}
    assert {net.digest for net in nets_of(plan)} == set(plan.rows["net"]) == digests
    frame = run_all(tmp_path / "entry", plan, [*plan.groups][:1], settings=settings)
    assert set(frame["experiment"]) == {NAME}
    assert all(net_of([tmp_path / "entry"], digest) for digest in digests)
    assert len(list((FOLDER / NETS).iterdir())) == 6


def test_only_rules_and_a_device_can_be_chosen():
    known = experiment(NAME)
    assert known.takes("rules")
    assert known.takes("device")
    assert not any(known.takes(option) for option in ("samples", "sigmas", "nets", "inputs", "cells"))


def test_the_description_has_the_numbers_of_the_set():
    frozen = problem_set()
    problems = sum(len(setting.rows) for setting in frozen.settings)
    described = experiment(NAME).extent(Settings())
    assert described.startswith(f"{len(frozen.nets)} frozen nets, {len(frozen.settings)} settings")
    assert described.endswith(f"{problems} problems")
