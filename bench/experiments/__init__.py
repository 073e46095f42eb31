"""Experiments, by name, and presets: sizes, the source of the nets, and whether slow rules run.

>>> from sdp_bench.bench.experiments import experiment
>>> experiment("iris-w1").metrics
('w1',)
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from sdp_ref.errors import not_found
from sdp_ref.registry import installed, instances, loaded, spelled

from ..errors import UserError
from ..identity import Sampling
from ..rules import resolve
from ..settings import Design, Settings
from .base import Experiment

__all__ = ["PRESETS", "Experiment", "chosen", "experiment", "experiments", "preset"]

STUDIES = "sdp_bench.bench.studies"
"""Package of studies; each is a package that defines an `EXPERIMENT`."""
ENTRY_POINTS = "sdp_bench.experiments"
"""Entry-point group in which an installed package registers its experiments."""


@functools.cache
def experiments() -> Mapping[str, Experiment]:
    """Return experiments, those of studies and of installed packages, by name, in display order."""
    by_name = instances(__name__, Experiment)
    # Other modules of a study import torch, which takes longer than a list of experiments should.
    for study in pkgutil.iter_modules(importlib.import_module(STUDIES).__path__):
        if study.ispkg:
            experiment = importlib.import_module(f"{STUDIES}.{study.name}").EXPERIMENT
            by_name[experiment.name] = experiment
    for name, point in installed(ENTRY_POINTS, by_name).items():
        by_name[name] = loaded(point, Experiment)
    return MappingProxyType(dict(sorted(by_name.items(), key=lambda item: item[1].rank)))


def experiment(name: str) -> Experiment:
    """Return the experiment with this name; a UserError lists the available ones."""
    name = spelled(name, experiments())
    if name not in experiments():
        raise UserError(not_found("experiment", name, experiments()))
    return experiments()[name]


def chosen(names: Sequence[str]) -> list[Experiment]:
    """Return experiments by name, without duplicates."""
    return [experiment(name) for name in dict.fromkeys(names)]


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
    options = dict(overrides)
    if options.get("rules"):
        options["rules"], options["plugins"] = resolve(options["rules"])
    sizes = {item.name: item.presets[name] for item in experiments().values() if name in item.presets}
    return replace(PRESETS[name], sizes=sizes).but(**options)
