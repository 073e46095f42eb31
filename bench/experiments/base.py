"""The base classes of experiments, and of the groups of work that they consist of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, ClassVar, Self

from ..errors import UserError
from ..nets.architectures import Architecture, ClassifierArchitecture
from ..nets.recipes import Recipe
from ..results.record import Cell, Failure, LeftOut, Record, Unit
from ..settings import Settings, Size

if TYPE_CHECKING:
    from .predict import Scope


class Group(ABC):
    """A unit of work, stored and resumed as a whole. It can be pickled and contains all that it needs."""

    @property
    @abstractmethod
    def units(self) -> tuple[Unit, ...]:
        """Return the units that it measures: a net with one input and one noise level, for example."""

    @property
    @abstractmethod
    def members(self) -> tuple[tuple[str, str], ...]:
        """The distinct pairs of an experiment and the key of a unit."""

    @property
    @abstractmethod
    def cells(self) -> tuple[Cell, ...]:
        """Return the distinct cells to measure."""

    @property
    @abstractmethod
    def title(self) -> str:
        """Short description for progress lines."""

    @property
    def note(self) -> str:
        """Remark to print once before the work starts."""
        return ""

    @property
    @abstractmethod
    def seconds(self) -> float:
        """Estimated time (s) on one core."""

    @abstractmethod
    def versions_of(self, rule: str, metric: str) -> str:
        """Versions that the numbers of a rule and metric rest on, as records have them."""

    @abstractmethod
    def measure(self, cells: Collection[Cell]) -> Iterator[Record | Failure]:
        """Measure some cells and yield results as they arrive; records of other cells may be among them.

        An error raised by a rule, net or metric becomes a failure. An error of the project itself is raised.
        """

    def left(self, current: Collection[Cell]) -> list[Cell]:
        """Its cells that are not current."""
        return [cell for cell in self.cells if cell not in current]

    @classmethod
    def shared(cls, groups: Sequence[Self]) -> Sequence[Self]:
        """Return groups of several experiments, with groups of the same law joined."""
        return groups


@dataclass(frozen=True, eq=False)
class Expansion:
    """The work of an experiment under some settings.

    `left_out`: rules that do not support its nets, with reasons.
    """

    groups: Sequence[Group]
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
        for each in fields(self):
            if str(each.type).startswith("tuple[") and not isinstance(
                value := getattr(self, each.name), tuple
            ):
                raise UserError(f"experiment '{self.name}': {each.name} must be a tuple, got {value!r}")
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
    def expand(self, scope: Scope) -> Expansion:
        """Return the groups of work.

        A UserError is raised if a setting is invalid or no rule supports any of the nets, and a
        DataMissingError if its data are missing.
        """
