"""Prediction intervals on regression sets: methods, their nets, trainings and scores."""

METHODS = {
    "sdp": "squared_error",
    "sdp_nll": "sdp_nll",
    "sdp+pnn": "pnn",
    "pnn": "pnn",
    "sqr": "sqr",
    **{f"monte_carlo:samples={k}": "squared_error" for k in (5, 10, 100, 1000)},
}
"""The objective that each is trained by: `sdp` propagates through a net trained by squared error, after the
fact; `sdp_nll` through one trained by the likelihood of the propagated law."""
