"""Experiments on nets that classify Iris flowers; most of the paper's experiments."""
