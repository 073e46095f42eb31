"""Python code that reproduces a net and an input law."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sdp_ref.conformance.cases import Residual, generic
from sdp_ref.conformance.report import CheckResult, Status
from sdp_ref.conformance.subject import NotApplicable, Subject, preserved
from sdp_ref.errors import UnsupportedError, message_of, on_one_line
from sdp_ref.laws import Law
from sdp_ref.laws.gaussian import AnyGaussian
from sdp_ref.rules.base import Rule


def as_code(net: nn.Module, x: Law, rule: Any, check: str, seed: int) -> str:
    """Python code that builds `net` and `x`, calls the rule, and repeats the check."""
    dtype = str(x.location.dtype)
    lines = ["import torch", "from torch import nn", "import sdp_ref as sr"]
    lines += ["torch.set_printoptions(precision=10)"]
    kinds = dict.fromkeys(type(m) for m in net.modules() if _is_own(m))
    lines += [f"from {kind.__module__} import {kind.__name__}" for kind in kinds]
    lines += [f"net = {_module(net)}.to({dtype}).{'train' if net.training else 'eval'}()"]
    state = {name: value for name, value in net.state_dict().items() if value.is_floating_point()}
    if state:
        lines += ["net.load_state_dict({"]
        lines += [f"    {name!r}: {_tensor(value)}," for name, value in state.items()]
        lines += ["}, strict=False)"]
    values = (getattr(x, f.name) for f in fields(x))
    parts = ", ".join(_tensor(v) if isinstance(v, Tensor) else repr(v) for v in values)
    lines += [f"x = sr.{type(x).__name__}({parts})"]
    built_in = isinstance(rule, Rule) and type(rule).__module__.startswith("sdp_ref.")
    spec = getattr(rule, "spec", None) or getattr(rule, "name", "?")
    lines += [f"rule = sr.rule({spec!r})" if built_in else f"# rule: yours, {spec!r}"]
    lines += ["y = rule.propagate(net, x)", "print(y.mean, y.covariance)"]
    return "\n".join([*lines, f"print(sr.check_rule(rule, only={check!r}, seed={seed}))"])


def _is_own(net: nn.Module) -> bool:
    """Whether a module's class is defined by the kit rather than by torch."""
    return type(net).__module__.startswith("sdp_ref.")


def _module(net: nn.Module) -> str:
    namespace = "" if _is_own(net) else "nn."
    return f"{namespace}{type(net).__name__}({_arguments(net)})"


def _arguments(net: nn.Module) -> str:
    match net:
        case nn.Sequential():
            return ", ".join(_module(child) for child in net)
        case Residual():
            return _module(net.branch)
        case nn.Linear():
            return f"{net.in_features}, {net.out_features}"
        case nn.Flatten():
            return ""
    return net.extra_repr()


def _tensor(value: Tensor) -> str:
    # float32 numbers are exact in float64, so this text reproduces all bits
    return f"torch.tensor({value.detach().to(torch.float64).tolist()}, dtype={value.dtype})"


_NOTABLE = 1e-3
"""Share of a tolerance above which a report prints it: smaller ones may be rounding, which differs between
processors.
"""


@dataclass(frozen=True)
class Verdict:
    """Result of one case.

    For a failure, `detail` contains the two differing values, and `row` is the index of the law that failed.
    `share` is the largest ratio of error and tolerance. `orders` are measured orders of convergence by name.
    """

    passed: bool
    detail: str = ""
    numbers: dict[str, float] = field(default_factory=dict)
    share: float = 0.0
    row: int | None = None
    orders: dict[str, float] = field(default_factory=dict)


Judge = Callable[[nn.Module, AnyGaussian], Verdict]


@dataclass(frozen=True)
class Case:
    """A net, the law of its input, and a function that judges a rule on them."""

    net: nn.Module
    x: AnyGaussian
    judge: Judge


def over_generic_cases(
    judge: Callable[[Subject, nn.Module, AnyGaussian], Verdict],
) -> Callable[[Subject, int], Iterable[Case]]:
    """Turn a function that judges one case into the generic cases of a check."""

    def check(subject: Subject, seed: int) -> Iterable[Case]:
        return (Case(net, x, partial(judge, subject)) for net, x in generic(subject, seed))

    return check


@dataclass(frozen=True)
class Check:
    """A check of the kit; `cases` maps a subject and a seed to cases, the smallest first.

    It may raise `NotApplicable`.
    """

    name: str
    question: str
    cases: Callable[[Subject, int], Iterable[Case]]


def run(check: Check, subject: Subject, seed: int) -> CheckResult:
    """Judge the cases of a check until one fails.

    A case that raises `UnsupportedError` or `NotApplicable` does not count. Any other error fails, and so
    does a `SystemExit`, since a rule must not end the process that checks it.
    """
    start = time.perf_counter()
    with preserved():
        result = _judged(check, subject, seed)
    result, known = replace(result, seconds=time.perf_counter() - start), subject.known_faults.get(check.name)
    if known is not None and result.status == "passed":
        detail = f"{result.detail}; declared as a known fault, which does not show ({known})"
        return replace(result, detail=detail)
    return replace(result, known=known) if result.status == "failed" else result


def _smallest(case: Case, failed: Verdict) -> tuple[AnyGaussian, Verdict]:
    """The law that failed if it also fails alone, otherwise the batch, and the verdict."""
    if failed.row is not None and case.x.batch > 1:
        try:
            alone = case.judge(copy.deepcopy(case.net), copy.deepcopy(case.x[failed.row]))
        except (Exception, SystemExit):  # noqa: BLE001  another failure than the one that is made smaller
            return case.x, failed
        if not alone.passed:
            return case.x[failed.row], alone
    return case.x, failed


def _raises_alone(subject: Subject, net: nn.Module, x: AnyGaussian, error: BaseException) -> bool:
    """Whether the rule raises an error of exactly this type on a smaller case."""
    try:
        subject.predict(copy.deepcopy(net), copy.deepcopy(x))
    except (Exception, SystemExit) as other:  # noqa: BLE001  a rule may raise anything
        return type(other) is type(error)
    return False


def _judged(check: Check, subject: Subject, seed: int) -> CheckResult:
    judged, worst, refused = 0, Verdict(True), list[str]()
    orders: dict[str, float] = {}

    def result(status: Status, detail: str, verdict: Verdict, example: str | None = None) -> CheckResult:
        counts = {"cases": float(judged), **verdict.numbers, **orders}
        return CheckResult(check.name, check.question, status, detail, counts, example)

    net = x = None
    try:
        for case in check.cases(subject, seed):
            net, x = case.net, case.x
            try:  # on copies, so that a rule that modifies them affects neither the example nor other cases
                verdict = case.judge(copy.deepcopy(net), copy.deepcopy(x))
            except (UnsupportedError, NotApplicable) as error:
                refused.append(message_of(error))
                continue
            judged += x.batch
            orders |= verdict.orders
            if not verdict.passed:
                x, verdict = _smallest(case, verdict)
                example = as_code(net, x, subject.rule, check.name, seed)
                return result("failed", verdict.detail, verdict, example)
            worst = max(worst, verdict, key=lambda v: v.share)
            net = x = None
    except (UnsupportedError, NotApplicable) as error:
        refused.append(message_of(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001  a rule may raise anything: that is a finding
        judged += 1
        example = None
        if net is not None and x is not None:
            failing_rows = (x[row] for row in range(x.batch) if _raises_alone(subject, net, x[row], error))
            example = as_code(net, next(failing_rows, x), subject.rule, check.name, seed)
        ended = ", which would end the process" if isinstance(error, SystemExit) else ""
        kind = on_one_line(type(error).__name__)
        return result("failed", f"raised {kind}{ended}: {message_of(error)}", Verdict(False), example)
    if not judged:
        return result("skipped", refused[0] if refused else "no case to judge", Verdict(False))
    summary = _summary(judged, worst, refused, subject.name)
    return result("passed", "; ".join([summary, *_listed(orders)]), worst)


def _listed(orders: dict[str, float]) -> list[str]:
    """Orders in words, with one entry for each kind of net."""
    texts: dict[str, str] = {}
    for name, order in orders.items():
        kind, _, quantity = name.partition(" ")
        value = "exact" if math.isinf(order) else f"{round(order, 1) + 0.0:.1f}"  # without the sign of -0
        texts[kind] = f"{texts[kind]}, {quantity} {value}" if kind in texts else f"{name} {value}"
    return list(texts.values())


def _summary(judged: int, worst: Verdict, refused: list[str], rule: str) -> str:
    """Number of cases that passed, the largest error if it is notable, and the cases without a result."""
    text = f"{judged} case{'s' * (judged > 1)}"
    if worst.share >= _NOTABLE:
        text += f", at most {worst.share:.2g} of the tolerance"
    if refused:
        reasons = dict.fromkeys(reason.removeprefix(f"rule '{rule}' ") for reason in refused)
        text += f" ({len(refused)} not tested: {'; '.join(reasons)})"
    return text
