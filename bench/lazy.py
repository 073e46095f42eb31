"""pandas, imported on first use, so that ``sdp-bench list`` and ``--help`` start without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sdp_ref.lazy import deferred

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = deferred("pandas")

__all__ = ["pd"]
