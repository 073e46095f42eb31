"""The cells of continuous integration: few, fast, and on nets that come with the package.

One definition, shared by the regression gate, the asv suite and the manifests of the oracles, so that all
three speak of the same laws. The gate also compares predictions alone, without an oracle, on probes: small
nets and laws that have what these cells do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sdp_bench.bench.errors import RunFailedError
from sdp_bench.bench.experiments import suites
from sdp_bench.bench.experiments.suites import FULL_RULES, MARGINAL_RULES, Group, Plan, Suite
from sdp_bench.bench.nets.architectures import Architecture
from sdp_bench.bench.nets.fully_connected import TrainedNet, committed, file_name
from sdp_bench.bench.nets.recipes import recipe_for
from sdp_bench.bench.settings import Settings

RULES = (
    *FULL_RULES,
    *MARGINAL_RULES,
    "monte_carlo:samples=10",
    "monte_carlo:samples=100",
    "monte_carlo:samples=100,sampler=sobol",
)
"""All built-in rules, and samplers with so few samples that they are fast."""

ARCHITECTURES = (Architecture(1), Architecture(2), Architecture(4))
"""Those of the committed nets: ReLU, 1, 2 and 4 hidden layers of 100 units."""

SUITE = Suite(
    "ci",
    "the cells of continuous integration",
    ("tv_headline", "gaussian_kl"),
    (0.1, 1.0, 10.0),
    ARCHITECTURES,
    RULES,
    size=(1, 3),
)
"""Noise as large as a tenth of the distance between classes, as that distance, and far beyond; one flower of
each class."""

SETTINGS = Settings(
    net_source="committed",
    samples=2**16,
    pilot_samples=2**15,
    samples_everywhere=True,
    sampler="sobol",
    cells=128,
)
"""Sobol points in 16 independent scrambles: several times less noise than plain draws of the same cost, and
standard errors from the scrambles. Cells hold 512 points of the oracle each."""


def nets() -> list[TrainedNet]:
    """The committed nets of :data:`ARCHITECTURES`, seed 0.

    Raises
    ------
    RunFailedError
        If one is missing or damaged.
    """
    found = []
    for architecture in ARCHITECTURES:
        recipe = recipe_for(architecture)
        net = committed(architecture, recipe, 1)
        if not net:
            name = file_name(architecture, recipe, 0)
            raise RunFailedError(
                f"the net bench/nets/committed/{name} of the package is missing or damaged; reinstall"
            )
        found += net
    return found


def plan(rules: Sequence[str] | None = None, **settings: Any) -> Plan:
    """The cells as groups: 3 nets by 3 noise levels, each with 3 inputs.

    Parameters
    ----------
    rules : sequence of str, optional
        Instead of :data:`RULES`, in the form that :func:`sdp_bench.bench.experiments.suites.expand` takes.
    **settings
        Fields of `Settings` that replace those of `SETTINGS` (``plugins``, say).

    Raises
    ------
    UserError
        If a rule is unknown.
    RunFailedError
        If a net is missing.
    """
    changed = replace(SETTINGS, rules=None if rules is None else tuple(rules), **settings)
    return suites.expand([SUITE], changed, nets())


def groups(rules: Sequence[str] | None = None, **settings: Any) -> list[Group]:
    """Groups of :func:`plan`, net by net and from little noise to much."""
    return plan(rules, **settings).groups
