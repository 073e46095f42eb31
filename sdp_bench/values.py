"""Values of options, read in one way from the command line, from a TOML file and from Python.

A kind of value reads text. TOML and Python have typed values: :func:`converted` checks their types and reads
them like text. A UserError says what is wrong with a value; callers add the name of the option.
"""

from __future__ import annotations

import errno
import itertools
import math
import os
import re
import stat
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from sdp_bench.bench.badge import ENDS
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.text import printable

KIT_LIMIT = 600.0
"""Default time limit of the conformance kit in `validate`, in seconds."""
GROUP_LIMIT = 1800.0
"""Default time limit of a group in `validate`, in seconds."""


class Kind(ABC):
    """A kind of value; `types` are those of TOML and Python that it accepts, and `described` names them."""

    name: str
    """Name in the usage of a command."""
    types: ClassVar[tuple[type, ...]] = (str,)
    described: ClassVar[str] = "a string"

    @abstractmethod
    def read(self, value: Any) -> Any:
        """Read a text, or return a value that was read before; raises UserError for anything else."""


def converted(kind: Kind, value: Any, *, several: bool = False) -> Any:
    """Read a value of a TOML file or of Python; with `several`, one value or a list of them as a tuple."""
    item = kind.item if isinstance(kind, ListOf) else kind
    accepts_list = several or isinstance(kind, ListOf)
    items = value if accepts_list and isinstance(value, list) else [value]
    if not items:
        raise UserError("the array is empty; leave the key out")
    for entry in items:
        is_unexpected_bool = isinstance(entry, bool) and bool not in item.types  # Python's bool is an int
        if not isinstance(entry, item.types) or is_unexpected_bool:
            also = " or an array of these" if accepts_list else ""
            raise UserError(f"expected {item.described}{also}, not {entry!r:.60}")
    texts = [entry if isinstance(entry, bool) else str(entry) for entry in items]
    if several:
        return tuple(kind.read(text) for text in texts)
    return kind.read(texts if accepts_list else texts[0])


class Flag(Kind):
    name = "boolean"
    types = (bool,)
    described = "true or false"

    def read(self, value: Any) -> bool:
        return bool(value)


class Word(Kind):
    """Non-empty text of printable characters."""

    name = "text"

    def read(self, value: Any) -> str:
        text = str(value)
        if not text.strip():
            raise UserError("value must not be empty; leave the option out")
        if printable(text) != text or len(text.splitlines()) > 1:
            raise UserError(f"'{printable(text)}' has control characters, shown as ?")
        return text


@dataclass(frozen=True)
class Choice(Kind):
    """One of some words."""

    choices: tuple[str, ...]
    name = "choice"

    def read(self, value: Any) -> str:
        if value not in self.choices:
            raise UserError(f"{value!r} is not one of {', '.join(map(repr, self.choices))}.")
        return str(value)


_NumberT = TypeVar("_NumberT", int, float)


@dataclass(frozen=True)
class _Range(Kind):
    """A number between limits; with `is_open`, above the lower one."""

    low: float | None = None
    high: float | None = None
    is_open: bool = False

    def _parsed(self, value: Any, kind: type[_NumberT]) -> _NumberT:
        try:
            number = kind(value)
        except ValueError:
            raise UserError(f"{value!r} is not a valid {self.name}.") from None
        self._check(number)
        return number

    def _check(self, number: float) -> None:
        less, above = ("<", ">") if self.is_open else ("<=", ">=")
        too_low = self.low is not None and (number <= self.low if self.is_open else number < self.low)
        if not too_low and (self.high is None or not number > self.high):
            return
        if self.low is None:
            limits = f"x<={self.high}"
        elif self.high is None:
            limits = f"x{above}{self.low}"
        else:
            limits = f"{self.low}{less}x<={self.high}"
        raise UserError(f"{number} is not in the range {limits}.")


class Whole(_Range):
    name = "integer range"
    types = (int,)
    described = "a whole number"

    def read(self, value: Any) -> int:
        return self._parsed(value, int)


class Real(_Range):
    """A finite number."""

    name = "float range"
    types = (int, float)
    described = "a number"

    def read(self, value: Any) -> float:
        number = self._parsed(value, float)
        if not math.isfinite(number):  # NaN is in every range
            raise UserError(f"{value} is not a finite number")
        return number


@dataclass(frozen=True)
class ListOf(Kind):
    """Values of the kind `item`, separated by commas; or a list of their texts."""

    item: Kind
    name: str = "numbers"

    def split(self, text: str) -> Iterable[str]:
        return text.split(",")

    def read(self, value: Any) -> tuple[Any, ...]:
        if isinstance(value, tuple):
            return value
        texts = [WORD.read(text) for text in (value if isinstance(value, list) else [value])]
        parts = [part for text in texts for part in self.split(text)]
        try:
            return tuple(self.item.read(part) for part in parts)
        except UserError as error:
            text = ",".join(texts)
            raise UserError(f"'{text}' is not a list of {self.name} separated by commas: {error}") from error


class RuleSpecs(ListOf):
    """Specs separated by commas, as :func:`specs_of` reads them."""

    def split(self, text: str) -> Iterable[str]:
        return specs_of(text)


class Shard(Kind):
    """A part i/n, counted from 1."""

    name = "i/n"

    def read(self, value: Any) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        parts = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", str(value))
        if parts is None or not 1 <= int(parts[1]) <= int(parts[2]):
            raise UserError(f"'{value}' is not a part i/n with 1 <= i <= n")
        return int(parts[1]), int(parts[2])


_LARGEST_FRACTION = 0.1


class Share(Kind):
    """A share above 0 and at most 100 %: ``2%`` or ``0.02``.

    Without a percent sign it is at most 0.1, because ``1`` may be meant as 1 %.
    """

    name = "share"
    types = (str, int, float)
    described = "a share, such as '2%' or 0.02"

    def read(self, value: Any) -> float:
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            raise UserError(f"'{value}' is not a share; write 2% or 0.02") from None
        if not 0 < share <= 1:
            raise UserError(f"'{value}' is not above 0 and at most 100%")
        if share > _LARGEST_FRACTION and not text.endswith("%"):
            raise UserError(f"'{value}' needs a percent sign: {text}% or {100 * share:g}%")
        return share


@dataclass(frozen=True)
class Location(Kind):
    """The path of a file, or with ``name="directory"`` of a folder; file systems must accept its name.

    With `streams` it may be a device or a pipe, such as ``/dev/stdout``. Files that are read as a whole must
    be regular, since reading a stream might never end.
    """

    name: str = field(default="file", kw_only=True)
    streams: bool = field(default=False, kw_only=True)

    @property
    def is_folder(self) -> bool:
        return self.name == "directory"

    def read(self, value: Any) -> Path:
        text = os.fspath(value)
        if not text or any(unicodedata.category(character) == "Cc" for character in text):
            raise UserError("a file name must not be empty or contain control characters")
        path, described = Path(text), f"{self.name.title()} {printable(text)!r}"
        try:
            mode = path.stat().st_mode
        except OSError as error:
            if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
                raise UserError(f"{text}: {error.strerror}") from error
            return path
        if not self.streams and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise UserError(f"{text} is a device or a pipe, not a regular file")
        if self.is_folder and stat.S_ISREG(mode):
            raise UserError(f"{described} is a file.")
        if not self.is_folder and stat.S_ISDIR(mode):
            raise UserError(f"{described} is a directory.")
        if not os.access(path, os.R_OK):
            raise UserError(f"{described} is not readable.")
        return path


class ResultsFolder(Location):
    """Folder of results; files of older versions are refused where they are opened, with what reads them."""

    def read(self, value: Any) -> Path:
        path = Path(os.fspath(value))
        return path if os.path.isfile(path) else super().read(value)  # noqa: PTH113  which takes any text


class BadgeFile(Location):
    """File of a badge; the suffix selects its format."""

    def read(self, value: Any) -> Path:
        path = super().read(value)
        if path.suffix not in ENDS:
            raise UserError(f"{path}: a badge is a file {' or '.join(ENDS)}")
        return path


MOST_RULES = 1000
"""Largest number of rules in one spec."""

_LIST = re.compile(r"=\s*\{([^{}]*)\}\s*(?=,|$)")
_STRAY = re.compile(r"(?<![^,:])([^,:=]*)=([^,]*[{}][^,]*)")
_INNER = "\0"  # replaces commas in braces; no text that arrives here contains it


def specs_of(text: str) -> tuple[str, ...]:
    """Return the specs in a text, without braces.

    Specs are separated by commas, as in ``sdp,monte_carlo:samples={10,100}``; a part with '=' and without ':'
    continues the previous spec. A list in braces as a parameter's value stands for a rule with each value,
    and several lists for all combinations, the last one varying fastest. Raises UserError if braces are used
    in other ways, a list lacks a value, or a spec stands for more than `MOST_RULES` rules.
    """
    specs: list[str] = []
    for part in _LIST.sub(lambda match: match[0].replace(",", _INNER), text).split(","):
        if "=" in part and ":" not in part and specs:
            specs[-1] += f",{part}"
        else:
            specs.append(part.strip())
    return tuple(expanded for spec in specs for expanded in _expanded(spec.replace(_INNER, ",")))


def _expanded(spec: str) -> list[str]:
    if stray := _STRAY.search(_LIST.sub("=", spec)):
        raise UserError(
            f"'{spec}': the values of '{stray[1].strip()}' must be one pair of braces, for example "
            f"{stray[1].strip()}={{10,100}}"
        )
    texts = _LIST.split(spec)  # texts between lists alternate with the contents of lists
    lists = [[value.strip() for value in inside.split(",")] for inside in texts[1::2]]
    if any(not value for values in lists for value in values):
        raise UserError(f"'{spec}': a list in braces lacks a value")
    names = re.findall(r"(?<![^,:])\s*([^,:=]*?)\s*=", _LIST.sub("=", spec)) if lists else []
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"'{spec}': '{twice[0]}' is given twice")
    fixed = texts[::2]
    if (count := math.prod(map(len, lists))) > MOST_RULES:
        raise UserError(f"'{fixed[0]}={{...}}' stands for {count} rules; write at most {MOST_RULES}")
    return [
        fixed[0] + "".join(f"={value}{after}" for value, after in zip(values, fixed[1:], strict=True))
        for values in itertools.product(*lists)
    ]


FLAG = Flag()
WORD = Word()
RULES = RuleSpecs(WORD, "rules")
FILE = Location()
FOLDER = Location(name="directory")
RESULTS = ResultsFolder(name="directory")
STREAM = Location(streams=True)
"""A file to write, or an existing terminal or pipe."""
BADGE = BadgeFile()
SHARD = Shard()
SHARE = Share()
QUANTITIES = ListOf(WORD, "quantities")
COUNT = Whole(1, 10**6)
MAX_SAMPLES = Whole(1, 10**12)
BUDGET_SAMPLES = Whole(100, 10**6)
WORKERS = Whole(1, 10_000)
NETS = Whole(1, 10_000)
SEED = Whole(0, 2**63 - 1)
RUNS = ListOf(WORD)
SAMPLES = Whole(high=10**8)  # a lower limit is checked where a number is used
W1_POINTS = Whole(100, 20_000)  # fewer have no floor
DEPTHS = ListOf(Whole(high=1000))
SIGMAS = ListOf(Real(high=1e18))  # their squares fit into float32
POSITIVE = Real(0, is_open=True)
SECONDS = Real(0, 1e8, is_open=True)
GIBIBYTES = Real(0, 1e6, is_open=True)
