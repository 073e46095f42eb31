"""The base class of layer-wise rules, which compute the law of each op's output from that of its input."""

from __future__ import annotations

from abc import abstractmethod
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
from sdp_ref.graph.affine import Rearrangement
from sdp_ref.graph.ops import LinearFunction, Rearrange, Unknown
from sdp_ref.graph.trace import Net
from sdp_ref.laws import Gaussian, Law, joined, noted, unchecked
from sdp_ref.rules.base import Rule

Handler = Callable[..., Any]
Maker = Callable[..., Handler]
HandlerT = TypeVar("HandlerT", bound=Handler)
MadeT = TypeVar("MadeT")

_FALLBACKS = ("none", "linearise")
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

    _handlers: ClassVar[dict[type[nn.Module], Maker]] = {}
    _approximations: ClassVar[dict[type[nn.Module], str]] = {}

    fallback: str = field(default="none", kw_only=True)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._handlers, cls._approximations = {}, {}

    def __post_init__(self) -> None:
        if self.fallback not in _FALLBACKS:
            raise ValueError(f"{self.name} needs fallback={' or '.join(_FALLBACKS)}, got {self.fallback!r}")
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
            cls._handlers.update(dict.fromkeys(kinds, make))
            cls._approximations.update(dict.fromkeys(kinds, note))
            return make

        return register

    @abstractmethod
    def start(self, x: Law) -> Law:
        """Convert the law of the net's input to the one that is propagated."""

    def finish(self, law: Law, x: Law) -> Law:
        """Convert the law of the last layer's output to the result."""
        return law.to(dtype=x.location.dtype)

    def prepare(self, net: Net) -> Callable[[Law], Law]:
        """Trace the net and find a handler for each op, once per shape of the input."""
        walks: dict[Any, Callable[[Law], Law]] = {}

        def propagate(x: Law) -> Law:
            at = x.location
            key = (at.shape[1:], at.dtype, at.device, getattr(net, "training", False))
            if key not in walks:
                walks[key] = self.prepare_steps(self.steps(net, at))
            return walks[key](x)

        return propagate

    def examine(self, net: Net, x: Law) -> None:
        """Trace the net and find a handler for each op."""
        self.prepare_steps(self.steps(net, x.location))

    def prepare_steps(self, steps: Sequence[trace.Step]) -> Callable[[Law], Law]:
        """Do the same as :meth:`prepare` for a net given as its steps; the last one is the output.

        The returned function maps the law of value 0 to that of the last one, and notes the approximations.
        """
        operations = self._operations(steps)

        def prepared(linear: frozenset[int]) -> Callable[[Law], Law]:
            walk, notes = self.walk(steps, operations(linear)), self._notes(steps, linear)
            return lambda x: noted(walk(x), notes)

        first, walk = self._despite(prepared)
        walks = {first: walk}

        def propagate(x: Law, linear: frozenset[int]) -> Law:
            while True:
                try:
                    if linear not in walks:
                        walks[linear] = prepared(linear)
                    return walks[linear](x)
                except _RefusedError as refusal:
                    more = self._instead(refusal, linear)
                    if refusal.by_law and x.batch > 1:
                        break
                    linear = linear | more
            # Split in halves: linearise only those laws of a batch that require it.
            half = x.batch // 2
            return joined([propagate(x[:half], linear), propagate(x[half:], linear)])

        return partial(propagate, linear=first)

    def walk(self, steps: Sequence[trace.Step], operations: Sequence[Handler]) -> Callable[[Law], Law]:
        """Return a function of the input's law that applies the operation of each step."""
        done = trace.last_uses(steps)

        def propagate(x: Law) -> Law:
            values = {0: self.start(x)}
            for number, (step, operation, unneeded) in enumerate(
                zip(steps, operations, done, strict=True), start=1
            ):
                with self.taking(step.path, number):
                    values[number] = operation(*(values[i] for i in step.inputs))
                for i in unneeded:
                    del values[i]
            return self.finish(values[len(steps)], x)

        return propagate

    def operations(self, net: Net, like: Tensor) -> tuple[list[trace.Step], list[Handler]]:
        """Return the steps of a net in order, and this rule's operation at each of them.

        `like` has the shape of the inputs. An operation maps the laws of a step's inputs to that of its
        output, unless a subclass defines it otherwise. Raises :class:`~sdp_ref.UnsupportedError` if the net
        cannot be traced or an op has no handler.
        """
        steps = self.steps(net, like)
        return steps, self._despite(self._operations(steps))[1]

    def steps(self, net: Net, like: Tensor) -> list[trace.Step]:
        """Trace a net for inputs of the shape of `like`."""
        try:
            return trace.trace(net, like, self._whole())
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
    def taking(self, path: str, *places: int) -> Iterator[None]:
        """Context for steps at `places`, whose errors are raised as a _RefusedError for the fallback.

        A :class:`~sdp_ref.CovarianceSizeError` is not converted.
        """
        try:
            yield
        except CovarianceSizeError:
            raise
        except (NoFormulaError, UnsupportedError) as error:
            raise _RefusedError(error, path, frozenset(places)) from None

    def _despite(self, attempt: Callable[[frozenset[int]], MadeT]) -> tuple[frozenset[int], MadeT]:
        """Repeat an attempt, linearising more steps until it succeeds; return these and the result."""
        linear: frozenset[int] = frozenset()
        while True:
            try:
                return linear, attempt(linear)
            except _RefusedError as refusal:
                linear |= self._instead(refusal, linear)

    def _instead(self, refusal: _RefusedError, linear: frozenset[int]) -> frozenset[int]:
        """Return the steps to linearise after an error, or raise it."""
        can = refusal.linearisable and self._linearises
        if not can or self.fallback == "none" or refusal.places <= linear:
            hint = _HINT if can and self.fallback == "none" else ""
            raise refusal.unsupported(self.name, hint) from None
        return refusal.places

    def _operations(self, steps: Sequence[trace.Step]) -> Callable[[frozenset[int]], list[Handler]]:
        """Return a function from the set of linearised steps to the operations; each is prepared once."""

        @cache
        def operation(place: int, linear: bool) -> Handler:
            handler: Handler = self._operation(steps[place - 1], place, linear)
            return handler

        return lambda linear: [operation(place, place in linear) for place in range(1, len(steps) + 1)]

    def _operation(self, step: trace.Step, place: int, linear: bool) -> Any:
        module, kind = step.module, type_before_parametrizations(step.module)
        make: Maker | None = self.declared("_handlers", kind)
        with self.taking(step.path, place):
            if isinstance(module, nn.modules.dropout._DropoutNd) and module.training:
                raise NoLinearPartError(f"{kind.__name__} in training mode (call net.eval())")
            if isinstance(module, Unknown) and module.function is None:
                raise NoLinearPartError(module.text)
            reason = self._without_formula(module)
            if linear or (reason and self.fallback == "linearise"):
                return self.linearise(module)
            if reason or make is None:
                raise NoFormulaError(reason)
            return make(self, module)

    def _without_formula(self, module: nn.Module) -> str:
        """Describe what has no formula in a module; empty if it has one."""
        kind = type_before_parametrizations(module)
        if isinstance(module, Unknown) or self.declared("_handlers", kind) is None:
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
        for place, step in enumerate(steps, start=1):
            how = self.declared("_approximations", type_before_parametrizations(step.module)) or ""
            if place in linear or self._without_formula(step.module):
                how = "linearised"
            where = f" at '{step.path}'" if step.path else ""
            if how:
                notes.append(f"{described(step.module)} {how}{where}")
        return notes

    def _whole(self) -> frozenset[type[nn.Module]]:
        """Classes of modules that are not decomposed."""
        return frozenset(kind for cls in type(self).__mro__ for kind in vars(cls).get("_handlers", {}))

    def declared(self, table: str, kind: type[nn.Module]) -> Any:
        """Look up a module class in a table of this class and its bases; None if it is missing."""
        tables = (vars(cls).get(table, {}) for cls in type(self).__mro__)
        return next((table[kind] for table in tables if kind in table), None)


class _RefusedError(Exception):
    """Steps at some places of a net were rejected."""

    def __init__(self, error: NoFormulaError | UnsupportedError, path: str, places: frozenset[int]) -> None:
        super().__init__(str(error))
        self.error, self.path, self.places = error, path, places

    @property
    def linearisable(self) -> bool:
        """Whether they can be linearised."""
        return not isinstance(self.error, NoLinearPartError)

    @property
    def by_law(self) -> bool:
        """Whether other laws of the batch may be supported."""
        return isinstance(self.error, NoFormulaForLawError)

    def unsupported(self, rule: str, hint: str) -> UnsupportedError:
        error = self.error
        if isinstance(error, UnsupportedError):  # raised by a handler
            return UnsupportedError(error.rule, error.op, error.path or self.path, error.hint or hint)
        return UnsupportedError(rule, str(error), self.path, hint)


def described(module: nn.Module) -> str:
    """Name of a module in messages."""
    named = isinstance(module, Apply | LinearFunction | Rearrange | Unknown)
    return str(module.text) if named else type_before_parametrizations(module).__name__


IDENTITIES = (
    nn.Identity,
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout),
)
"""Ops that are the identity in evaluation mode."""


@LayerwiseRule.handles(*IDENTITIES)
def _identity(_rule: LayerwiseRule, _module: nn.Module, law: Law) -> Law:
    return law


@LayerwiseRule.handles(nn.Flatten)
def _flatten(_rule: LayerwiseRule, module: nn.Flatten, law: Law) -> Law:
    Rearrangement(module).check(law.location)
    if isinstance(law, Gaussian):
        return unchecked(Gaussian, module(law.mean), law.covariance)
    parts = (getattr(law, f.name) for f in fields(law))
    return unchecked(type(law), *(module(v) if isinstance(v, Tensor) else v for v in parts))
