"""The asv suite: a forward pass and a training step of the net itself and of each rule.

Each class is a grid of (net, method, device). What a commit cannot do, and CUDA where there is none,
is skipped while it is set up.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from .timing import REGULAR, clock
from .workloads import RULES, Workload

DEVICES = ("cpu", "cuda")
BATCHES = {"cnn3": 16, "resnet18": 2}
MLP_BATCH = 32


class _Grid:
    """A work for each (net, method, device), on one thread so that other load counts little."""

    param_names: ClassVar = ["net", "method", "device"]
    phase = "forward"
    timeout = 300

    @staticmethod
    def timer() -> float:
        """Seconds of this process, or by the wall clock where a GPU works."""
        return clock("cuda" if torch.cuda.is_initialized() else "cpu")

    def setup(self, net: str, method: str, device: str) -> None:
        """Build the net and what is timed; raises NotImplementedError for what is to be skipped."""
        if device == "cuda" and not torch.cuda.is_available():
            raise NotImplementedError("no CUDA device")
        torch.set_num_threads(1)
        workload = Workload.of(net, BATCHES.get(net, MLP_BATCH), device)
        self.work = workload.forward(method) if self.phase == "forward" else workload.training_step(method)

    def time_pass(self, *_params: str) -> None:
        """Seconds of one pass."""
        self.work()


class Forward(_Grid):
    """Propagation without gradients."""

    params: ClassVar = [["mlp-4x100", "cnn3", "resnet18"], [REGULAR, *RULES], DEVICES]

    def peakmem_pass(self, *_params: str) -> None:
        """Largest memory of the process."""
        self.work()


class TrainingStep(_Grid):
    """Propagation, a loss on location and scale, and its gradient in the weights."""

    params: ClassVar = [["mlp-4x100", "cnn3", "resnet18"], [REGULAR, *RULES], DEVICES]
    phase = "training step"

    def peakmem_pass(self, *_params: str) -> None:
        """Largest memory of the process."""
        self.work()


class Sizes(_Grid):
    """Width, depth and number of outputs of fully connected nets."""

    params: ClassVar = [
        ["mlp-1x100", "mlp-24x100", "mlp-4x1000", "mlp-4x100-10", "mlp-4x100-100"],
        [REGULAR, *RULES],
        DEVICES,
    ]


class FullCovariance(_Grid):
    """The rules that carry a covariance from layer to layer, on small nets."""

    params: ClassVar = [["mlp-1x100", "mlp-4x100"], ["dvia", "moment_matching"], DEVICES]


class WholeNet(_Grid):
    """The rules that run the net at points, many times, or in pieces, on the small net."""

    params: ClassVar = [
        ["mlp-4x100"],
        [
            "unscented",
            "cubature",
            "divided_difference",
            "monte_carlo:samples=100",
            "control_variate:samples=100",
            "split:base=sdp,k=9",
            "split:k=9",
            "split:k=64",
        ],
        DEVICES,
    ]


class Regions(_Grid):
    """The exact law of a net of one hidden layer, which is made region by region."""

    params: ClassVar = [["mlp-1x100"], ["exact"], ["cpu"]]
    number, repeat = 1, 3

    def setup(self, net: str, method: str, device: str) -> None:
        """See the base; one input, for its time goes with the regions."""
        torch.set_num_threads(1)
        self.work = Workload.of(net, 1, device).forward(method)
