"""The asv suite: a forward pass and a training step of the net itself and of each rule.

Each class is a grid of (net, method, place). What a commit cannot do, and CUDA where there is none,
is skipped while it is set up.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from . import gpu
from .timing import REGULAR, clock
from .workloads import RULES, Workload

ON_CPU = "cpu"
ON_GPU = {"cuda, batches of 8": 8, "cuda, batches of 128": 128}
"""Batches that a GPU is used for: the paper's own, and one that hardly fills it."""
PLACES = (ON_CPU, *ON_GPU)
BATCHES = {"cnn3": 16, "cnn3-8x8": 2, "cnn3-16x8": 2, "resnet18": 2}
MLP_BATCH = 32
WARMUP = 2
"""Untimed passes: with --quick asv makes none of its own, and first ones set up memory and kernels."""


class _Works:
    """A work for each (net, method, place), on one thread so that other load counts little."""

    param_names: ClassVar = ["net", "method", "place"]
    phase = "forward"
    timeout = 300
    accelerator = "cuda"

    def setup(self, net: str, method: str, place: str) -> None:
        """Build the net and what is timed; raises NotImplementedError for what is to be skipped."""
        if place in ON_GPU and not torch.cuda.is_available():
            raise NotImplementedError("no CUDA device")
        torch.set_num_threads(1)
        batch, device = BATCHES.get(net, MLP_BATCH), ON_CPU
        if place in ON_GPU:
            batch, device = ON_GPU[place], self.accelerator
        workload = Workload.of(net, batch, device)
        try:
            work = workload.forward if self.phase == "forward" else workload.training_step
            self.work = work(method)
            for _ in range(WARMUP):
                self.work()
        except torch.cuda.OutOfMemoryError as error:
            raise NotImplementedError("more memory than the GPU has") from error


class _Grid(_Works):
    """How long they take."""

    @staticmethod
    def timer() -> float:
        """Seconds of this process, or by the wall clock where a GPU works."""
        return clock("cuda" if torch.cuda.is_initialized() else "cpu")

    def time_pass(self, *_params: str) -> None:
        """Seconds of one pass."""
        self.work()


class _OnGPU(_Works):
    """What only a GPU can say of the same work."""

    def track_device_seconds(self, *_params: str) -> float:
        """Seconds of one pass between CUDA events."""
        return gpu.event_seconds(self.work)

    def track_peak_memory(self, *_params: str) -> int:
        """Bytes on the device."""
        return gpu.peak_bytes(self.work)

    track_device_seconds.unit = "s"  # type: ignore[attr-defined]
    track_peak_memory.unit = "bytes"  # type: ignore[attr-defined]


class Forward(_Grid):
    """Propagation without gradients."""

    params: ClassVar = [["mlp-4x100", "cnn3", "resnet18"], [REGULAR, *RULES], PLACES]

    def peakmem_pass(self, *_params: str) -> None:
        """Largest memory of the process."""
        self.work()


class TrainingStep(_Grid):
    """Propagation, a loss on location and scale, and its gradient in the weights."""

    params: ClassVar = [["mlp-4x100", "cnn3", "resnet18"], [REGULAR, *RULES], PLACES]
    phase = "training step"

    def peakmem_pass(self, *_params: str) -> None:
        """Largest memory of the process."""
        self.work()


class Sizes(_Grid):
    """Width, depth and number of outputs of fully connected nets."""

    params: ClassVar = [
        ["mlp-1x100", "mlp-24x100", "mlp-4x1000", "mlp-4x100-10", "mlp-4x100-100"],
        [REGULAR, *RULES],
        PLACES,
    ]


class OnGPU(_OnGPU):
    """Propagation without gradients, as the device sees it."""

    params: ClassVar = [*Forward.params[:2], tuple(ON_GPU)]


class TrainingOnGPU(_OnGPU):
    """A training step, as the device sees it."""

    params: ClassVar = OnGPU.params
    phase = "training step"


class Clocks:
    """How the GPU is clocked while it propagates: where it is held back, times tell of that."""

    def setup(self) -> None:
        """Let it work first, for its clock rises with the work."""
        if not torch.cuda.is_available():
            raise NotImplementedError("no CUDA device")
        gpu.state()
        work = Workload.of("cnn3", 128, _Works.accelerator).forward("sdp")
        for _ in range(20):
            work()

    def track_share_of_highest_clock(self) -> float:
        """Share of its highest clock."""
        found = gpu.state()
        return found.clock / found.highest

    def track_throttled(self) -> int:
        """1 where power, heat or a setting holds it back."""
        return int(gpu.state().throttled)


class FullCovariance(_Grid):
    """The rules that carry a covariance from layer to layer, on small nets and images that fit.

    Largest layers of 128 and 512 units, where that of cnn3 has 16 384.
    """

    params: ClassVar = [
        ["mlp-1x100", "mlp-4x100", "cnn3-8x8", "cnn3-16x8"],
        ["dvia", "moment_matching", "low_rank"],
        PLACES,
    ]


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
        PLACES,
    ]


class Regions(_Grid):
    """The exact law of a net of one hidden layer, which is made region by region."""

    params: ClassVar = [["mlp-1x100"], ["exact"], [ON_CPU]]
    number, repeat = 1, 3

    def setup(self, net: str, method: str, place: str) -> None:
        """See the base; one input, for its time goes with the regions."""
        torch.set_num_threads(1)
        self.work = Workload.of(net, 1, place).forward(method)
