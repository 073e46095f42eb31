"""The base class of layer-wise rules, which compute the law of each op's output from that of its input."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cache, partial
from typing import Any, ClassVar, TypeVar

from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from sdp_ref.activations import ELEMENTWISE, activation_of
from sdp_ref.activations.pointwise import Apply
from sdp_ref.errors import (
    CovarianceSizeError,
    NoFormulaError,
    NoFormulaForLawError,
    NoLinearPartError,
    UnsupportedError,
)
from sdp_ref.graph import trace
from sdp_ref.graph.ops import LinearFunction, Unknown
from sdp_ref.graph.trace import Net
from sdp_ref.laws import Gaussian, Law, joined, noted, unchecked
from sdp_ref.rules.base import Rule

Handler = Callable[..., Any]
Maker = Callable[..., Handler]
HandlerT = TypeVar("HandlerT", bound=Handler)

_HINT = "fallback=linearise takes it for its derivative at the mean"


@dataclass(frozen=True)
class LayerwiseRule(Rule):
    """A rule that maps the law of an op's input to the law of its output, op by op.

    A subclass defines the law that enters the first layer with :meth:`start` and registers one handler per op
    with :meth:`handles`. Handlers are inherited.

    Parameters
    ----------
    fallback : str
        Treatment of ops without a formula, or whose formula does not apply: "none" rejects the net,
        "linearise" replaces the op by its derivative at the mean, if it has one.
    """

    linear: ClassVar[bool] = False
    """Whether the rule linearises all ops; linearisation is then part of the rule and not noted."""

    _handlers: ClassVar[ChainMap[type[nn.Module], tuple[Maker, str]]] = ChainMap()
    """Makers of handlers and their notes, with those of the bases."""

    fallback: str = field(default="none", kw_only=True)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._handlers = inherited(cls, "_handlers")

    def __post_init__(self) -> None:
        self.require_one_of("fallback", ("none", "linearise"))
        if self.fallback != "none" and not self._linearises:
            raise ValueError(f"{self.name} linearises no op, so it takes no fallback={self.fallback}")

    @classmethod
    def handles(cls, *kinds: type[nn.Module], note: str = "") -> Callable[[HandlerT], HandlerT]:
        """Register the decorated function as the handler of modules of these classes.

        It is called as ``handler(rule, module, *laws)`` and returns the law of the module's output. A
        functional form of an op (``F.relu``) is passed as the equivalent module. The `note` names the
        approximation that the handler makes ("linearised"), for :attr:`Law.notes`; it is empty if there is
        none.
        """

        def register(handler: HandlerT) -> HandlerT:
            def make(rule: LayerwiseRule, module: nn.Module) -> Handler:
                return partial(handler, rule, module)

            cls.prepares(*kinds, note=note)(make)
            return handler

        return register

    @classmethod
    def prepares(cls, *kinds: type[nn.Module], note: str = "") -> Callable[[HandlerT], HandlerT]:
        """Register a function that prepares a handler, for computations that depend on the module only.

        It is called once per net as ``make(rule, module)`` and returns a function of the laws. The `note` is
        that of :meth:`handles`.
        """

        def register(make: HandlerT) -> HandlerT:
            cls._handlers.update(dict.fromkeys(kinds, (make, note)))
            return make

        return register

    @abstractmethod
    def start(self, x: Law) -> Law:
        """Convert the law of the net's input, (B, *event), to the one that is propagated."""

    def finish(self, law: Law, x: Law) -> Law:
        """Convert the law of the last layer's output to the result."""
        dtype = x.location.dtype
        return law if law.location.dtype == dtype else law.to(dtype=dtype)

    def prepare(self, net: Net) -> Callable[[Law], Law]:
        """Trace the net and find a handler for each op, once per shape of the input.

        The net is traced again if what the trace depends on has changed; see
        :class:`~sdp_ref.graph.trace.Trace`.
        """
        walks: dict[Any, tuple[Callable[[], bool], Callable[[Law], Law]]] = {}

        def propagate(x: Law) -> Law:
            at = x.location
            key = (at.shape[1:], at.dtype, at.device, getattr(net, "training", False))
            current, walk = walks.get(key, (None, None))
            if walk is None or current is None or not current():
                traced = self._traced(net, at)
                walk = self.prepare_steps(traced.steps)
                walks[key] = traced.current, walk
            return walk(x)

        return propagate

    def examine(self, net: Net, x: Law) -> None:
        """Trace the net and find a handler for each op."""
        self.prepare_steps(self._traced(net, x.location).steps)

    def prepare_steps(self, steps: Sequence[trace.Step]) -> Callable[[Law], Law]:
        """Do the same as :meth:`prepare` for a net given as its steps; the last one is the output.

        The returned function maps the law of value 0 to that of the last one, and notes the approximations.
        """

        @cache
        def operation(number: int, linear: bool) -> Handler:
            return self._operation(steps[number - 1], number, linear)

        def prepared(linear: frozenset[int]) -> Callable[[Law], Law]:
            """Prepare the walk that linearises the steps with these numbers."""
            operations = [operation(number, number in linear) for number in range(1, len(steps) + 1)]
            walk, notes = self.walk(steps, operations), self._notes(steps, linear)
            return lambda x: noted(walk(x), notes)

        return prepared(frozenset()) if self.fallback == "none" else _with_fallback(prepared)

    def walk(self, steps: Sequence[trace.Step], operations: Sequence[Handler]) -> Callable[[Law], Law]:
        """Return a function of the input's law that applies the operation of each step."""
        inputs = [step.inputs for step in steps]
        moves = list(zip(operations, inputs, trace.last_uses(steps), strict=True))

        def propagate(x: Law) -> Law:
            values = {0: self.start(x)}
            notes: list[str] = []  # torch.compile cannot trace list[str]()
            number = 0
            try:
                for operation, taken, unneeded in moves:
                    number += 1
                    law = operation(*[values[i] for i in taken])
                    values[number] = law
                    notes += law.notes
                    for i in unneeded:
                        del values[i]
            except (NoFormulaError, UnsupportedError):  # of an operation: `number` is that of its step
                with self.step_errors(steps[number - 1].path, number):
                    raise
            return noted(self.finish(values[len(steps)], x), notes)

        return propagate

    def _traced(self, net: Net, like: Tensor) -> trace.Trace:
        """Trace a net for inputs of the shape of `like`."""
        try:
            return trace.traced(net, like, frozenset(self._handlers))
        except trace.UntraceableError as error:
            raise UnsupportedError(self.name, str(error)) from error

    def linearise(self, module: nn.Module) -> Any:
        """Return a handler for any differentiable module, by its derivative at the mean.

        The module maps one value or several, row by row. Rules without linearisation raise
        :class:`~sdp_ref.errors.NoFormulaError`.
        """
        raise NoFormulaError(described(module))

    @property
    def _linearises(self) -> bool:
        return type(self).linearise is not LayerwiseRule.linearise

    @contextmanager
    def step_errors(self, path: str, *numbers: int) -> Iterator[None]:
        """Context for the steps with these numbers, which completes errors by the path and the rule's name.

        With a fallback, the error of steps that it may linearise is raised as a _LinearisableError. A
        :class:`~sdp_ref.CovarianceSizeError` is not converted.
        """
        try:
            yield
        except CovarianceSizeError:
            raise
        except (NoFormulaError, UnsupportedError) as error:
            linearisable = self._linearises and not isinstance(error, NoLinearPartError)
            hint = _HINT if linearisable and self.fallback == "none" else ""
            if isinstance(error, UnsupportedError):  # raised by a handler
                refusal = UnsupportedError(error.rule, error.op, error.path or path, error.hint or hint)
            else:
                refusal = UnsupportedError(self.name, str(error), path, hint)
            if not linearisable or self.fallback == "none":
                raise refusal from None
            by_law = isinstance(error, NoFormulaForLawError)
            raise _LinearisableError(refusal, frozenset(numbers), by_law) from None

    def _operation(self, step: trace.Step, number: int, linear: bool) -> Any:
        module, kind = step.module, type_before_parametrizations(step.module)
        with self.step_errors(step.path, number):
            if isinstance(module, nn.modules.dropout._DropoutNd) and module.training:
                raise NoLinearPartError(f"{kind.__name__} in training mode (call net.eval())")
            if isinstance(module, Unknown) and module.function is None:
                raise NoLinearPartError(module.text)
            reason = self._without_formula(module)
            if linear or (reason and self.fallback == "linearise"):
                return self.linearise(module)
            if reason:
                raise NoFormulaError(reason)
            make, _ = self._handlers[kind]
            return make(self, module)

    def _without_formula(self, module: nn.Module) -> str:
        """Describe what has no formula in a module; empty if it has one."""
        kind = type_before_parametrizations(module)
        if isinstance(module, Unknown) or kind not in self._handlers:
            return described(module)
        if kind not in ELEMENTWISE:
            return ""
        try:
            activation = activation_of(module)  # rejects options that handlers ignore
        except NoFormulaError as error:
            return str(error)
        # A function without moments (1 / x) has them at a point mass, which the handler may encounter.
        needed = not self.linear and self.fallback == "linearise" and not activation.moments
        return described(module) if needed else ""

    def _notes(self, steps: Sequence[trace.Step], linear: frozenset[int]) -> list[str]:
        """Describe the approximation of each step that this rule approximates."""
        if self.linear:
            return []
        notes = []
        for number, step in enumerate(steps, start=1):
            _, how = self._handlers.get(type_before_parametrizations(step.module), (None, ""))
            if number in linear or self._without_formula(step.module):
                how = "linearised"
            where = f" at '{step.path}'" if step.path else ""
            if how:
                notes.append(f"{described(step.module)} {how}{where}")
        return notes


class _LinearisableError(Exception):
    """Steps with these `numbers` may be linearised; if `by_law`, they take other laws of the batch."""

    def __init__(self, refusal: UnsupportedError, numbers: frozenset[int], by_law: bool) -> None:
        super().__init__(str(refusal))
        self.refusal, self.numbers, self.by_law = refusal, numbers, by_law

    def added_to(self, linear: frozenset[int]) -> frozenset[int]:
        """Add the steps to those that are linearised already, or raise if all of them are."""
        if self.numbers <= linear:
            raise self.refusal from None
        return linear | self.numbers


def _with_fallback(prepared: Callable[[frozenset[int]], Callable[[Law], Law]]) -> Callable[[Law], Law]:
    """Linearise the steps that need it, for the laws that need it; `prepared` maps steps to walks."""

    @cache
    def walk_of(linear: frozenset[int]) -> tuple[frozenset[int], Callable[[Law], Law]]:
        while True:
            try:
                return linear, prepared(linear)
            except _LinearisableError as error:
                linear = error.added_to(linear)

    def propagate(x: Law, linear: frozenset[int]) -> Law:
        while True:
            linear, walk = walk_of(linear)
            try:
                return walk(x)
            except _LinearisableError as error:
                more = error.added_to(linear)
                if error.by_law and x.batch > 1:
                    break
                linear = more
        # Split in halves: linearise only those laws of a batch that require it.
        half = x.batch // 2
        return joined([propagate(x[:half], linear), propagate(x[half:], linear)])

    first, _ = walk_of(frozenset())
    return partial(propagate, linear=first)


def inherited(rule: type[LayerwiseRule], table: str) -> ChainMap[type[nn.Module], Any]:
    """Return an empty table of a class, backed by the tables of its bases."""
    tables = [vars(base)[table].maps[0] for base in rule.__mro__[1:] if table in vars(base)]
    return ChainMap({}, *tables)


def described(module: nn.Module) -> str:
    """Name of a module in messages."""
    named = isinstance(module, Apply | LinearFunction | Unknown)
    return str(module.text) if named else type_before_parametrizations(module).__name__


@dataclass(frozen=True)
class SizedRule(LayerwiseRule):
    """Base class of layer-wise rules that limit their memory.

    Parameters
    ----------
    max_bytes : int
        Memory for what one step carries, and the temporaries of computing it. A step that needs more for a
        single input is rejected before anything is allocated. The memory of autograd, if gradients are
        enabled, is not included.
    """

    max_bytes: int = field(default=4 * 2**30, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_number("max_bytes", 1, math.inf)

    def fit(self, needed: int, what: str, path: str = "", hint: str = "") -> None:
        """Raise a CovarianceSizeError if something needs more bytes than allowed."""
        if needed > self.max_bytes:
            text = f"{what}: they would take {needed:,} bytes with what computing them needs"
            text = f"{text}, more than its max_bytes={self.max_bytes:,}"
            raise CovarianceSizeError(self.name, text, path, needed, hint)


IDENTITIES = (
    nn.Identity,
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)
"""Ops that are the identity in evaluation mode."""


@LayerwiseRule.handles(*IDENTITIES)
def _identity(_rule: LayerwiseRule, _module: nn.Module, law: Law) -> Law:
    return law


@LayerwiseRule.handles(nn.Flatten)
def _flatten(_rule: LayerwiseRule, module: nn.Flatten, law: Law) -> Law:
    if isinstance(law, Gaussian):
        return unchecked(Gaussian, module(law.mean), law.covariance)
    values = [getattr(law, f.name) for f in fields(law)]
    return unchecked(type(law), *[module(v) if isinstance(v, Tensor) else v for v in values])
