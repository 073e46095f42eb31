"""Benchmarks and validates rules that propagate distributions through neural networks.

:func:`load` returns measurements as a data frame, :func:`columns` describes its columns, :func:`validate`
checks a rule, :func:`advise` estimates whether linearisation is accurate for a net, :func:`sample` samples a
net until a tolerance is met, :func:`budget` divides the variance of its outputs among its inputs, and
:func:`closure_by_layer` estimates in which layers moment matching errs. Submodules are imported when one of
these functions, or a command, needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sdp_ref.lazy import exports

if TYPE_CHECKING:
    from sdp_bench.api import advise, budget, sample, validate
    from sdp_bench.bench.errors import RunFailedError, UserError
    from sdp_bench.bench.replay.closure import closure_by_layer
    from sdp_bench.reports.frames import columns, load

__all__ = [
    "RunFailedError",
    "UserError",
    "advise",
    "budget",
    "closure_by_layer",
    "columns",
    "load",
    "sample",
    "validate",
]

__getattr__, __dir__ = exports(__name__)
