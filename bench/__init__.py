"""The benchmark: experiments, metrics, runs and results."""
