"""A submission made: a rule measured on all problems of a set, checked, timed and written down."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import torch
from torch import Tensor, nn

from sdp_bench.bench import environment
from sdp_bench.bench.errors import OutsideError, RunFailedError, UserError, one_line, outside
from sdp_bench.bench.executors import WorkerError
from sdp_bench.bench.executors.local import Limits, LocalProcesses, apart
from sdp_bench.bench.experiments.law_group import LawGroup
from sdp_bench.bench.experiments.predict import predict, prepared, seeds_of, unsaid
from sdp_bench.bench.gate.answers import Answer
from sdp_bench.bench.plugins.plugin import Plugin, plugin_of
from sdp_bench.bench.problems.problem_set import ProblemExperiment, ProblemSet
from sdp_bench.bench.results.store import Store
from sdp_bench.bench.rules import rule_of
from sdp_bench.bench.runs.conformance import conformance
from sdp_bench.bench.runs.driver import Progress, Request, run
from sdp_bench.bench.runs.plan import traits_of
from sdp_bench.bench.runtime.timing import REGULAR, Ratio, by_turns
from sdp_bench.bench.settings import Settings
from sdp_bench.bench.submissions.submission import (
    OWN_PACKAGE,
    SCHEMA,
    Cost,
    Entered,
    Guarantee,
    Kit,
    Numbers,
    ProblemSetName,
    Said,
    Source,
    Submission,
    check_stated,
)
from sdp_bench.bench.text import printable, public
from sdp_ref.errors import on_one_line

TIMED = ("iris-relu-1/gaussian-1", "iris-relu-9/gaussian-1", "rotations-decoder/gaussian-0.1")
"""Places where costs are measured: a small net, a deep one, and one with attention."""

_ROUNDS = 15
_SECONDS = 5.0  # of a rule that is so slow that few rounds have to do
_DIGITS = 7
_FEWER = 4  # of floors and standard errors


@dataclass(frozen=True)
class About:
    """What only its author can say of a rule.

    Attributes
    ----------
    authors : tuple of str
    licence, version, url : str
    guarantees : tuple of Guarantee
    """

    authors: tuple[str, ...]
    licence: str
    version: str
    url: str = ""
    guarantees: tuple[Guarantee, ...] = ()


def measure(
    store: Store,
    rules: Sequence[str],
    plugins: Sequence[Plugin],
    problems: ProblemSet,
    jobs: int | None,
    limit: float,
    progress: Progress,
) -> None:
    """Measure rules on all problems; what the store has is not measured again.

    Parameters
    ----------
    store : Store
    rules : sequence of str
        As records have them.
    plugins : sequence of Plugin
        Those of them that are not built in.
    problems : ProblemSet
    jobs : int, optional
        Workers; one a core by default.
    limit : float
        Seconds that a group may take.
    progress : Progress
    """
    experiment = ProblemExperiment.of(problems, rules)
    settings = Settings(rules=tuple(rules), plugins=tuple(plugins))
    request = Request([experiment], settings, list(problems.nets.values()), preset=problems.name)
    run(store, request, jobs, lambda n, k: LocalProcesses(n, k, limit), progress)


def entered(rule: str, plugins: Sequence[Plugin], about: About) -> Entered:
    """What a submission says of a rule, known before anything is measured.

    Parameters
    ----------
    rule : str
    plugins : sequence of Plugin
    about : About

    Returns
    -------
    Entered

    Raises
    ------
    UserError
        If it says what no submission may: a text that is too long, say.
    """
    plugin, traits = plugin_of(rule, plugins), traits_of(rule, plugins)
    package = f"{OWN_PACKAGE}=={environment.describe('cpu', 1, 1)['sdp-bench']}" if plugin is None else ""
    made = Entered(
        name=rule,
        label=traits.label,
        version=about.version,
        licence=about.licence,
        authors=list(about.authors),
        source=Source(package, None if plugin is None else as_data(plugin)),
        url=about.url,
        sampling=traits.sampling,
    )
    try:
        check_stated(made, about.guarantees)
    except ValueError as error:
        raise UserError(f"{printable(rule)[:80]} cannot be entered: {on_one_line(str(error))}") from error
    return made


def submission(
    store: Store,
    rule: Entered,
    plugins: Sequence[Plugin],
    problems: ProblemSet,
    guarantees: Sequence[Guarantee],
    limits: Limits,
    say: Callable[[str], None],
) -> Submission:
    """Submission of one rule that has been measured.

    Parameters
    ----------
    store : Store
        Where :func:`measure` kept what it found.
    rule : Entered
        As :func:`entered` has it.
    plugins : sequence of Plugin
    problems : ProblemSet
    guarantees : sequence of Guarantee
    limits : Limits
        Of the conformance kit, and of all predictions together.
    say : callable

    Returns
    -------
    Submission

    Raises
    ------
    RunFailedError
        If nothing was measured of it, or its predictions do not come to an end.
    """
    name = rule.name
    measurements, refused = recorded(store, name, problems)
    if not measurements:
        reason = next((why for each in refused.values() for why in each.values()), "no problem was measured")
        raise RunFailedError(f"nothing was measured of {name}: {reason}")
    say(f"{name}: conformance kit")
    kit = _kit(name, plugins, limits, say)
    say(f"{name}: predictions and times")
    try:
        said, costs = apart(_spoken, name, tuple(plugins), problems, limits=limits)
    except WorkerError as error:
        raise RunFailedError(f"{name}: {error}") from error
    described = environment.describe("cpu", 1, 1)
    return Submission(
        schema=SCHEMA,
        created=datetime.now(UTC).date().isoformat(),
        problem_set=ProblemSetName(problems.name, problems.digest),
        rule=rule,
        hardware={name: str(described[name]) for name in _HARDWARE if described.get(name)},
        guarantees=list(guarantees),
        conformance=kit,
        cost=costs,
        predictions=said,
        measurements=measurements,
        refused=refused,
    )


_HARDWARE = ("cpu", "cores", "platform", "python", "sdp-bench", "torch", "numpy", "scipy")


def as_data(plugin: Plugin) -> dict[str, Any]:
    """A plug-in as JSON has it: lists in the place of tuples."""
    plain = plugin.as_json()
    code = plain["code"]
    return plain | {"code": code | {"modules": [list(each) for each in code["modules"]]}}


def recorded(
    store: Store, rule: str, problems: ProblemSet
) -> tuple[dict[str, dict[str, dict[str, Numbers]]], dict[str, dict[str, str]]]:
    """What a store has of a rule on a set, by problem and metric: numbers, or why there are none.

    Returns
    -------
    dict
        Numbers by problem, metric and component.
    dict
        Reasons by problem and metric.
    """
    tables = store.tables()
    names = problems.problems
    rows: list[tuple[str, str, str, Numbers]] = []
    records = tables["records"]
    own = records[(records["rule"] == rule) & records["unit"].isin(list(names))]
    for row in own.sort_values(["unit", "metric", "component"]).to_dict("records"):
        component = row["component"] if isinstance(row["component"], str) else ""
        found = numbers(*(row[each] for each in ("value", "floor", "floor95", "stderr")))
        rows.append((names[row["unit"]], row["metric"], component, found))
    measured: dict[str, dict[str, dict[str, Numbers]]] = {}
    order = {name: place for place, name in enumerate(names.values())}
    for problem, metric, component, found in sorted(rows, key=lambda each: order[each[0]]):
        measured.setdefault(problem, {}).setdefault(metric, {})[component] = found
    refused: dict[str, dict[str, str]] = {}
    failures = tables["failures"]
    for row in failures[failures["unit"].isin(list(names))].to_dict("records"):
        name, metric = names[row["unit"]], row["metric"] if isinstance(row["metric"], str) else ""
        if isinstance(row["rule"], str) and row["rule"] != rule:
            continue
        if name not in measured or (metric and metric not in measured[name]):
            refused.setdefault(name, {})[metric] = public(str(row["error"]))[:1000]
    return measured, refused


def numbers(*found: float | None) -> Numbers:
    """Value, floor, 95 % point and standard error as a file has them: rounded, None if they are not known."""
    digits = (_DIGITS, _FEWER, _FEWER, _FEWER)
    return [_rounded(each, most) for each, most in zip(found, digits, strict=True)]


def _rounded(number: float | None, digits: int) -> float | None:
    if number is None or not math.isfinite(number):  # of pandas: NaN where nothing is known
        return None
    return float(f"{float(number):.{digits}g}")


def _kit(rule: str, plugins: Sequence[Plugin], limits: Limits, say: Callable[[str], None]) -> Kit | None:
    try:
        report = conformance(rule, plugins, limits)
    except Exception as error:  # noqa: BLE001  a rule may raise anything, and the kit's process may die of it
        say(f"{rule}: the conformance kit did not finish: {one_line(error)}")
        return None
    return Kit(
        kit=report.kit,
        seed=report.seed,
        passed=report.count("passed"),
        skipped=report.count("skipped"),
        failed=[check.name for check in report.unexpected],
        known={check.name: check.known for check in report.failed if check.known is not None},
    )


# In a process of the rule's own -------------------------------------------------------------------


def _spoken(
    rule: str, plugins: tuple[Plugin, ...], problems: ProblemSet
) -> tuple[dict[str, Said], dict[str, Cost]]:
    """What a rule predicts for every problem that it takes, and what that costs."""
    settings = Settings(plugins=plugins)
    said: dict[str, Said] = {}
    costs: dict[str, Cost] = {}
    for place, group in zip(problems.places, problems.groups(settings, (rule,)), strict=True):
        with suppress(OutsideError):
            said |= zip(place.problems, predictions(rule, plugins, group), strict=True)
            if place.name in TIMED:
                costs[place.name] = _cost(rule, plugins, group)
    return said, costs


def predictions(rule: str, plugins: Sequence[Plugin], group: LawGroup) -> list[Said]:
    """Moments that a rule predicts for the inputs of a group, where its code may be run.

    Parameters
    ----------
    rule : str
    plugins : sequence of Plugin
    group : LawGroup

    Returns
    -------
    list of Said

    Raises
    ------
    OutsideError
        If it does not take them.
    """
    with outside():
        made: Any = rule_of(rule, plugins)
        law, _ = predict(made, group.net.build(), group.law, [subject.key for subject in group.subjects])
        return [_said(Answer.of(law[row])) for row in range(law.batch)]


def _said(answer: Answer) -> Said:
    sd = answer.variance**0.5
    return Said(answer.family, [_float(each) for each in answer.mean], [_float(each) for each in sd])


def _float(value: float) -> float:
    return float(f"{float(value):.{_DIGITS}g}")


class _Counted(nn.Module):
    """A net that counts the inputs that pass through it."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.rows = net, 0

    def forward(self, x: Tensor) -> Tensor:
        """The net itself."""
        self.rows += len(x)
        out: Tensor = self.net(x)
        return out


def _cost(rule: str, plugins: Sequence[Plugin], group: LawGroup) -> Cost:
    with outside(), torch.no_grad(), unsaid():
        made: Any = rule_of(rule, plugins)
        net, law = group.net.build().double(), group.law.to(dtype=torch.float64)
        seeds = seeds_of(made, [subject.key for subject in group.subjects])
        propagate = prepared(made, net, seeds)
        works = {REGULAR: lambda: net(law.location), rule: lambda: propagate(law)}
        once = by_turns(works, 1)[rule][0]
        rounds = max(3, min(_ROUNDS, int(_SECONDS / max(once, 1e-9))))
        seconds = by_turns(works, rounds)
        ratio = Ratio.of(seconds[rule], seconds[REGULAR])
        passes = _passes(made, group, seeds)
    return Cost(*(_float(each) for each in (ratio.median, ratio.lower, ratio.upper, passes)))


def _passes(rule: Any, group: LawGroup, seeds: Sequence[int]) -> float:
    """Inputs through the net's own forward for one prediction, what is done once for a net apart."""
    counted, law = _Counted(group.net.build().double()), group.law.to(dtype=torch.float64)
    propagate = prepared(rule, counted, seeds)
    counted.rows = 0
    propagate(law)
    return counted.rows / law.batch


def chosen_places(problems: ProblemSet, names: Sequence[str]) -> Iterator[int]:
    """Numbers of the places that have some of these problems."""
    wanted = set(names)
    return (number for number, place in enumerate(problems.places) if wanted & set(place.problems))
