"""What an experiment is, a question asked of rules, and the groups of work that answer it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Self

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.nets.architectures import Architecture, ClassifierArchitecture
from sdp_bench.bench.nets.recipes import Recipe
from sdp_bench.bench.results.record import Cell, Failure, LeftOut, Record, Unit
from sdp_bench.bench.settings import Settings, Size

if TYPE_CHECKING:
    from sdp_bench.bench.experiments.scope import Scope


class Group(ABC):
    """The unit of work, of commit and of resumption. It can be pickled, and knows all that its work needs."""

    @property
    @abstractmethod
    def units(self) -> tuple[Unit, ...]:
        """What it is measured on."""

    @property
    @abstractmethod
    def members(self) -> tuple[tuple[str, str], ...]:
        """Pairs of an experiment and the key of a unit that it asks about, each once."""

    @property
    @abstractmethod
    def cells(self) -> tuple[Cell, ...]:
        """All that is to be measured, each once."""

    @property
    @abstractmethod
    def title(self) -> str:
        """For progress lines."""

    @property
    def note(self) -> str:
        """What there is to say of it, once, before it is worked on."""
        return ""

    @property
    @abstractmethod
    def seconds(self) -> float:
        """Time (s) it takes on one core, about."""

    @abstractmethod
    def versions_of(self, rule: str, metric: str) -> str:
        """Versions that the numbers of a rule and metric rest on, as records have them."""

    @abstractmethod
    def measure(self, cells: Collection[Cell]) -> Iterator[Record | Failure]:
        """Measure some of its cells, piece by piece; records of others may be among them.

        What a rule, net or metric raises becomes a failure; a mistake of the project's own is raised.
        """

    def left(self, current: Collection[Cell]) -> list[Cell]:
        """Its cells that are not current."""
        return [cell for cell in self.cells if cell not in current]

    @classmethod
    def shared(cls, groups: Sequence[Self]) -> Sequence[Self]:
        """Groups of several experiments as they are worked on: those that ask about the same law together.

        Parameters
        ----------
        groups : sequence of this class

        Returns
        -------
        sequence of this class
        """
        return groups


@dataclass(frozen=True, eq=False)
class Expansion:
    """What an experiment comes to under some settings.

    Attributes
    ----------
    groups : sequence of Group
    left_out : tuple of LeftOut
        Rules that do not support its nets, and why.
    """

    groups: Sequence[Group]
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Experiment(ABC):
    """A question.

    Attributes
    ----------
    name, description : str
    title, about : str
        Heading of its tables, and a paragraph below that; empty where a section of its own shows it.
    rank : int
        Place among the experiments, the lowest first.
    metrics : tuple of str
        Names of metrics, with what they fix themselves: ``tv_paper:bins=20``.
    rules : tuple of str
        What is compared, as records have it: rules, or methods.
    paper : Size
        By the paper's design.
    presets : mapping of str to Size
        By preset, what is not as in the paper.
    classifiers : tuple of ClassifierArchitecture
        Classifiers of images or sequences that it asks about; any trained one will do.
    """

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
        """How much it does under `settings`."""
        design, given = settings.design, settings.sizes.get(self.name, Size())
        return Size(
            design.nets or given.nets or self.paper.nets,
            design.inputs or given.inputs or self.paper.inputs,
            given.samples or self.paper.samples,
            design.training.get("epochs") or given.epochs or self.paper.epochs,
            design.datasets or given.datasets or self.paper.datasets,
            given.on_request or self.paper.on_request,
            None if design.depths else given.depths or self.paper.depths,
            design.sigmas or given.sigmas or self.paper.sigmas,
            given.steps or self.paper.steps,
        )

    @abstractmethod
    def takes(self, option: str) -> bool:
        """Whether it goes by one of the options of :meth:`sdp_bench.bench.settings.Settings.but`."""

    @property
    @abstractmethod
    def has_oracle(self) -> bool:
        """Whether its numbers are distances to an oracle, and not scores on data."""

    @abstractmethod
    def extent(self, settings: Settings) -> str:
        """On what, how much and under which noise, on one line."""

    def kinds(self, settings: Settings) -> Sequence[tuple[Architecture, Recipe]]:  # noqa: ARG002
        """Kinds of net that have to be trained for it, each with seeds 0, 1, ... up to its size."""
        return ()

    def check(self, settings: Settings) -> None:  # noqa: B027 (there may be nothing to refuse)
        """Refuse what can be known not to work before any net is trained.

        Raises
        ------
        UserError
            If a setting does not fit.
        """

    @abstractmethod
    def expand(self, scope: Scope) -> Expansion:
        """Its groups of work.

        Raises
        ------
        UserError
            If a setting does not fit, or no rule supports any of the nets.
        DataMissingError
            If its data are not there.
        """
