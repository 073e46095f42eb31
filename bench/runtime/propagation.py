"""The asv suite: a forward pass and a training step of the net itself and of each rule.

Each class is a grid of (net, method, device). Combinations that a commit or machine does not support are
skipped in `setup`.
"""

from __future__ import annotations

import statistics
from typing import ClassVar

import torch

from . import shown
from .timing import REGULAR, clock
from .workloads import RULES, Workload

ON_CPU = "cpu"
ON_GPU = {"cuda, batches of 8": 8, "cuda, batches of 128": 128}
"""Batch sizes on a GPU: the paper's, and one that hardly uses the device."""
PLACES = (ON_CPU, *ON_GPU) if torch.cuda.is_available() else (ON_CPU,)
BATCHES = {"cnn3": 16, "cnn3-8x8": 2, "cnn3-16x8": 2, "resnet18": 2}
MLP_BATCH = 32
WARMUP = 2
"""Untimed passes, which set up memory and kernels; with --quick asv makes none of its own."""


class _Works:
    """A grid of (net, method, place), on one thread to be insensitive to other load."""

    param_names: ClassVar = ["net", "method", "place"]
    phase = "forward"
    timeout = 300
    accelerator = "cuda"

    def setup(self, net: str, method: str, device_name: str) -> None:
        """Build net and work; NotImplementedError skips a combination."""
        torch.set_num_threads(1)
        batch, device = BATCHES.get(net, MLP_BATCH), ON_CPU
        if method == "exact":
            batch = 1  # the time grows with the number of regions
        if device_name in ON_GPU:
            batch, device = ON_GPU[device_name], self.accelerator
        workload = Workload.of(net, batch, device)
        try:
            self.work = getattr(workload, self.phase)(method)
            for _ in range(WARMUP):
                self.work()
        except torch.cuda.OutOfMemoryError as error:
            raise NotImplementedError("more memory than the GPU has") from error


class _Grid(_Works):
    @staticmethod
    def timer() -> float:
        """Return CPU seconds of this process, or wall time on a GPU."""
        return clock("cuda" if torch.cuda.is_initialized() else "cpu")

    @shown("time of a pass")
    def time_pass(self, *_params: str) -> None:
        self.work()


class Forward(_Grid):
    """Propagation without gradients."""

    params: ClassVar = [["mlp-4x100", "cnn3", "resnet18"], [REGULAR, *RULES], PLACES]

    @shown("peak memory of the process")
    def peakmem_pass(self, *_params: str) -> None:
        self.work()


class TrainingStep(Forward):
    """Propagation, a loss on location and scale, and its gradient with respect to the weights."""

    phase = "training_step"


class Sizes(_Grid):
    """Fully connected nets of varying width, depth and number of outputs."""

    params: ClassVar = [
        ["mlp-1x100", "mlp-24x100", "mlp-4x1000", "mlp-4x100-10", "mlp-4x100-100"],
        [REGULAR, *RULES],
        PLACES,
    ]


class FullCovariance(_Grid):
    """Rules that propagate a covariance layer by layer, on small nets and images that fit in memory.

    The largest layers have 128 and 512 units; that of cnn3 has 16 384.
    """

    params: ClassVar = [
        ["mlp-1x100", "mlp-4x100", "cnn3-8x8", "cnn3-16x8"],
        ["dvia", "moment_matching", "low_rank"],
        PLACES,
    ]


class WholeNet(_Grid):
    """Rules that evaluate the whole net at points, repeatedly, or in pieces, on the small net."""

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
        PLACES,
    ]


class Regions(_Grid):
    """The exact law of a net with one hidden layer, computed region by region."""

    params: ClassVar = [["mlp-1x100"], ["exact"], [ON_CPU]]
    number, repeat = 1, 3


if torch.cuda.is_available():  # without a GPU asv would list each of their rows as skipped

    class OnGPU(_Works):
        """Propagation without gradients, measured on the device."""

        params: ClassVar = [*Forward.params[:2], tuple(ON_GPU)]

        @shown("device time of a pass", "ms")
        def track_device_time(self, *_params: str) -> float:
            """Return the median over passes, which includes the device's waiting if the host is slower."""
            times = []
            for _ in range(5):
                start = torch.cuda.Event(enable_timing=True)
                end = torch.cuda.Event(enable_timing=True)
                start.record()
                self.work()
                end.record()
                torch.cuda.synchronize()
                times.append(start.elapsed_time(end))
            return statistics.median(times)

        @shown("peak memory of tensors on the device", "bytes")
        def track_peak_memory(self, *_params: str) -> int:
            """Return the peak during a pass, including net and inputs."""
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self.work()
            torch.cuda.synchronize()
            return torch.cuda.max_memory_allocated()

    class TrainingOnGPU(OnGPU):
        """A training step, measured on the device."""

        phase = "training_step"
