"""The suites: which rules, noise and metrics; and their expansion into groups of work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

import sdp_ref
from bench import datasets, keys
from bench.errors import UserError
from bench.keys import OracleKey
from bench.settings import Settings
from bench.training import TrainedNet

ALL_RULES = (
    "sdp",
    "dvia",
    "moment_matching",
    "monte_carlo:samples=5",
    "monte_carlo:samples=10",
    "monte_carlo:samples=100",
    "monte_carlo:samples=1000",
    "marginal_sdp",
    "marginal_moment_matching",
)


@dataclass(frozen=True)
class Suite:
    """A question asked of the rules.

    Attributes
    ----------
    name, description : str
    metrics : tuple of str
        Names in :data:`bench.measures.METRICS`.
    sigmas : tuple of float
        Standard deviations of the input noise, in the units of the net's input.
    rules : tuple of str
    count : str
        The setting that says how many inputs a net it takes.
    """

    name: str
    description: str
    metrics: tuple[str, ...]
    sigmas: tuple[float, ...]
    rules: tuple[str, ...] = ALL_RULES
    count: str = "inputs"


SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite(
            "iris-tv",
            "total variation of the output's law on Iris nets (paper: Table 1)",
            ("tv_headline", "tv_paper", "tv_class", "tv_difference"),
            (0.1, 1.0, 10.0, 100.0, 1000.0),
        ),
        Suite(
            "iris-w1",
            "Wasserstein-1 distance on Iris nets (paper: Table 2)",
            ("w1",),
            (0.01, 0.1, 1.0),
            ("sdp", "dvia", "moment_matching", "marginal_sdp", "marginal_moment_matching"),
            count="w1_inputs",
        ),
        Suite(
            "iris-std",
            "ratio of predicted to true standard deviations, and distances of moments, on Iris nets",
            ("std_ratio", "bures", "gaussian_kl", "min_eigenvalue"),
            (0.1, 1.0, 10.0, 100.0, 1000.0),
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
    def rules(self) -> tuple[str, ...]:
        """All rules wanted, in order."""
        return tuple(dict.fromkeys(rule for _, rules in self.wanted for rule in rules))


@dataclass(frozen=True, eq=False)
class Group:
    """The unit of work, of commit and of resumption: a net and a noise level with all inputs.

    Attributes
    ----------
    net : TrainedNet
    sigma : float
        Standard deviation of the input noise.
    subjects : tuple of Subject
    locations : Tensor, shape (number of subjects, n), float32
    settings : Settings
    """

    net: TrainedNet
    sigma: float
    subjects: tuple[Subject, ...]
    locations: Tensor = field(repr=False)
    settings: Settings = field(repr=False)

    @property
    def title(self) -> str:
        """For progress lines."""
        return f"{self.net.architecture.label} seed {self.net.seed} sigma {self.sigma:g}"


@dataclass(frozen=True, eq=False)
class Plan:
    """A run in full: its groups, and which subjects belong to which suite.

    Attributes
    ----------
    suites : dict of str to (metric specs, rule specs)
    members : list of (str, str)
        Suite and oracle key.
    groups : list of Group
    left_out : dict of str to str
        Rules that do not support these nets, and why.
    """

    suites: dict[str, tuple[tuple[str, ...], tuple[str, ...]]]
    members: list[tuple[str, str]]
    groups: list[Group]
    left_out: dict[str, str]

    def shard(self, part: int, parts: int) -> Plan:
        """Every `parts`-th group from the `part`-th on (counted from 1): a machine's share of a run."""
        groups = self.groups[part - 1 :: parts]
        kept = {s.key.hex for group in groups for s in group.subjects}
        return replace(self, groups=groups, members=[m for m in self.members if m[1] in kept])


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


def canonical_rules(specs: Sequence[str]) -> tuple[str, ...]:
    """Rule specs in the one form that records use.

    Raises
    ------
    UserError
        If a rule or parameter is unknown or out of range.
    """
    for spec in specs:
        if "seed=" in spec:
            raise UserError(f"rule '{spec}': the suites seed a rule themselves, from each oracle's key")
    try:
        return tuple(dict.fromkeys(sdp_ref.rule(spec).spec for spec in specs))
    except ValueError as error:
        raise UserError(str(error)) from error


def expand(suites: Sequence[Suite], settings: Settings, nets: Sequence[TrainedNet]) -> Plan:
    """Groups of a run: suites that ask about the same law share its oracle.

    Raises
    ------
    UserError
        If a rule is unknown, or none of a suite's rules supports the nets.
    """
    from bench import measures

    if any("w1" in suite.metrics for suite in suites):
        settings.check_w1()
    asked_for = {s.name: canonical_rules(settings.rules or s.rules) for s in suites}
    left_out = _unsupported({rule for rules in asked_for.values() for rule in rules}, nets)
    rules = {name: tuple(r for r in specs if r not in left_out) for name, specs in asked_for.items()}
    for name, usable in rules.items():
        if not usable:
            raise UserError(f"no rule is left for {name}: {'; '.join(left_out.values())}")
    specs = {s.name: tuple(measures.spec(metric, settings) for metric in s.metrics) for s in suites}
    members: list[tuple[str, str]] = []
    groups: list[Group] = []
    for net in nets:
        data = datasets.iris(net.recipe.features)
        rows = datasets.stratified_rows(data.labels, settings.inputs)
        asked: dict[float, list[Suite]] = {}
        for suite in suites:
            for sigma in settings.sigmas or suite.sigmas:
                asked.setdefault(sigma, []).append(suite)
        for sigma, asking in sorted(asked.items()):
            subjects: list[Subject] = []
            for place, row in enumerate(rows):
                here = [s for s in asking if place < getattr(settings, s.count)]
                if not here:
                    continue
                key = oracle_key(net, data.features[row], sigma, settings)
                wanted = tuple((spec, rules[s.name]) for s in here for spec in specs[s.name])
                subjects.append(Subject(key, row, wanted))
                members += [(s.name, key.hex) for s in here]
            if subjects:
                locations = data.features[[s.row for s in subjects]]
                groups.append(Group(net, sigma, tuple(subjects), locations, settings))
    return Plan({s.name: (specs[s.name], rules[s.name]) for s in suites}, members, groups, left_out)


def _unsupported(rules: Iterable[str], nets: Sequence[TrainedNet]) -> dict[str, str]:
    """Rules that have no formula for a net's activation, each with its own words for that."""
    kinds = {net.architecture.activation: net for net in nets}
    found: dict[str, str] = {}
    for rule in rules:
        for net in kinds.values():
            try:
                sdp_ref.rule(rule).prepare(net.build())
            except sdp_ref.UnsupportedError as error:
                found[rule] = str(error)
            except Exception:  # whatever else is wrong with a rule is for its groups to record
                continue
    return found


def oracle_key(net: TrainedNet, x: Tensor, sigma: float, settings: Settings) -> OracleKey:
    """Key of the law of the net's output at `x` with noise of sd `sigma` on each input."""
    return OracleKey(
        net.digest, keys.digest(x)[:16], f"gaussian:sigma={sigma!r}", settings.sampler, settings.samples
    )
