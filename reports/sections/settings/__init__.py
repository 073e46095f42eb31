"""The section on command, settings and environment of a run."""

from __future__ import annotations

from ...results import Results
from ...section import Context, Section
from ...site import MEASURED
from ...writing import recorded


class RunSettings(Section):
    name = "settings"
    title = "Settings"
    page = MEASURED
    order = 160

    def build(self, results: Results) -> Context:
        return {"command": results.meta.get("command", ""), "settings": recorded(results.meta)}
