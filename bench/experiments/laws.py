"""Experiments with an oracle: rules, noise, metrics and nets, and their groups of work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

import sdp_ref
from sdp_ref.activations import ACTIVATIONS

from ..datasets import dataset
from ..datasets.base import TabularClassification, stratified_rows
from ..errors import UserError
from ..lazy import pd
from ..metrics import Metric, metric
from ..metrics.references import ORACLE_MOMENTS, references
from ..nets.architectures import Architecture, ClassifierArchitecture
from ..nets.recipes import Recipe, recipe_for
from ..noise import GAUSSIAN, Noise
from ..plugins.plugin import Plugin
from ..results.folder import LeftOut
from ..settings import Settings, Size
from .base import Experiment, Group, Plan

if TYPE_CHECKING:
    from ..nets.net import Net
    from .law_group import LawGroup

FULL_RULES = ("sdp", "dvia", "moment_matching", "unscented")
REGULAR_DVIA = ("dvia:means=regular", "dvia:means=regular_covariance")
"""DVIA with the covariance at the means of the regular pass, as in the paper's numbers."""
MARGINAL_RULES = ("marginal_sdp", "marginal_moment_matching")
ALL_RULES = (
    *FULL_RULES,
    *MARGINAL_RULES,
    "monte_carlo:samples=5",
    "monte_carlo:samples=10",
    "monte_carlo:samples=100",
    "monte_carlo:samples=1000",
    "monte_carlo:samples=100,sampler=sobol",
    ORACLE_MOMENTS.name,
)

COMPARED_RULES = (
    *FULL_RULES,
    *MARGINAL_RULES,
    "monte_carlo:samples=10",
    "monte_carlo:samples=100",
    "monte_carlo:samples=1000",
    *references(),
)
"""The rules that a new rule is compared with."""


@dataclass(frozen=True, kw_only=True)
class LawExperiment(Experiment):
    """Comparison of the laws that rules predict with the true ones.

    `rules`: specs. `sigmas`: scales of the input noise (standard deviations if it is Gaussian), in the units
    of the net's input. `recipes`: recipes, one net for each; by default the architecture's own. `own_inputs`:
    whether each net has its own inputs, so that nets are independent replicates. `scale`: samples of the
    oracle, as a multiple of the setting. `noises`: families of the input noise; a run's `noise` replaces
    them.
    """

    rules: tuple[str, ...] = ALL_RULES
    paper: Size = field(default_factory=lambda: Size(nets=10, inputs=10))
    sigmas: tuple[float, ...]
    architectures: tuple[Architecture, ...] = ()
    recipes: tuple[Recipe, ...] = ()
    own_inputs: bool = False
    scale: int = 1
    noises: tuple[Noise, ...] = (GAUSSIAN,)

    def takes(self, option: str) -> bool:
        """Return whether it has an option: all except data sets, and those that its nets do not have."""
        if option in ("activation", "depths", "width"):
            return bool(self.architectures)
        if option == "datasets":
            return False
        is_of_recipe = option in {item.name for item in fields(Recipe)}
        return not (self.recipes and is_of_recipe and option != "epochs")

    def extent(self, settings: Settings) -> str:
        depths: dict[str, list[int]] = {}
        for architecture in self._default_architectures(settings):
            depths.setdefault(architecture.activation, []).append(architecture.depth)
        nets = [f"{activation} {'/'.join(map(str, of_kind))}" for activation, of_kind in depths.items()]
        nets += [architecture.label for architecture in self.classifiers]
        size = self.size(settings)
        sigmas = ", ".join(f"{sigma:g}" for sigma in self.sigmas)
        noises = self.families(settings)
        families = f"{', '.join(noise.name for noise in noises)} noise; " if len(noises) > 1 else ""
        return f"{', '.join(nets)}; {size.nets} x {size.inputs}; {families}{noises[0].parameter} {sigmas}"

    def families(self, settings: Settings) -> tuple[Noise, ...]:
        """Return the families of input noise under `settings`."""
        return (settings.design.noise,) if settings.design.noise else self.noises

    def includes(self, net: Net, settings: Settings) -> bool:
        """Return whether a net is one of the experiment's under `settings`."""
        if isinstance(net.architecture, ClassifierArchitecture):
            return net.architecture in self.classifiers
        known = (net.architecture, net.recipe) in self.kinds(settings)
        return known and net.seed < (self.size(settings).nets or 0)

    def samples(self, settings: Settings) -> int:
        """Return the number of samples of the oracle, and of each prediction, under `settings`."""
        general = settings.sampling.samples
        of_experiment = self.size(settings).samples or general
        return self.scale * (settings.design.samples or min(general, of_experiment))

    def measures(self, settings: Settings) -> list[Metric]:
        """Return the metrics, each once, with the options of `settings`."""
        return list(dict.fromkeys(metric(text, settings.metric_options) for text in self.metrics))

    def kinds(self, settings: Settings) -> list[tuple[Architecture, Recipe]]:
        design = settings.design
        training = design.training
        if self.recipes:  # they fix all but the epochs
            training = {key: value for key, value in training.items() if key == "epochs"}
        kinds: list[tuple[Architecture, Recipe]] = []
        for default in self._default_architectures(settings):
            for depth in design.depths or (default.depth,):
                architecture = replace(
                    default,
                    depth=depth,
                    activation=design.activation or default.activation,
                    width=design.width or default.width,
                )
                recipes = self.recipes or (recipe_for(architecture),)
                kinds += [(architecture, replace(recipe, **training)) for recipe in recipes]
        return list(dict.fromkeys(kinds))

    def _default_architectures(self, settings: Settings) -> list[Architecture]:
        depths = self.size(settings).depths
        return [net for net in self.architectures if depths is None or net.depth in depths]

    def check(self, settings: Settings) -> None:
        canonical_rules(settings.rules or self.rules, settings.plugins)
        inputs = self.size(settings).inputs or 0
        for architecture, recipe in self.kinds(settings):
            data = dataset(recipe.dataset, TabularClassification).load(recipe.features)
            rows, columns = data.features.shape
            classes = int(data.labels.max()) + 1
            if (columns, classes) != (architecture.inputs, architecture.outputs):
                raise UserError(
                    f"experiment '{self.name}': the net {architecture.label} takes {architecture.inputs} "
                    f"columns and distinguishes {architecture.outputs} classes, the data set "
                    f"'{recipe.dataset}' has {columns} and {classes}"
                )
            if inputs > rows:
                raise UserError(f"inputs must be between 1 and {rows}, got {inputs}")
            self.check_noise((architecture.inputs,), settings)
        for measured in self.measures(settings):
            measured.check(settings.sampling, self.samples(settings))

    def check_noise(self, event: tuple[int, ...], settings: Settings, inputs: int | None = None) -> None:
        """Raise a UserError if noise does not fit the inputs or cannot be sampled; see `Noise.check`."""
        scales = settings.design.sigmas or self.sigmas
        for noise in self.families(settings):
            noise.check(event, scales, settings.sampling.sampler, inputs)

    def plan(self, settings: Settings, nets: Sequence[Net]) -> Plan:
        self.check(settings)
        rules = canonical_rules(settings.rules or self.rules, settings.plugins)
        parts: list[pd.DataFrame] = []
        groups: dict[str, Group] = {}
        left_out: list[LeftOut] = []
        chosen = [net for net in nets if self.includes(net, settings)]
        for noise in self.families(settings) if chosen else ():
            metrics = []
            for measure in self.measures(settings):
                # Some metrics are undefined for every prediction under this noise.
                if reason := measure.undefined(noise.example):
                    left_out.append(LeftOut(None, f"{measure.title} ({noise.name} noise)", reason))
                else:
                    metrics.append(measure.spec)
            groups_of_noise = [group for net in chosen for group in self._groups(net, noise, settings)]
            groups |= {group.name: group for group in groups_of_noise}
            rows = rows_of(self.name, groups_of_noise, metrics, rules, settings.plugins)
            is_slow = _is_slow(rows, settings)
            slow_rules = rows.loc[is_slow, ["rule", "activation"]].drop_duplicates()
            for rule, activation in slow_rules.itertuples(index=False):
                reason = f"rule '{rule}' is slow on {activation} nets; --slow-rules runs it"
                left_out.append(LeftOut(rule, activation, reason))
            parts.append(rows[~is_slow])
        rows = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
        return Plan(rows, groups, tuple(left_out))

    def _groups(self, net: Net, noise: Noise, settings: Settings) -> list[LawGroup]:
        """Return the groups of one net under one family of noise, one per scale."""
        from ..nets.net import inputs_of
        from .law_group import LawGroup

        data, inputs, samples = inputs_of(net), self.size(settings).inputs or 0, self.samples(settings)
        if inputs > len(data.labels):
            raise UserError(f"inputs must be between 1 and {len(data.labels)}, got {inputs}")
        rows = stratified_rows(data.labels, inputs, net.seed + 1 if self.own_inputs else 0)
        locations = data.batch(list(rows))  # a tuple would index several axes
        self.check_noise(tuple(locations.shape[1:]), settings, len(data.labels))
        scales = settings.design.sigmas or self.sigmas
        return [LawGroup.of(net, noise, scale, rows, locations, samples, settings) for scale in scales]


def rows_of(
    experiment: str,
    groups: Sequence[LawGroup],
    metrics: Sequence[str],
    rules: Sequence[str],
    plugins: Sequence[Plugin],
) -> pd.DataFrame:
    """Return the rows of a plan with all metrics of all rules on all units of some groups."""
    from .versions import of_measurement

    units = pd.DataFrame([unit for group in groups for unit in group.units])
    cells = pd.DataFrame(
        [(rule, metric, of_measurement(rule, metric, plugins)) for metric in metrics for rule in rules],
        columns=["rule", "metric_spec", "fingerprint"],
    )
    return units.merge(cells, how="cross").assign(experiment=experiment)


_SLOW = 0.02
"""Time (s) per layer of covariances above which moment matching is skipped unless requested."""


def _is_slow(rows: pd.DataFrame, settings: Settings) -> pd.Series:
    """Return which rows a run skips unless slow rules are requested: moment matching on some activations."""
    from sdp_ref.rules import MomentMatching  # imports torch

    slow = [name for name, activation in ACTIVATIONS.items() if activation.layer_seconds > _SLOW]
    plugins = {plugin.name for plugin in settings.plugins}
    matching = [
        rule
        for rule in rows["rule"].unique()
        if rule not in plugins and isinstance(settings.rule(rule), MomentMatching)
    ]
    return rows["activation"].isin(slow) & rows["rule"].isin(matching) & (not settings.slow_rules)


def canonical_rules(specs: Sequence[str], plugins: Sequence[Plugin] = ()) -> tuple[str, ...]:
    """Return rule specs in canonical form, in order and without duplicates; `plugins` are unchanged."""
    for spec in specs:
        if "seed=" in spec:
            raise UserError(f"rule '{spec}': the experiments seed a rule themselves, from each oracle's key")
    try:
        unchanged = set(references()) | {plugin.name for plugin in plugins}
        canonical = [spec if spec in unchanged else sdp_ref.rule(spec).spec for spec in specs]
        return tuple(dict.fromkeys(canonical))
    except ValueError as error:
        raise UserError(str(error)) from error
