"""Compare results of runs."""

NUMBERS = ["experiment", "rule", "metric_spec", "component", "unit", "value", "floor", "floor95", "stderr"]


def numbers(frame):
    return frame[NUMBERS].astype(object).sort_values(NUMBERS[:5]).reset_index(drop=True)
