"""How oracles are sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from sdp_bench.bench.errors import UserError

# Repeated here because importing the oracles would load their solvers for every command.
Sampler = Literal["mc", "sobol"]


@dataclass(frozen=True)
class Sampling:
    """How oracles are drawn.

    `samples`: samples of an oracle and of each prediction, unless an experiment sets its own number.
    `pilot_samples`: samples of the independent draw that fixes bins and cells (at most `samples` are drawn).
    `sampler`: plain Monte Carlo, or scrambled Sobol points. `device`: device on which nets are evaluated.
    """

    samples: int = 10**6
    pilot_samples: int = 2**17
    sampler: Sampler = "mc"
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("samples", "pilot_samples"):
            if getattr(self, name) < 100:
                raise UserError(f"{name} must be at least 100, got {getattr(self, name)}")
        if self.sampler not in get_args(Sampler):
            raise UserError(f"unknown sampler '{self.sampler}'; choose from {', '.join(get_args(Sampler))}")
