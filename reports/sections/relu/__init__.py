"""The section on a single ReLU, for which everything is exact."""

from __future__ import annotations

from ...results import Results
from ...section import Context, Section
from ...site import PAPER


class OneReLU(Section):
    """The paper's figures of one ReLU, and its theorem, by quadrature."""

    name = "relu"
    title = "One ReLU"
    page = PAPER
    order = 50

    def build(self, results: Results) -> Context | None:
        """Return distances and checks, which depend on no run, for the page of the committed results only."""
        if not results.published:
            return None
        from .relu import densities, figure, single_relu

        single = single_relu()
        return {"relu": single, "laws": densities(single), "figure": figure(single.w1)}
