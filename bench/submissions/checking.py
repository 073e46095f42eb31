"""A submission checked: its claims by its own numbers, these by the set, and a share measured again."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

import sdp_ref
from sdp_bench.bench.errors import OutsideError
from sdp_bench.bench.executors import WorkerError
from sdp_bench.bench.executors.local import Limits, apart
from sdp_bench.bench.experiments.law_group import LawGroup
from sdp_bench.bench.plugins.plugin import Plugin
from sdp_bench.bench.problems.problem_set import ProblemSet
from sdp_bench.bench.results.ranges import outside as out_of_range
from sdp_bench.bench.results.record import Record
from sdp_bench.bench.runs.group import GroupResult, run_group
from sdp_bench.bench.settings import Settings
from sdp_bench.bench.submissions.making import TIMED, chosen_places, numbers, predictions
from sdp_bench.bench.submissions.submission import OWN_PACKAGE, Guarantee, Numbers, Said, Submission
from sdp_bench.bench.text import printable
from sdp_ref.errors import on_one_line

SURE = 4.0
"""Standard errors by which a number is beyond a bound that it violates: of thousands none is by chance."""

_RELATIVE = 1e-5
_ERRORS = 0.1
"""How far a number may be from the one that is measured again: by rounding of another processor, which puts
a few samples on the other side of a cell's edge, in standard errors."""
_FLOORS, _STDERRS = 0.2, 0.1
"""The same of floors and standard errors, as shares. Both come of the same seeds: kernels of half the width
changed no standard error of a submission by more than 0.3 %, and no floor, which is simulated, by more than
4 %."""


@dataclass(frozen=True)
class Checked:
    """What was found of a submission.

    Attributes
    ----------
    violated, wrong : tuple of str
        A line for each guarantee that its numbers do not keep, and for each thing that is not as it says.
    notes : tuple of str
        What was looked at, and what was not.
    """

    violated: tuple[str, ...]
    wrong: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether it may stand on a leaderboard."""
        return not (self.violated or self.wrong)


def check(
    found: Submission,
    problems: ProblemSet,
    share: float = 0.05,
    seed: int = 0,
    *,
    trusted: bool = False,
    limits: Limits | None = None,
    told: Callable[[int, int, str], object] = lambda *_: None,
) -> Checked:
    """Check a submission.

    Parameters
    ----------
    found : Submission
    problems : ProblemSet
        That it should be about.
    share : float
        Of the problems that are measured again, in (0, 1].
    seed : int
        Of their choice.
    trusted : bool
        Whether code that stands in the submission may be run.
    limits : Limits, optional
        Of each place that is measured again.
    told : callable
        Is told after each of them how many are done, of how many, and its name.

    Returns
    -------
    Checked

    Raises
    ------
    UserError
        If its source is none.
    """
    violated = tuple(_violated(found))
    wrong = list(_arithmetic(found, problems))
    notes = [f"{sum(1 for _ in found.numbers())} numbers of {len(found.measurements)} problems"]
    plugin = found.plugin
    if plugin is not None and not trusted:
        notes.append("not measured again: its code stands in the file, and --trust-code runs it")
        return Checked(violated, tuple(wrong), tuple(notes))
    if plugin is None and (reason := _not_built_in(found)):
        return Checked(violated, (*wrong, reason), tuple(notes))
    rule = found.rule.name
    chosen = choice(problems, share, seed)
    plugins = () if plugin is None else (plugin.as_trusted(),)
    groups = problems.groups(Settings(plugins=plugins), (rule,))
    places = list(chosen_places(problems, chosen))
    for done, number in enumerate(places, 1):
        names = [each for each in problems.places[number].problems if each in chosen]
        wrong += _again(found, problems, groups[number], names, plugins, limits)
        told(done, len(places), problems.places[number].name)
    notes.append(f"{len(chosen)} of {len(problems.problems)} problems measured again, seed {seed}")
    return Checked(violated, tuple(wrong), tuple(notes))


def choice(problems: ProblemSet, share: float, seed: int) -> tuple[str, ...]:
    """Problems that are measured again: a random share, at least one."""
    names = list(problems.problems.values())
    return tuple(random.Random(seed).sample(names, max(1, round(share * len(names)))))  # noqa: S311


# Claims -------------------------------------------------------------------------------------------


def _violated(found: Submission) -> Iterator[str]:
    for guarantee in found.guarantees:
        broken = list(violations(found, guarantee))
        if broken:
            worst = max(broken, key=lambda each: guarantee.beyond(each[2]))
            where = " ".join(filter(None, worst[:2]))
            more = f", and at {len(broken) - 1} more" if len(broken) > 1 else ""
            yield f"the guarantee '{guarantee}' is violated: {worst[2]:.4g} at {where}{more}"


def violations(found: Submission, guarantee: Guarantee) -> Iterator[tuple[str, str, float]]:
    """Where a guarantee is not kept, by more than the standard error of what was measured explains.

    Parameters
    ----------
    found : Submission
    guarantee : Guarantee

    Yields
    ------
    (str, str, float)
        Problem, component and value.
    """
    for problem, component, (value, _, _, error) in found.meant(guarantee):
        if value is not None and guarantee.beyond(value) > SURE * (error or 0.0):
            yield problem, component, value


# Arithmetic ---------------------------------------------------------------------------------------


def _arithmetic(found: Submission, problems: ProblemSet) -> Iterator[str]:
    if found.problem_set.digest != problems.digest:
        yield f"it is about another set than {problems.name} of digest {problems.digest[:16]}"
    if found.digest != found.content_digest:
        yield f"its digest is {found.content_digest[:16]}, written is {found.digest[:16]}: it was changed"
    for guarantee in found.guarantees:
        if not any(True for _ in found.meant(guarantee)):
            yield f"the guarantee '{guarantee}' speaks of nothing that was measured"
    yield from _in_full(found, problems)
    yield from _in_range(found)
    yield from _moments(found, problems)


def _in_full(found: Submission, problems: ProblemSet) -> Iterator[str]:
    """Whether each metric of each problem is there or refused, and nothing else."""
    known = set(problems.problems.values())
    mentioned = (*found.measurements, *found.refused, *found.predictions)
    for problem in dict.fromkeys(name for name in mentioned if name not in known):
        yield f"{printable(problem)[:80]} is no problem of {problems.name}"
    yield from _costs(found)
    for problem in problems.problems.values():
        metrics = problems.place_of(problem).metrics
        measured, refused = found.measurements.get(problem, {}), found.refused.get(problem, {})
        for metric in metrics:
            if metric not in measured and metric not in refused and "" not in refused:
                yield f"{problem} {metric} is missing"
        for metric in (each for each in measured if each not in metrics or not measured[each]):
            yield f"{problem} {printable(metric)[:60]} is not asked for, or empty"


def _costs(found: Submission) -> Iterator[str]:
    """Whether costs are of the places where they are taken, and medians lie between quartiles."""
    for place, cost in found.cost.items():
        if place not in TIMED:
            yield f"{printable(place)[:80]} is no place where costs are taken"
        elif not cost.lower <= cost.median <= cost.upper:
            yield f"{place}: the median time {cost.median:.6g} is not between its quartiles"


def _in_range(found: Submission) -> Iterator[str]:
    for problem, metric, component, (value, floor, floor95, error) in found.numbers():
        where = " ".join(filter(None, (problem, metric, component)))
        if value is None:
            yield f"{printable(where)}: the value is missing"
        elif reason := out_of_range(metric, value, floor, floor95, error):
            yield f"{printable(where)}: {reason}"


def _moments(found: Submission, problems: ProblemSet) -> Iterator[str]:
    """Whether ratios of standard deviations are those of the predictions and of the frozen truth."""
    for key, problem in problems.problems.items():
        said, ratios = found.predictions.get(problem), found.measurements.get(problem, {}).get("std_ratio")
        if problem in found.measurements and said is None:
            yield f"{problem}: there is no prediction"
        if said is None:
            continue
        truth = problems.truths[key].statistics
        outputs = len(truth["mean"])
        if (len(said.mean), len(said.sd)) != (outputs, outputs):
            yield f"{problem}: the prediction is not of {outputs} outputs"
        elif ratios is not None:
            deviations = np.sqrt(np.diag(np.array(truth["covariance"])))
            yield from _ratios(problem, said, ratios, deviations.tolist())


def _ratios(
    problem: str, said: Said, ratios: dict[str, Numbers], deviations: Sequence[float]
) -> Iterator[str]:
    for output, (predicted, true) in enumerate(zip(said.sd, deviations, strict=True)):
        value, _, _, error = ratios.get(str(output), [None] * 4)
        if value is None:
            yield f"{problem} std_ratio {output} is missing"
        elif not math.isclose(value * true, predicted, rel_tol=1e-4, abs_tol=(error or 0.0) * true * _ERRORS):
            yield (
                f"{problem} std_ratio {output} is {value:.6g}, but it predicts {predicted:.6g} where "
                f"{true:.6g} is true"
            )


# Measured again -----------------------------------------------------------------------------------


def _not_built_in(found: Submission) -> str:
    """Why a rule without code is not the package's own; empty if it is."""
    if not found.rule.source.package.startswith(f"{OWN_PACKAGE}=="):
        return "it has no code, and is none of the package's own rules"
    try:
        same = sdp_ref.rule(found.rule.name).spec == found.rule.name
    except ValueError as error:
        return f"it is none of the package's own rules: {on_one_line(str(error))[:200]}"
    return "" if same else "the name of the rule is not written as the package writes it"


def _again(
    found: Submission,
    problems: ProblemSet,
    group: LawGroup,
    names: Sequence[str],
    plugins: tuple[Plugin, ...],
    limits: Limits | None,
) -> Iterator[str]:
    """What does not come out at some problems of one place."""
    keys = {key: problems.problems[key] for key in (subject.key.hex for subject in group.subjects)}
    cells = frozenset(cell for cell in group.cells if keys[cell[0]] in names)
    try:
        result, said = apart(_measured_again, group, cells, found.rule.name, plugins, limits=limits)
    except WorkerError as error:
        yield f"{group.title}: the rule does not come to an end: {on_one_line(str(error))[:200]}"
        return
    again: dict[tuple[str, str, str], Record] = {
        (keys[record.unit], record.metric, record.component or ""): record for record in result.records
    }
    stored = {each[:3]: each[3] for each in found.numbers() if each[0] in names}
    for place in sorted(stored.keys() | again.keys()):
        where = " ".join(filter(None, place))
        if place not in again:
            yield f"{printable(where)} is stored, and cannot be measured"
        elif place not in stored:
            yield f"{where} can be measured, and is not there"
        elif reason := differs(stored[place], again[place]):
            yield f"{where}: {reason}"
    for key, now in zip(keys.values(), said, strict=bool(said)):
        if key in names and key in found.predictions and not _alike(found.predictions[key], now):
            yield f"{key}: it predicts other moments than are stored"


def _measured_again(
    group: LawGroup, cells: frozenset[tuple[str, str, str]], rule: str, plugins: tuple[Plugin, ...]
) -> tuple[GroupResult, list[Said]]:
    result = run_group(group, cells)
    try:
        return result, predictions(rule, plugins, group)
    except OutsideError:
        return result, []


def differs(stored: Numbers, record: Record) -> str:
    """How stored numbers differ from a record by more than rounding; empty if they do not.

    Floors are simulated from counts, so that one sample in another cell draws other numbers: these may
    differ by a standard error of the value, too. The standard error itself may not, or any would pass.

    Parameters
    ----------
    stored : list
        Value, floor, its 95 % point and standard error.
    record : Record

    Returns
    -------
    str
    """
    again = numbers(record.value, record.floor, record.floor95, record.stderr)
    error = again[3] or 0.0
    kinds = (
        ("value", _RELATIVE, _ERRORS),
        ("floor", _FLOORS, 1.0),
        ("95 % point of the floor", _FLOORS, 1.0),
        ("standard error", _STDERRS, 0.0),
    )
    for (name, relative, errors), old, new in zip(kinds, stored, again, strict=True):
        if (old is None) != (new is None):
            return f"the {name} is stored as {old}, and is {new}"
        if None not in (old, new) and not math.isclose(
            old or 0.0, new or 0.0, rel_tol=relative, abs_tol=max(1e-9, errors * error)
        ):
            return f"the {name} is stored as {old:.7g}, and is {new:.7g}"
    return ""


def _alike(stored: Said, now: Said) -> bool:
    """Whether two predictions are the same but for rounding, which a deviation measures."""
    if len(stored.mean) != len(now.mean) or len(stored.sd) != len(now.sd):
        return False
    scale = max(now.sd) or 1.0
    pairs = zip([*stored.mean, *stored.sd], [*now.mean, *now.sd], strict=True)
    return all(math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-5 * scale) for a, b in pairs)
