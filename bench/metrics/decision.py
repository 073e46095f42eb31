"""Agreement of the predicted location with the class that the net itself chooses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sdp_bench.bench.metrics.base import Measurements, Metric
from sdp_bench.oracles.estimate.estimate import Estimate
from sdp_ref.errors import UndefinedError

if TYPE_CHECKING:
    from sdp_bench.bench.metrics.oracle import Oracle
    from sdp_bench.bench.metrics.prediction import Prediction


@dataclass(frozen=True)
class MovedClass(Metric):
    """Whether the arg max of the predicted location differs from that of the net's output; needs no oracle.

    Shows how propagation changes the accuracy of a net that was trained without noise (Section 2 of the
    paper: moment matching changes the mean).
    """

    name = "moved_class"
    title = "Inputs put into another class than by a plain pass"
    label = "moved to another class"
    about = (
        "Share of inputs whose largest predicted location is not that of the net’s own largest output, "
        "without noise. A rule may be right about the noisy output, whose mean moves too, and still move it."
    )
    has_floor = False
    single = True
    rank = 225

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        import torch

        if prediction.law is None:
            raise UndefinedError("the prediction is a law known by samples alone, which has no location")
        device = oracle.sampling.device
        with torch.no_grad():
            plain = oracle.net(oracle.law.location.to(device))
        moved = int(plain[0].argmax()) != int(prediction.law.location[0].argmax())
        yield None, Estimate(float(moved), math.nan, math.nan, math.nan)
