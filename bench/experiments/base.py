"""The base classes of experiments, and of the groups of work in their plans."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ..errors import UserError
from ..nets.architectures import Architecture, ClassifierArchitecture
from ..nets.recipes import Recipe
from ..settings import Settings, Size

if TYPE_CHECKING:
    import pandas as pd

    from ..nets.net import Net
    from ..results.folder import LeftOut


@dataclass(frozen=True)
class RuleBegun:
    """Message of a worker that it begins work for one rule only; if it dies, the rule is the cause."""

    rule: str


class Group(ABC):
    """What a worker needs to measure the rows of a group, besides the rows; it can be pickled.

    A group is stored as a whole; a run that resumes measures those of its rows that are left.
    """

    @property
    @abstractmethod
    def title(self) -> str:
        """Short description for progress lines."""

    @property
    def note(self) -> str:
        """Remark to print once before the work starts."""
        return ""

    @abstractmethod
    def seconds(self, rows: pd.DataFrame) -> float:
        """Return the estimated time (s) of some rows of the plan on one core."""

    @abstractmethod
    def measure(self, rows: pd.DataFrame) -> list[dict[str, Any]]:
        """Measure rows of the plan and return outcomes as of `sdp_bench.bench.results.columns.outcome`.

        An error raised by a rule, net, metric or oracle becomes an outcome; other errors are raised.
        """

    def joined(self, other: Self) -> Self:  # noqa: ARG002
        """Return the group of the work of both; they have the same name in the plan."""
        return self

    def only(self, units: Sequence[str]) -> Self:  # noqa: ARG002
        """Return the group of some of its units."""
        return self

    def part_of(self, unit: str) -> int:  # noqa: ARG002
        """Return the number of the part, measured by itself, to which a unit belongs."""
        return 0


@dataclass(frozen=True, eq=False)
class Plan:
    """The work of an experiment, or of a whole run.

    `rows` has a row for each measurement, see :data:`sdp_bench.bench.results.columns.PLAN`; that of a single
    experiment lacks the traits of rules. `groups` are by their names in the plan. `left_out` is what is not
    tried, with reasons.
    """

    rows: pd.DataFrame
    groups: Mapping[str, Group]
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Experiment(ABC):
    """A benchmark experiment: rules, metrics, and the settings in which they are compared.

    `title`, `about`: heading of its tables, and a paragraph below; empty if a dedicated section shows it.
    `rank`: position among the experiments, lowest first. `metrics`: names of metrics, with fixed options:
    ``tv_paper:bins=20``. `rules`: rules or methods to compare, as stored in records. `paper`: size of the
    paper's design. `presets`: differences from the paper's size, by preset. `classifiers`: classifiers of
    images or sequences that it measures; any trained one is used. `has_oracle`: whether its numbers are
    distances from an oracle, as opposed to scores on data.
    """

    has_oracle: ClassVar[bool] = True
    name: str
    description: str
    title: str = ""
    about: str = ""
    rank: int = 10**6
    metrics: tuple[str, ...]
    rules: tuple[str, ...]
    paper: Size
    presets: Mapping[str, Size] = field(default_factory=dict)
    classifiers: tuple[ClassifierArchitecture, ...] = ()

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if str(item.type).startswith("tuple[") and not isinstance(value, tuple):
                raise UserError(f"experiment '{self.name}': {item.name} must be a tuple, got {value!r}")
        for name, size in self.presets.items():
            if not isinstance(size, Size):
                raise UserError(f"experiment '{self.name}': the preset {name} must have a Size, got {size!r}")

    def size(self, settings: Settings) -> Size:
        """Return the size under `settings`."""
        design, given = settings.design, settings.sizes.get(self.name, Size())
        return Size(
            design.nets or given.nets or self.paper.nets,
            design.inputs or given.inputs or self.paper.inputs,
            design.samples or given.samples or self.paper.samples,
            design.training.get("epochs") or given.epochs or self.paper.epochs,
            design.datasets or given.datasets or self.paper.datasets,
            given.on_request or self.paper.on_request,
            None if design.depths else given.depths or self.paper.depths,
            design.sigmas or given.sigmas or self.paper.sigmas,
            given.steps or self.paper.steps,
        )

    @abstractmethod
    def takes(self, option: str) -> bool:
        """Return whether the experiment has an option of `sdp_bench.bench.settings.Settings.but`."""

    @abstractmethod
    def extent(self, settings: Settings) -> str:
        """Describe nets, sizes and noise on one line."""

    def kinds(self, settings: Settings) -> Sequence[tuple[Architecture, Recipe]]:  # noqa: ARG002
        """Return the kinds of net to train, each with seeds 0, 1, ... up to its size."""
        return ()

    def check(self, settings: Settings) -> None:  # noqa: B027 (there may be nothing to refuse)
        """Raise a UserError if a setting cannot work, before any net is trained."""

    @abstractmethod
    def plan(self, settings: Settings, nets: Sequence[Net]) -> Plan:
        """Return the work on its nets among `nets`; some experiments bring their own.

        A UserError is raised if a setting is invalid, and a DataMissingError if data are missing.
        """
