"""Presets: settings that change counts, never code paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments import experiments
from sdp_bench.bench.identity import Sampling
from sdp_bench.bench.rules import resolve
from sdp_bench.bench.settings import Design, Settings
from sdp_ref.errors import not_found

PRESETS: Mapping[str, Settings] = MappingProxyType(
    {
        "smoke": Settings(
            Design(nets=1, inputs=1, net_source="committed"),
            Sampling(2**16, 2**15),
            {"w1_points": 400, "certified_points": 1000, "cells": 128},
            slow_rules=False,
        ),
        "quick": Settings(metrics={"w1_points": 1000, "certified_points": 3000}, slow_rules=False),
        "paper": Settings(),
    }
)
"""Presets by name; sizes are defined by each experiment."""


def preset(name: str, overrides: Mapping[str, Any] = MappingProxyType({})) -> Settings:
    """Return the settings of a preset, with `overrides` as in `sdp_bench.bench.settings.Settings.but`.

    Rules may be addresses of plug-ins. An unknown preset, a value out of range, or an invalid address raises
    a UserError.
    """
    if name not in PRESETS:
        raise UserError(not_found("preset", name, PRESETS))
    own = dict(overrides)
    if own.get("rules"):
        own["rules"], own["plugins"] = resolve(own["rules"])
    sizes = {each.name: each.presets[name] for each in experiments().values() if name in each.presets}
    return replace(PRESETS[name], sizes=sizes).but(**own)
