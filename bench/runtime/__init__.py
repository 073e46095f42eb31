"""The run time of propagation: the asv suite and the runtime table.

asv imports these modules for other commits too, under the name ``runtime``. At import time they therefore use
only the public interface of `sdp_ref` and relative imports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Benchmark = TypeVar("Benchmark", bound=Callable[..., Any])


def shown(name: str, unit: str | None = None) -> Callable[[Benchmark], Benchmark]:
    """Set the name and unit that asv's pages show for a benchmark."""

    def mark(benchmark: Benchmark) -> Benchmark:
        benchmark.pretty_name = name  # type: ignore[attr-defined]
        if unit:
            benchmark.unit = unit  # type: ignore[attr-defined]
        return benchmark

    return mark
