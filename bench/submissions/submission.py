"""What a submission says, and how it is read: one JSON file of the published schema, from anybody."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from sdp_bench.bench import files
from sdp_bench.bench.documents import structure, unstructure
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.identity import keys
from sdp_bench.bench.plugins.plugin import Plugin
from sdp_bench.bench.rules import is_address
from sdp_bench.bench.text import printable
from sdp_ref.errors import on_one_line

SCHEMA = 1
SCHEMA_FILE = Path(__file__).with_name("schema.json")
MOST = 4 * 2**20
"""Bytes of a file: ours take a fortieth of that."""
OWN_PACKAGE = "sdp-bench"

Numbers = list[float | None]
"""Value, floor, 95 % point of the floor, standard error; what is not known is None."""


@dataclass(frozen=True)
class ProblemSetName:
    """Which problems were asked: a set and the digest of its files."""

    name: str
    digest: str


@dataclass(frozen=True)
class Source:
    """Where a rule's code is.

    Attributes
    ----------
    package : str
        ``name==version`` of what has to be installed; ``sdp-bench==...`` alone for a built-in rule.
    plugin : dict, optional
        The code itself, as a results file keeps it; none of a built-in rule.
    """

    package: str = ""
    plugin: dict[str, Any] | None = None


@dataclass(frozen=True)
class Entered:
    """A rule, and who enters it.

    Attributes
    ----------
    name : str
        Its spec, as records have it.
    label : str
        For people.
    version, licence : str
    authors : list of str
    source : Source
    url : str
        Where there is more of it; empty if nowhere.
    sampling : int, optional
        Draws of the net that it makes, 0 if their number is not known; None if it makes none.
    """

    name: str
    label: str
    version: str
    licence: str
    authors: list[str]
    source: Source
    url: str = ""
    sampling: int | None = None

    @property
    def slug(self) -> str:
        """Its name where a file or an address is named by it."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-") or "rule"


@dataclass(frozen=True)
class Guarantee:
    """A bound that a rule's author stakes its name on.

    Attributes
    ----------
    metric : str
        Name of a metric.
    component : str
        End of the components that are meant, ``90%``; empty: all.
    relation : {"<=", ">="}
    bound : float
    at : str
        Problems that are meant, with ``*`` for any text.
    """

    metric: str
    relation: str
    bound: float
    component: str = ""
    at: str = "*"

    @classmethod
    def of(cls, text: str) -> Guarantee:
        """Guarantee as it is written: ``coverage 90% >= 0.9 at iris-*``.

        Returns
        -------
        Guarantee

        Raises
        ------
        UserError
            If the text is none.
        """
        found = _GUARANTEE.fullmatch(text.strip())
        bound = float(found["bound"]) if found else math.nan
        if found is None or not math.isfinite(bound):
            raise UserError(
                f"'{printable(text)}' is no guarantee; write one as 'coverage 90% >= 0.9' or 'tv_headline <= "
                "0.1 at iris-*'"
            )
        return cls(found["metric"], found["relation"], bound, found["component"] or "", found["at"] or "*")

    def __str__(self) -> str:
        component = f" {self.component}" if self.component else ""
        where = "" if self.at == "*" else f" at {self.at}"
        return f"{self.metric}{component} {self.relation} {self.bound:g}{where}"

    def beyond(self, value: float) -> float:
        """By how much a value violates it; not above 0 if it keeps it."""
        return value - self.bound if self.relation == "<=" else self.bound - value


_GUARANTEE = re.compile(
    r"(?P<metric>\w+)(?: +(?P<component>[^<>=]*?[^<>= ]))? *(?P<relation><=|>=) *(?P<bound>[-+.\deE]*\d\.?)"
    r"(?: +at +(?P<at>\S+))?"
)


@dataclass(frozen=True)
class Kit:
    """What the conformance kit found.

    Attributes
    ----------
    kit, seed : int
        Version of the kit, and seed of its cases.
    passed, skipped : int
        How many checks.
    failed : list of str
        Names of checks that failed and are not declared.
    known : dict of str to str
        Checks that failed as the rule declares, and why.
    """

    kit: int
    seed: int
    passed: int
    skipped: int
    failed: list[str] = field(default_factory=list)
    known: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cost:
    """What one prediction costs beside a pass of the net, by times taken by turns.

    Attributes
    ----------
    median, lower, upper : float
        Of the ratio: median and quartiles.
    passes : float
        Of inputs through the net's own forward, for one prediction; layer-wise rules let few through.
    """

    median: float
    lower: float
    upper: float
    passes: float


@dataclass(frozen=True)
class Said:
    """Moments that a rule predicts for a problem: of a law without a variance locations and scales.

    Attributes
    ----------
    family : str
    mean, sd : list of float
    """

    family: str
    mean: list[float]
    sd: list[float]


@dataclass(frozen=True)
class Submission:
    """A rule with all that was measured of it.

    Attributes
    ----------
    schema : int
    created : str
        ISO 8601 date.
    problem_set : ProblemSetName
    rule : Entered
    hardware : dict of str to str
    guarantees : list of Guarantee
    conformance : Kit, optional
        None if the kit was not run.
    cost : dict of str to Cost
        By place.
    predictions : dict of str to Said
        By problem.
    measurements : dict
        Numbers by problem, metric and component (empty where there is one number).
    refused : dict
        Why there are none, by problem and metric; all metrics if that is empty.
    digest : str
        Of all the rest: an accident shows, a forger makes a new one.
    """

    schema: int
    created: str
    problem_set: ProblemSetName
    rule: Entered
    hardware: dict[str, str]
    guarantees: list[Guarantee]
    conformance: Kit | None
    cost: dict[str, Cost]
    predictions: dict[str, Said]
    measurements: dict[str, dict[str, dict[str, Numbers]]]
    refused: dict[str, dict[str, str]]
    digest: str = ""

    @property
    def content_digest(self) -> str:
        """Hash of all but the digest that is written, 64 hexadecimal digits."""
        return keys.digest({name: part for name, part in self.as_json().items() if name != "digest"})

    @property
    def slug(self) -> str:
        """See `Entered`."""
        return self.rule.slug

    @property
    def plugin(self) -> Plugin | None:
        """Code of the rule, which is not trusted; None if it is built in.

        Raises
        ------
        UserError
            If what is written is no code, or has the name of a built-in rule.
        """
        if self.rule.source.plugin is None:
            return None
        try:
            found = Plugin.from_json(self.rule.source.plugin)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError("the source of the rule is no plug-in") from error
        if found.name != self.rule.name or found.kind != "rule":
            raise UserError(f"the source is that of {found.kind} '{printable(found.name)[:80]}'")
        if not is_address(found.name):  # what is measured under such a name is the package's own
            raise UserError(f"'{printable(found.name)[:80]}' is the name of a built-in rule, and has code")
        return found

    def as_json(self) -> dict[str, Any]:
        """As plain values, without what has its default."""
        plain: dict[str, Any] = unstructure(self)
        return plain

    def text(self) -> str:
        """As it stands in a file, with its digest: a line for each problem."""
        plain = self.as_json() | {"digest": self.content_digest}
        lines = []
        for name, part in plain.items():
            if isinstance(part, dict) and name in _LONG:
                entries = [f"{json.dumps(key)}: {_compact(value)}" for key, value in part.items()]
                lines.append(
                    f"{json.dumps(name)}: " + ("{\n  " + ",\n  ".join(entries) + "\n }" if part else "{}")
                )
            else:
                lines.append(f"{json.dumps(name)}: {json.dumps(part, ensure_ascii=False)}")
        return "{\n " + ",\n ".join(lines) + "\n}\n"

    def numbers(self) -> Iterator[tuple[str, str, str, Numbers]]:
        """Problem, metric, component and numbers of all that was measured."""
        for problem, of_problem in self.measurements.items():
            for metric, of_metric in of_problem.items():
                for component, numbers in of_metric.items():
                    yield problem, metric, component, numbers

    def meant(self, guarantee: Guarantee) -> Iterator[tuple[str, str, Numbers]]:
        """What a guarantee speaks of: problem, component and numbers."""
        for problem, metric, component, numbers in self.numbers():
            named = metric.partition(":")[0] == guarantee.metric and fnmatchcase(problem, guarantee.at)
            if named and component.endswith(guarantee.component):
                yield problem, component, numbers


_LONG = ("cost", "predictions", "measurements", "refused")


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@functools.cache
def schema() -> Mapping[str, Any]:
    """The published JSON Schema of a submission."""
    found: Mapping[str, Any] = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    return found


def read(path: Path) -> Submission:
    """Submission in a file; nothing of it is run.

    Parameters
    ----------
    path : Path

    Returns
    -------
    Submission

    Raises
    ------
    UserError
        If it cannot be read, or is none of the schema; one line that says where.
    """
    try:
        if path.stat().st_size > MOST:
            raise UserError(f"{path} is no submission: it is larger than {MOST // 2**20} MiB")
        plain = files.read_json(path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path} is no submission: {on_one_line(str(error))[:300]}") from error
    try:
        return of_json(plain)
    except ValueError as error:
        raise UserError(f"{path} is no submission: {printable(on_one_line(str(error)))[:300]}") from error


def of_json(plain: Any) -> Submission:
    """Submission of plain values.

    Parameters
    ----------
    plain : object
        As JSON gives it.

    Returns
    -------
    Submission

    Raises
    ------
    ValueError
        If they are none of the schema; one line that says where.
    """
    _refuse(plain, schema())
    return structure(plain, Submission)


def check_stated(rule: Entered, guarantees: Sequence[Guarantee]) -> None:
    """Find out whether a submission may say this of a rule, before the work that gives its numbers.

    Parameters
    ----------
    rule : Entered
    guarantees : sequence of Guarantee

    Raises
    ------
    ValueError
        If it is none of the schema; one line that says what.
    """
    parts = {"rule": unstructure(rule), "guarantees": unstructure(list(guarantees))}
    stated = {name: schema()["properties"][name] for name in parts}
    _refuse(parts, {"properties": stated})


def _refuse(plain: Any, its_schema: Mapping[str, Any]) -> None:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(its_schema).iter_errors(plain))
    if error is not None:
        where = "/".join(str(step)[:60] for step in error.absolute_path) or "the file"
        most = f", at most {error.validator_value}" if str(error.validator).startswith("max") else ""
        value = repr(error.instance)
        said = error.message.replace(value, value if len(value) <= _SHOWN else f"{value[:_SHOWN]}...")
        raise ValueError(f"{where}: {said[:200]}{most}")
    for text in _texts(plain):
        # Of a source, too: what turns the direction of writing shows reviewers other code than is run.
        if printable(text) != text:
            raise ValueError(f"'{printable(on_one_line(text))[:60]}' has characters that are not shown")


_SHOWN = 60  # characters of a value


def _texts(plain: Any) -> Iterator[str]:
    """All texts of plain values, names among them."""
    if isinstance(plain, str):
        yield plain
    elif isinstance(plain, list | dict):
        parts = plain if isinstance(plain, list) else (*plain, *plain.values())
        for each in parts:
            yield from _texts(each)
