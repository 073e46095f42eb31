"""The section on a single ReLU, for which everything is exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.site import PAPER, SitePage

if TYPE_CHECKING:
    from sdp_bench.reports.sections.relu.relu import SingleReLU


def _single_relu() -> SingleReLU:
    from sdp_bench.reports.sections.relu.relu import single_relu

    return single_relu()


@dataclass(frozen=True)
class OneReLU(Section):
    """The paper's figures of one ReLU, and its theorem, by quadrature.

    `compute` returns the content; by default all of it, in about ten seconds.
    """

    name: ClassVar[str] = "relu"
    title: ClassVar[str] = "One ReLU"
    page: ClassVar[SitePage | None] = PAPER
    order: ClassVar[int] = 50
    compute: Callable[[], SingleReLU] = _single_relu

    def build(self, results: Results) -> Context | None:
        """Return distances and checks, which depend on no run, for the page of the committed results only."""
        if not results.published:
            return None
        from sdp_bench.reports.sections.relu.relu import densities, figure

        single = self.compute()
        return {"relu": single, "laws": densities(single), "figure": figure(single.w1)}
