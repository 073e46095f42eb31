"""The suites: which rules, noise and metrics; and their expansion into groups of work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

import sdp_ref
from sdp_bench.bench.datasets.base import stratified_rows
from sdp_bench.bench.datasets.iris import IRIS
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.identity import keys
from sdp_bench.bench.identity.keys import OracleKey
from sdp_bench.bench.metrics import Metric, metric
from sdp_bench.bench.metrics.references import ORACLE_AGAIN, ORACLE_MOMENTS, Reference, references
from sdp_bench.bench.nets import net as trained
from sdp_bench.bench.nets.architectures import Architecture, ImageArchitecture
from sdp_bench.bench.nets.fully_connected import Recipe
from sdp_bench.bench.nets.net import Net
from sdp_bench.bench.nets.recipes import recipe_for
from sdp_bench.bench.noise import CAUCHY, GAUSSIAN, Noise
from sdp_bench.bench.plugins.code import no_exit
from sdp_bench.bench.plugins.plugin import Plugin
from sdp_bench.bench.results.record import LeftOut, Unit
from sdp_bench.bench.settings import Settings
from sdp_ref.activations import ACTIVATIONS
from sdp_ref.rules import MomentMatching, Propagator, Rule

FULL_RULES = ("sdp", "dvia", "moment_matching", "unscented")
MARGINAL_RULES = ("marginal_sdp", "marginal_moment_matching")
SAMPLING_RULES = (
    "monte_carlo:samples=5",
    "monte_carlo:samples=10",
    "monte_carlo:samples=100",
    "monte_carlo:samples=1000",
    "monte_carlo:samples=100,sampler=sobol",
)
ALL_RULES = (*FULL_RULES, *MARGINAL_RULES, *SAMPLING_RULES, ORACLE_MOMENTS.name)
CLAIMED_RULES = ("sdp", "dvia", "moment_matching", *MARGINAL_RULES, "monte_carlo:samples=100")

SIGMAS = (0.1, 1.0, 10.0, 100.0, 1000.0)
W1_SIGMAS = (0.01, 0.1, 1.0)
PIXEL_SIGMAS = (0.01, 0.02, 0.05, 0.1)
"""On images in [0, 1]."""
GAMMAS = (0.01, 0.1, 1.0)
"""Cauchy scales. Flowers are measured to 0.1 cm, and their classes lie about 1 cm apart: nearly all mass
near the flower, noise as large as rounding (yet 6 % of it beyond 1 cm), and noise as large as the classes.
From 10 on next to all mass is far from every flower, where a net is linear along each ray."""

_IMAGES = 10
"""Images in a group, which is the unit of resumption: ResNet-18 takes seconds for each."""

_SLOW = 0.02
"""Seconds for the covariances of one layer from which on moment matching is left out unless asked for."""

_RECIPES = (
    Recipe("sgd", 1e-2),
    Recipe("adam", 1e-4),
    Recipe("adam", 1e-3),
    Recipe("sgd", 1e-2, features="standardised"),
    Recipe("adam", 1e-3, features="standardised"),
)


def _architectures(**depths: Sequence[int]) -> tuple[Architecture, ...]:
    return tuple(Architecture(depth, kind) for kind, each in depths.items() for depth in each)


@dataclass(frozen=True)
class Suite:
    """A question asked of the rules.

    Attributes
    ----------
    name, description : str
    metrics : tuple of str
        Names of metrics, with what they fix themselves: ``tv_paper:bins=20``.
    sigmas : tuple of float
        Scales of the input noise (standard deviations if it is Gaussian), in the units of the net's input.
    architectures : tuple of Architecture
    rules : tuple of str
    size : (int, int)
        Nets an architecture and inputs a net, by the paper's design.
    recipes : tuple of Recipe
        One net for each; none: the architecture's own.
    own_inputs : bool
        Whether each net has inputs of its own, so that nets are independent replicates.
    scale : int
        Samples of the oracle, as a multiple of the setting.
    noise : Noise
        Family of the input noise.
    classifiers : tuple of ImageArchitecture
        Image classifiers that it asks about, beside `architectures`; any trained one will do.
    samples : int, optional
        Samples of the oracle and of each prediction by its own design, where that has fewer than `Settings`.
    """

    name: str
    description: str
    metrics: tuple[str, ...]
    sigmas: tuple[float, ...]
    architectures: tuple[Architecture, ...] = _architectures(relu=(1, 2, 4, 6))
    rules: tuple[str, ...] = ALL_RULES
    size: tuple[int, int] = (10, 10)
    recipes: tuple[Recipe, ...] = ()
    own_inputs: bool = False
    scale: int = 1
    noise: Noise = GAUSSIAN
    classifiers: tuple[ImageArchitecture, ...] = ()
    samples: int | None = None

    def asks_about(self, net: Net, settings: Settings) -> bool:
        """Whether a net is one of those that it asks for under `settings`."""
        if isinstance(net.architecture, ImageArchitecture):
            return net.architecture in self.classifiers
        known = (net.architecture, net.recipe) in self.kinds(settings)
        return known and net.seed < self.counts(settings)[0]

    def samples_of(self, settings: Settings) -> int:
        """Samples of the oracle under `settings`."""
        own = settings.draws.get(self.name, self.samples)
        if own is None or settings.samples_everywhere:
            return self.scale * settings.samples
        return self.scale * min(settings.samples, own)

    def measures(self, settings: Settings) -> list[Metric]:
        """Its metrics under `settings`, each once."""
        return list(dict.fromkeys(metric(text, settings.metric_options) for text in self.metrics))

    def kinds(self, settings: Settings) -> list[tuple[Architecture, Recipe]]:
        """What nets it asks for under `settings`."""
        found: dict[tuple[Architecture, Recipe], None] = {}
        for own in self.architectures:
            for depth in settings.depths or (own.depth,):
                architecture = Architecture(depth, settings.activation or own.activation, settings.width)
                for recipe in self._recipes(architecture, settings.training):
                    found[architecture, recipe] = None
        return list(found)

    def _recipes(self, architecture: Architecture, training: Mapping[str, Any]) -> list[Recipe]:
        if not self.recipes:
            return [replace(recipe_for(architecture), **training)]
        epochs = {key: value for key, value in training.items() if key == "epochs"}
        return [replace(recipe, **epochs) for recipe in self.recipes]

    def counts(self, settings: Settings) -> tuple[int, int]:
        """Nets an architecture and inputs a net under `settings`."""
        nets, inputs = settings.sizes.get(self.name, self.size)
        return settings.nets or nets, settings.inputs or inputs


_FOUR = _architectures(relu=(4,))
_TV = ("tv_headline", "tv_paper", "tv_class", "tv_difference")

SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite("iris-tv", "total variation on ReLU nets (paper: Tables 1, 7-10, 15-18)", _TV, SIGMAS),
        Suite(
            "iris-tv-deep",
            "total variation on deep ReLU nets (Tables 11-14)",
            _TV[:3],
            SIGMAS[:4],
            _architectures(relu=(9, 14, 19, 24)),
        ),
        Suite(
            "iris-tv-activations",
            "total variation with other non-linearities (Tables 23-27, 29-36)",
            _TV[:3],
            SIGMAS,
            _architectures(leaky_relu=(1, 2, 4, 6), sigmoid=(4,), silu=(1, 2, 4, 6), gelu=(1, 2, 4, 6)),
        ),
        Suite(
            "iris-w1",
            "Wasserstein-1 distance on ReLU nets (Tables 2, 19-22)",
            ("w1",),
            W1_SIGMAS,
            rules=(*FULL_RULES, *MARGINAL_RULES, ORACLE_MOMENTS.name),
        ),
        Suite(
            "iris-w1-certified",
            "the same between 30 000 points a side, with proven bounds",
            ("w1_certified",),
            W1_SIGMAS,
            _FOUR,
            rules=("sdp", "dvia", "moment_matching", *MARGINAL_RULES),
            size=(10, 1),
        ),
        Suite(
            "iris-std",
            "ratio of predicted to true standard deviations, and distances of moments (Table 28)",
            ("std_ratio", "bures", "gaussian_kl", "min_eigenvalue"),
            SIGMAS,
            rules=ALL_RULES[:-1],
        ),
        Suite(
            "iris-claims",
            "the paper's claims: nets as replicates, each with inputs of its own",
            ("tv_headline", "tv_paper", "tv_class", "std_ratio"),
            SIGMAS,
            _FOUR,
            CLAIMED_RULES,
            size=(30, 3),
            own_inputs=True,
        ),
        Suite(
            "iris-claims-w1",
            "the paper's claims about Wasserstein-1 distances",
            ("w1",),
            W1_SIGMAS,
            _architectures(relu=(4, 6)),
            CLAIMED_RULES[:-1],
            size=(30, 1),
            own_inputs=True,
        ),
        Suite(
            "iris-claims-recipe",
            "the paper's claims on nets trained in another way",
            ("tv_headline", "tv_paper", "tv_class", "std_ratio"),
            SIGMAS,
            _FOUR,
            CLAIMED_RULES,
            size=(30, 1),
            recipes=(Recipe("adam", 1e-3),),
            own_inputs=True,
        ),
        Suite(
            "iris-sensitivity",
            "Table 1 under other recipes, bins and cells",
            (
                *_TV[:3],
                "tv_headline:cells=64",
                "tv_headline:cells=4096",
                "tv_paper:bins=5",
                "tv_paper:bins=20",
                "tv_paper:bin_range=minmax",
                "tv_paper:bin_range=joint",
                "std_ratio",
            ),
            SIGMAS,
            _FOUR,
            ("sdp", "dvia", "moment_matching", "marginal_sdp", "monte_carlo:samples=100"),
            size=(5, 3),
            recipes=_RECIPES,
        ),
        Suite(
            "iris-oracle",
            "the oracle's own error: a second, independent oracle in the place of a rule",
            ("tv_headline", "tv_paper", "tv_class", "std_ratio"),
            SIGMAS[::2],
            _FOUR,
            ("sdp", "moment_matching", ORACLE_AGAIN.name),
            size=(2, 1),
        ),
        Suite(
            "iris-oracle-10x",
            "the same cells from ten times the samples",
            ("tv_headline", "tv_paper", "tv_class", "std_ratio"),
            SIGMAS[::2],
            _FOUR,
            ("sdp", "moment_matching", ORACLE_AGAIN.name),
            size=(2, 1),
            scale=10,
        ),
        Suite(
            "iris-cauchy",
            "Cauchy noise on ReLU nets: total variation and quantiles (not in the paper)",
            ("tv_joint", "tv_output", "tv_class", "quantile_mean", "quantile_max", "iqr_ratio"),
            GAMMAS,
            rules=("sdp", "marginal_sdp", ORACLE_AGAIN.name),
            noise=CAUCHY,
        ),
        Suite(
            "resnet-tv",
            "class distributions and logits of ResNet-18 on CIFAR-10 under pixel noise (Tables 3, 37)",
            (
                "tv_class",
                "tv_margin:pilot_samples=1000",
                "tv_pairs:pilot_samples=1000",
                "tv_sliced",
                "energy",
                "bures_logits",
            ),
            PIXEL_SIGMAS,
            (),
            ("sdp", *MARGINAL_RULES, "monte_carlo:samples=10", ORACLE_MOMENTS.name),
            size=(1, 500),
            classifiers=(ImageArchitecture("resnet18"),),
            samples=5000,
        ),
    )
}


@dataclass(frozen=True)
class Subject:
    """One input under one noise through one net: what an oracle tells the truth about.

    Attributes
    ----------
    key : OracleKey
    row : int
        Of the data set.
    wanted : tuple of (str, tuple of str)
        Metric specs, each with the rules it is measured for.
    """

    key: OracleKey
    row: int
    wanted: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Metrics and rules wanted, each pair once: suites may want the same."""
        return tuple(dict.fromkeys((metric, rule) for metric, rules in self.wanted for rule in rules))

    @property
    def rules(self) -> tuple[str, ...]:
        """All rules wanted, in order."""
        return tuple(dict.fromkeys(rule for _, rules in self.wanted for rule in rules))


@dataclass(frozen=True, eq=False)
class Group:
    """The unit of work, of commit and of resumption: a net and a noise level with all inputs.

    Attributes
    ----------
    net : TrainedNet or TrainedClassifier
    sigma : float
        Scale of the input noise; its standard deviation if it is Gaussian.
    subjects : tuple of Subject
    locations : Tensor, shape (number of subjects, *event), float32
    settings : Settings
    noise : Noise
    """

    net: Net
    sigma: float
    subjects: tuple[Subject, ...]
    locations: Tensor = field(repr=False)
    settings: Settings = field(repr=False)
    noise: Noise = GAUSSIAN

    @property
    def units(self) -> tuple[Unit, ...]:
        """Its subjects, as a results file keeps them."""
        net, noise = self.net.digest, self.noise.family
        return tuple(
            Unit(s.key.hex, net, s.row, noise, self.sigma, s.key.sampler, s.key.samples)
            for s in self.subjects
        )

    @property
    def title(self) -> str:
        """For progress lines."""
        noise = self.noise.parameter if self.noise == GAUSSIAN else f"{self.noise.name} noise"
        return f"{self.net.architecture.label} seed {self.net.seed} {noise} {self.sigma:g}"


@dataclass(frozen=True, eq=False)
class Plan:
    """A run in full: its groups, and which subjects belong to which suite.

    Attributes
    ----------
    suites : dict of str to (metric specs, rule specs)
    members : list of (str, str)
        Suite and oracle key.
    groups : list of Group
    left_out : tuple of LeftOut
        Rules that do not support these nets, and why.
    """

    suites: dict[str, tuple[tuple[str, ...], tuple[str, ...]]]
    members: list[tuple[str, str]]
    groups: list[Group]
    left_out: tuple[LeftOut, ...]


def get_suites(names: Sequence[str]) -> list[Suite]:
    """Suites by name.

    Raises
    ------
    UserError
        If a name is unknown; the message lists the valid ones.
    """
    for name in names:
        if name not in SUITES:
            raise UserError(f"unknown suite '{name}'; choose from {', '.join(SUITES)}")
    return [SUITES[name] for name in dict.fromkeys(names)]


def canonical_rules(specs: Sequence[str], plugins: Sequence[Plugin] = ()) -> tuple[str, ...]:
    """Rule specs in the one form that records use; names of `plugins` are in it already.

    Raises
    ------
    UserError
        If a rule or parameter is unknown or out of range.
    """
    for spec in specs:
        if "seed=" in spec:
            raise UserError(f"rule '{spec}': the suites seed a rule themselves, from each oracle's key")
    try:
        kept = {*references(), *(plugin.name for plugin in plugins)}
        named = (spec if spec in kept else sdp_ref.rule(spec).spec for spec in specs)
        return tuple(dict.fromkeys(named))
    except ValueError as error:
        raise UserError(str(error)) from error


def nets_wanted(suites: Sequence[Suite], settings: Settings) -> dict[tuple[Architecture, Recipe], int]:
    """How many nets of each kind the suites ask for together (seeds 0, 1, ...)."""
    wanted: dict[tuple[Architecture, Recipe], int] = {}
    for suite in suites:
        for kind in suite.kinds(settings):
            wanted[kind] = max(wanted.get(kind, 0), suite.counts(settings)[0])
    return wanted


def check(suites: Sequence[Suite], settings: Settings) -> None:
    """Raise a UserError for what can be known to be wrong before any net is trained."""
    for suite in suites:
        canonical_rules(settings.rules or suite.rules, settings.plugins)
        inputs = suite.counts(settings)[1]
        if suite.architectures and inputs > (flowers := len(IRIS.load().labels)):
            raise UserError(f"inputs must be between 1 and {flowers}, got {inputs}")
        for measured in suite.measures(settings):
            measured.check(settings.sampling, suite.samples_of(settings))


def expand(suites: Sequence[Suite], settings: Settings, nets: Sequence[Net]) -> Plan:
    """Groups of a run: suites that ask about the same law share its oracle.

    Raises
    ------
    UserError
        If a setting does not fit, or no rule supports the nets of any suite.
    """
    check(suites, settings)
    rules = {s.name: canonical_rules(settings.rules or s.rules, settings.plugins) for s in suites}
    left_out = _left_out({rule for specs in rules.values() for rule in specs}, nets, settings)
    unfit = {(s.noise, rule): _unfit(rule, s.noise, settings) for s in suites for rule in rules[s.name]}
    specs = {s.name: tuple(measured.spec for measured in s.measures(settings)) for s in suites}
    members: list[tuple[str, str]] = []
    groups: list[Group] = []
    used: dict[str, dict[str, None]] = {s.name: {} for s in suites}
    skipped: dict[LeftOut, None] = {}
    for net in nets:
        asking_suites = [suite for suite in suites if suite.asks_about(net, settings)]
        if not asking_suites:
            continue
        data = trained.inputs_of(net)
        asked: dict[tuple[float, Noise], dict[tuple[int, int], list[Suite]]] = {}
        usable: dict[str, tuple[str, ...]] = {}
        for suite in asking_suites:
            kind = net.architecture.activation
            fit = []
            for rule in rules[suite.name]:
                if reason := left_out.get((kind, rule)):
                    skipped[LeftOut(rule, kind, reason)] = None
                elif reason := unfit[suite.noise, rule]:
                    skipped[LeftOut(rule, f"{suite.noise.name} noise", reason)] = None
                else:
                    fit.append(rule)
            usable[suite.name] = tuple(fit)
            if not usable[suite.name]:
                continue
            used[suite.name] |= dict.fromkeys(usable[suite.name])
            inputs, samples = suite.counts(settings)[1], suite.samples_of(settings)
            if inputs > len(data.labels):
                raise UserError(f"inputs must be between 1 and {len(data.labels)}, got {inputs}")
            rows = stratified_rows(data.labels, inputs, net.seed + 1 if suite.own_inputs else 0)
            for sigma in settings.sigmas or suite.sigmas:
                for row in rows:
                    asking = asked.setdefault((sigma, suite.noise), {})
                    asking.setdefault((row, samples), []).append(suite)
        for (sigma, noise), asking in sorted(asked.items(), key=lambda item: item[0][0]):
            subjects: list[Subject] = []
            locations = data.batch([row for row, _ in asking])
            for location, ((row, samples), here) in zip(locations, asking.items(), strict=True):
                key = oracle_key(net, location, sigma, settings, samples, noise)
                wanted = tuple((spec, usable[s.name]) for s in here for spec in specs[s.name])
                subjects.append(Subject(key, row, wanted))
                members += [(s.name, key.hex) for s in here]
            step = _IMAGES if locations.ndim > 2 else len(subjects)
            groups += [
                Group(net, sigma, tuple(subjects[k : k + step]), locations[k : k + step], settings, noise)
                for k in range(0, len(subjects), step)
            ]
    if skipped and not any(used.values()):
        raise UserError(f"no rule is left: {'; '.join(dict.fromkeys(each.reason for each in skipped))}")
    if not groups:
        raise UserError("there is nothing to run: no net fits these suites and settings")
    plan = {s.name: (specs[s.name], tuple(used[s.name])) for s in suites if used[s.name]}
    return Plan(plan, members, groups, tuple(skipped))


def _left_out(rules: Iterable[str], nets: Sequence[Net], settings: Settings) -> dict[tuple[str, str], str]:
    """Why a rule does not run on nets of an activation, by (activation, rule)."""
    kinds = {net.architecture.activation: net for net in nets}
    found: dict[tuple[str, str], str] = {}
    for rule in rules:
        for kind, net in kinds.items():
            made = settings.rule(rule)
            if isinstance(made, Reference):
                continue
            slow = isinstance(made, MomentMatching) and kind in ACTIVATIONS
            if not settings.slow_rules and slow and ACTIVATIONS[kind].layer_seconds > _SLOW:
                found[kind, rule] = f"rule '{rule}' is slow on {kind} nets; --slow-rules runs it"
                continue
            try:
                _try(made, net)
            except sdp_ref.UnsupportedError as error:
                found[kind, rule] = str(error)
            except Exception:  # whatever else is wrong with a rule is for its groups to record
                continue
    return found


def _try(rule: Propagator, net: Net) -> None:
    """Let a rule look at a net, so that it can say that it has no formula for an op there."""
    module = net.build()
    with no_exit():
        if isinstance(rule, Rule):
            rule.prepare(module)
        else:
            rule.propagate(module, GAUSSIAN.law(trained.inputs_of(net).batch([0]), 1.0))


def _unfit(rule: str, noise: Noise, settings: Settings) -> str:
    """Why a rule does not take a family of noise; empty if it does."""
    if noise == GAUSSIAN:
        return ""
    made, law = settings.rule(rule), noise.law(torch.zeros(1, 1), 1.0)
    if isinstance(made, Reference):
        return made.refusal(law)
    try:
        with no_exit():
            made.propagate(nn.Linear(1, 1), law)
    except sdp_ref.UnsupportedError as error:
        return str(error)
    except Exception:  # for its groups to record
        return ""
    return ""


def oracle_key(
    net: Net, x: Tensor, sigma: float, settings: Settings, samples: int, noise: Noise = GAUSSIAN
) -> OracleKey:
    """Key of the law of the net's output at `x` with noise of scale `sigma` on each input."""
    return OracleKey(net.digest, keys.digest(x)[:16], noise.label(sigma), settings.sampler, samples)
