"""The cells of continuous integration: few, fast, and on nets that come with the package.

The regression gate and the asv suite share this definition. The gate additionally
compares predictions without an oracle on probes: small nets and laws with features that these cells lack.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import RunFailedError
from ..identity import Sampling
from ..nets.architectures import Architecture
from ..nets.recipes import recipe_for
from ..settings import Design, Settings, Size
from .laws import FULL_RULES, MARGINAL_RULES, LawExperiment

if TYPE_CHECKING:
    from ..nets.fully_connected import TrainedNet
    from .law_group import LawGroup


RULES = (
    *FULL_RULES,
    *MARGINAL_RULES,
    "monte_carlo:samples=10",
    "monte_carlo:samples=100",
    "monte_carlo:samples=100,sampler=sobol",
)
"""All built-in rules, with few samples for the sampling rules."""

ARCHITECTURES = (Architecture(1), Architecture(2), Architecture(4))
"""The committed nets: ReLU, 1, 2 and 4 hidden layers of 100 units."""

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
"""Noise of a tenth of the distance between classes, of that distance, and far beyond; a flower per class."""

SETTINGS = Settings(
    Design(net_source="committed", samples=2**16), Sampling(2**16, 2**15, "sobol"), {"cells": 128}
)
"""Sobol points in 16 independent scrambles have several times less noise than plain draws of equal cost, and
their scrambles give standard errors. Cells hold 512 points of the oracle each.
"""


def nets() -> list[TrainedNet]:
    """Return the committed nets of `ARCHITECTURES` in order, seed 0; a RunFailedError if one is damaged."""
    from ..nets.fully_connected import committed, file_name

    nets_of_depths = []
    for architecture in ARCHITECTURES:
        recipe = recipe_for(architecture)
        net = committed(architecture, recipe, 1)
        if not net:
            name = file_name(architecture, recipe, 0)
            raise RunFailedError(
                f"the net bench/nets/committed/{name} of the package is missing or damaged; reinstall"
            )
        nets_of_depths += net
    return nets_of_depths


def groups(rules: Sequence[str] | None = None, **options: Any) -> list[LawGroup]:
    """Return the cells: 3 nets by 3 noise levels with 3 inputs each, by net and increasing noise.

    `rules` (specs, and names of plug-ins) replace `RULES`, and `options` (``plugins``, for example) those of
    `SETTINGS`, as in `sdp_bench.bench.settings.Settings.but`.
    """
    from .law_group import LawGroup
    from .plan import plan_of

    settings = SETTINGS.but(rules=None if rules is None else tuple(rules), **options)
    plan = plan_of([EXPERIMENT], settings, nets())
    return [group for group in plan.groups.values() if isinstance(group, LawGroup)]
