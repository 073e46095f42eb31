"""Frozen sets of problems: nets, inputs, noise and what is true of them, for rules of everybody.

A set never changes: what is wrong with ``sdp-bench-1`` is put right in ``sdp-bench-2``.
"""
