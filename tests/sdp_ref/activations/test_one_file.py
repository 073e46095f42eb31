"""An activation is one file in its folder, and nothing else knows it by name."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sdp_ref

SOFTPLUS = """
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from sdp_ref.activations.base import Activation
from sdp_ref.activations.numerics.quadrature import smooth_mean_variance


@dataclass(frozen=True)
class Softplus(Activation):
    name: ClassVar[str] = "softplus"
    label: ClassVar[str] = "Softplus"
    module: ClassVar[type[nn.Module]] = nn.Softplus
    calls: ClassVar = (nn.functional.softplus,)

    def function(self, x):
        return nn.functional.softplus(x)

    def derivative(self, x):
        return torch.sigmoid(x)

    def _mean_variance(self, mean, variance):
        def second(x):
            return torch.sigmoid(x) * torch.sigmoid(-x)

        return smooth_mean_variance(self.function, self.derivative, second, mean, variance)
"""

USE = """
import pytest
import torch
from torch import nn

import sdp_ref as sr
from sdp_ref.activations import ACTIVATIONS, activation

assert list(ACTIVATIONS)[-1] == "softplus"
layer = nn.Linear(3, 2).double()
x = sr.DiagonalGaussian(torch.zeros(1, 3).double(), torch.full((1, 3), 1e-6).double())
for net in (nn.Sequential(layer, activation("softplus").build()), lambda v: nn.functional.softplus(layer(v))):
    exact = sr.propagate(net, x, "sdp").variance
    for rule in ("marginal_sdp", "marginal_moment_matching"):
        assert torch.allclose(sr.propagate(net, x, rule).variance, exact, rtol=1e-4), rule
    with pytest.raises(sr.UnsupportedError, match="does not support covariances of Softplus"):
        sr.propagate(net, x, "moment_matching")
report = sr.check_rule("marginal_moment_matching", only=["small-noise", "marginal-moments"])
assert all(check.status == "passed" for check in report.checks), report
"""


@pytest.mark.slow
def test_adding_an_activation_touches_one_file(tmp_path):
    package = tmp_path / "sdp_ref"
    shutil.copytree(Path(sdp_ref.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "activations" / "softplus.py").write_text(SOFTPLUS)
    ran = subprocess.run([sys.executable, "-c", USE], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
