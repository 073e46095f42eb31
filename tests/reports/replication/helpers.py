"""Made-up measurements of the paper's simulation tables, for which every statement is true."""

import math

import numpy as np
import pandas as pd

from sdp_bench.reports.replication.claims import CONVENTIONS
from sdp_bench.reports.replication.page import topics
from sdp_bench.reports.statement import REGULAR
from tests.reports import made_up
from tests.reports.made_up import checked

MC = "monte_carlo:samples=100"
RULES = ("sdp", "dvia", REGULAR, "moment_matching", "marginal_sdp", "marginal_moment_matching", MC)
TV_SIGMAS, W1_SIGMAS = (0.1, 1.0, 10.0, 100.0, 1000.0), (0.01, 0.1, 1.0)
FLOOR = 2.0  # of W1, in units of sigma


def tv_of(rule, sigma):
    """Total variations for which every claim on them is true, with effects of .06 or more."""
    rest = {"marginal_sdp": 0.76, "marginal_moment_matching": 0.70 if sigma == 0.1 else 0.82}
    return {"sdp": 0.1, "dvia": 0.16, REGULAR: 0.16, MC: 0.2, "moment_matching": 0.05}.get(rule) or rest[rule]


def w1_of(rule, sigma):
    return sigma * (20 if rule.startswith("marginal") else 4)


def ratio_of(rule, sigma):
    large = {"sdp": 2.5, "dvia": 1 / 2.6, REGULAR: 1 / 2.6}.get(rule, 1.0) if sigma >= 10 else 1.0
    return 0.02 if rule.startswith("marginal") else large


def claims_frame(
    nets=30, name="iris-claims", depths=(4, 6), seed=0, tv=tv_of, w1=w1_of, ratio=ratio_of, inputs=2
):
    """Measurements of one experiment: truth, a shift that the rules of a net and input share, and noise."""
    rng = np.random.default_rng(seed)
    rows = []
    for depth in depths:
        for net in range(nets):
            for place in range(inputs):
                subject = made_up.row(0) | {
                    "experiment": name,
                    "network": "4-100-3",
                    "depth": depth,
                    "seed": net,
                    "net": f"{name} {depth} {net:02}",
                    "input": 3 * net + place,
                    "stderr": 1e-3,
                    "accuracy": 0.97,
                    "floor95": 0.0,
                }

                def row(rule, spec, sigma, value, floor=0.0, component="", subject=subject):
                    keys = {"rule": rule, "metric_spec": spec, "sigma": sigma, "component": component}
                    metric = spec.partition(":")[0]
                    rows.append(subject | keys | {"metric": metric, "value": float(value), "floor": floor})

                for rule in RULES:
                    for sigma in TV_SIGMAS:
                        for convention in CONVENTIONS.values():
                            shift = 0.02 * math.sin(net) + rng.normal(0, 0.01)
                            row(rule, convention.spec, sigma, tv(rule, sigma) + shift)
                        for output in "012":
                            factor = math.exp(rng.normal(0, 0.02))
                            row(rule, "std_ratio", sigma, ratio(rule, sigma) * factor, 1.0, output)
                    for sigma in W1_SIGMAS:
                        true = w1(rule, sigma) * math.exp(0.5 * math.sin(net) + rng.normal(0, 0.02))
                        row(rule, "w1", sigma, math.hypot(true, FLOOR * sigma), FLOOR * sigma)
    frame = pd.DataFrame(rows)
    if name == "iris-claims":
        frame["experiment"] = frame["experiment"].mask(frame["metric"] == "w1", "iris-claims-w1")
    return checked(frame)


TABLES = next(topic for topic in topics() if topic.key == "tables")
