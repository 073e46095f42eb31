"""An activation is one file in its folder, and nothing else knows it by name."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sdp_ref

ARCTAN = """
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from sdp_ref.activations.base import Activation
from sdp_ref.activations.numerics.quadrature import smooth_mean_variance


class Atan(nn.Module):
    def forward(self, x):
        return x.atan()


@dataclass(frozen=True)
class Arctan(Activation):
    name: ClassVar[str] = "arctan"
    label: ClassVar[str] = "Arctan"
    module: ClassVar[type[nn.Module]] = Atan
    ops: ClassVar = ("atan",)

    def function(self, x):
        return x.atan()

    def derivative(self, x):
        return 1 / (1 + x * x)

    def _mean_variance(self, mean, variance):
        def second(x):
            return -2 * x / (1 + x * x) ** 2

        return smooth_mean_variance(self.function, self.derivative, second, mean, variance)
"""

USE = """
import pytest
import torch
from torch import nn

import sdp_ref as sr
from sdp_ref.activations import ACTIVATIONS, activation

assert "arctan" in ACTIVATIONS
layer = nn.Linear(3, 2).double()
x = sr.DiagonalGaussian(torch.zeros(1, 3).double(), torch.full((1, 3), 1e-6).double())
for net in (nn.Sequential(layer, activation("arctan").build()), lambda v: torch.atan(layer(v))):
    exact = sr.propagate(net, x, "sdp").variance
    for rule in ("marginal_sdp", "marginal_moment_matching"):
        assert torch.allclose(sr.propagate(net, x, rule).variance, exact, rtol=1e-4), rule
    with pytest.raises(sr.UnsupportedError, match="does not support covariances of Arctan"):
        sr.propagate(net, x, "moment_matching")
report = sr.check_rule("marginal_moment_matching", only=["small-noise", "marginal-moments"])
assert all(check.status == "passed" for check in report.checks), report
"""


@pytest.mark.slow
def test_adding_an_activation_touches_one_file(tmp_path):
    package = tmp_path / "sdp_ref"
    shutil.copytree(Path(sdp_ref.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "activations" / "arctan.py").write_text(ARCTAN)
    ran = subprocess.run([sys.executable, "-c", USE], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
