"""Benchmarks and validates rules that propagate distributions through neural networks.

:func:`load` returns measurements as a data frame, :func:`columns` describes its columns, :func:`validate`
checks a rule, :func:`advise` estimates whether linearisation is accurate for a net, :func:`sample` samples a
net until a tolerance is met, and :func:`budget` divides the variance of its outputs among its inputs.
Submodules are imported when one of these functions, or a command, needs them.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

_is_command = Path(sys.argv[0]).name == "sdp-bench" or sys.orig_argv[1:3] == ["-m", "sdp_bench"]
if _is_command and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # An interrupt during the imports ends the command without a traceback; later it has its own handler.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from sdp_ref.lazy import exports  # noqa: E402

if TYPE_CHECKING:
    from sdp_bench.api import advise, budget, sample, validate
    from sdp_bench.bench.errors import RunFailedError, UserError
    from sdp_bench.reports.frames import columns, load

__all__ = ["RunFailedError", "UserError", "advise", "budget", "columns", "load", "sample", "validate"]

__getattr__, __dir__ = exports(__name__)
