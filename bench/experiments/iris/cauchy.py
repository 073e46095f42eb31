"""Heavy tails: Cauchy noise on Iris nets."""

from __future__ import annotations

from sdp_bench.bench.experiments.iris.nets import RELU
from sdp_bench.bench.experiments.laws import LawExperiment
from sdp_bench.bench.metrics.references import ORACLE_AGAIN
from sdp_bench.bench.noise import CAUCHY
from sdp_bench.bench.settings import Size

GAMMAS = (0.01, 0.1, 1.0)
"""Cauchy scales.

Flowers are measured to 0.1 cm, and classes lie about 1 cm apart. The scales put nearly all mass near the
flower, are as large as rounding (yet with 6 % of the mass beyond 1 cm), and as large as the distance of
classes. From 10 on, nearly all mass is far from every flower, where a net is linear along each ray.
"""

HEAVY_TAILS = LawExperiment(
    name="iris-cauchy",
    description="Cauchy noise on ReLU nets: total variation and quantiles (not in the paper)",
    title="Cauchy noise",
    about="Cauchy noise of scale γ on every input, in place of Gaussian noise. It has no mean and no "
    "variance, and W1 between differently scaled laws is infinite, so laws are compared by shared mass and "
    "by quantiles. SDP gives each output a Cauchy law of scale |J|γ; of the outputs together it says the "
    "law of f(x) + Jε, which is sampled here. Marginal SDP takes them as independent. The paper proposes "
    "SDP for such noise but never measured it this way: no number of the paper stands beside these.",
    rank=130,
    metrics=("tv_joint", "tv_output", "tv_class", "quantile_mean", "quantile_max", "iqr_ratio"),
    sigmas=GAMMAS,
    architectures=RELU,
    rules=("sdp", "marginal_sdp", ORACLE_AGAIN.name),
    presets={"quick": Size(1, 1)},
    noises=(CAUCHY,),
)
