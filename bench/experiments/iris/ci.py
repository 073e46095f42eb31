"""The cells of continuous integration: few, fast, and on nets that come with the package.

One definition, shared by the regression gate, the asv suite and the manifests of the oracles, so that all
three speak of the same laws. The gate also compares predictions alone, without an oracle, on probes: small
nets and laws that have what these cells do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sdp_bench.bench.errors import RunFailedError
from sdp_bench.bench.experiments.laws import FULL_RULES, MARGINAL_RULES, LawExperiment
from sdp_bench.bench.nets.architectures import Architecture
from sdp_bench.bench.nets.recipes import recipe_for
from sdp_bench.bench.sampling import Sampling
from sdp_bench.bench.settings import Design, Settings, Size

if TYPE_CHECKING:
    from sdp_bench.bench.experiments.law_group import LawGroup
    from sdp_bench.bench.nets.fully_connected import TrainedNet

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

EXPERIMENT = LawExperiment(
    name="ci",
    description="the cells of continuous integration",
    metrics=("tv_headline", "gaussian_kl"),
    sigmas=(0.1, 1.0, 10.0),
    architectures=ARCHITECTURES,
    rules=RULES,
    paper=Size(1, 3, on_request=True),
    rank=300,
)
"""Noise as large as a tenth of the distance between classes, as that distance, and far beyond; one flower of
each class."""

SETTINGS = Settings(
    Design(net_source="committed", samples=2**16), Sampling(2**16, 2**15, "sobol"), {"cells": 128}
)
"""Sobol points in 16 independent scrambles: several times less noise than plain draws of the same cost, and
standard errors from the scrambles. Cells hold 512 points of the oracle each."""


def nets() -> list[TrainedNet]:
    """The committed nets of :data:`ARCHITECTURES`, seed 0.

    Returns
    -------
    list of TrainedNet
        One an architecture, in their order.

    Raises
    ------
    RunFailedError
        If one is missing or damaged.
    """
    from sdp_bench.bench.nets.fully_connected import committed, file_name

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


def groups(rules: Sequence[str] | None = None, **options: Any) -> list[LawGroup]:
    """The cells: 3 nets by 3 noise levels, each with 3 inputs; net by net and from little noise to much.

    Parameters
    ----------
    rules : sequence of str, optional
        Instead of :data:`RULES`: specs, and names of plug-ins.
    **options
        Instead of those of :data:`SETTINGS` (``plugins``, say), as
        :meth:`sdp_bench.bench.settings.Settings.but` takes them.

    Raises
    ------
    UserError
        If a rule is unknown, or an option is out of its range.
    RunFailedError
        If a net is missing.
    """
    from sdp_bench.bench.experiments.law_group import LawGroup
    from sdp_bench.bench.experiments.scope import Scope

    settings = SETTINGS.but(rules=None if rules is None else tuple(rules), **options)
    groups = EXPERIMENT.expand(Scope(settings, nets())).groups
    return list(LawGroup.shared([group for group in groups if isinstance(group, LawGroup)]))
