"""The walk that layer-wise rules inherit: the law of each layer's output from that of its input."""

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
    """A rule that maps the law of a layer's input to the law of its output, op by op.

    A subclass says with :meth:`start` which law enters the first layer and declares, with
    :meth:`handles`, one handler per op. Handlers are inherited.

    Parameters
    ----------
    fallback : str
        What is done at an op without a formula, or whose formula does not take what comes in: "none" refuses
        the net, "linearise" takes the op for its derivative at the mean, where it has one.

    Raises
    ------
    ValueError
        If `fallback` is neither, or the rule has no linearisation.
    """

    linear: ClassVar[bool] = False
    """Whether the rule linearises every op. It is then no approximation of the rule, and not noted."""

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
        """Declare the decorated function as the handler of modules of these `kinds`.

        It is called as ``handler(rule, module, *laws)`` and returns the law of the module's
        output. A functional form of an op (``F.relu``) arrives as the module that does the same.

        Parameters
        ----------
        *kinds : type
            Classes of modules.
        note : str
            How the handler approximates them, for :attr:`Law.notes` ("linearised"); empty if it does not.

        Returns
        -------
        callable
            The decorator, which gives the function back.
        """

        def register(handler: HandlerT) -> HandlerT:
            def make(rule: LayerwiseRule, module: nn.Module) -> Handler:
                return partial(handler, rule, module)

            cls.prepares(*kinds, note=note)(make)
            return handler

        return register

    @classmethod
    def prepares(cls, *kinds: type[nn.Module], note: str = "") -> Callable[[HandlerT], HandlerT]:
        """As :meth:`handles`, for ops where something depends on the module alone.

        The decorated function is called once a net, as ``make(rule, module)``, and returns the
        function of the laws.

        Parameters
        ----------
        *kinds : type
            Classes of modules.
        note : str
            As of :meth:`handles`.

        Returns
        -------
        callable
            The decorator, which gives the function back.
        """

        def register(make: HandlerT) -> HandlerT:
            cls._handlers.update(dict.fromkeys(kinds, make))
            cls._approximations.update(dict.fromkeys(kinds, note))
            return make

        return register

    @abstractmethod
    def start(self, x: Law) -> Law:
        """Turn the law of the net's input into the one that is walked through the net."""

    def finish(self, law: Law, x: Law) -> Law:
        """Turn the law of the last layer's output into the result."""
        return law.to(dtype=x.location.dtype)

    def prepare(self, net: Net) -> Callable[[Law], Law]:
        """Trace the net and find a handler for each op, once for each shape of inputs; see :class:`Rule`."""
        walks: dict[Any, Callable[[Law], Law]] = {}

        def propagate(x: Law) -> Law:
            at = x.location
            key = (at.shape[1:], at.dtype, at.device, getattr(net, "training", False))
            if key not in walks:
                walks[key] = self.prepare_steps(self.steps(net, at))
            return walks[key](x)

        return propagate

    def examine(self, net: Net, x: Law) -> None:
        """Trace the net and look for a handler for each op; see :class:`Rule`."""
        self.prepare_steps(self.steps(net, x.location))

    def prepare_steps(self, steps: Sequence[trace.Step]) -> Callable[[Law], Law]:
        """As :meth:`prepare`, for a net that is given as its steps.

        Parameters
        ----------
        steps : sequence of Step
            The last one gives the output, and each is needed for it.

        Returns
        -------
        callable
            From the law of value 0 to that of the last one, which notes what was approximated on the way.

        Raises
        ------
        UnsupportedError
            If an op has no handler.
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
            # In halves: of a batch only those laws are linearised that have to be.
            half = x.batch // 2
            return joined([propagate(x[:half], linear), propagate(x[half:], linear)])

        return partial(propagate, linear=first)

    def walk(self, steps: Sequence[trace.Step], operations: Sequence[Handler]) -> Callable[[Law], Law]:
        """Function of the law of the input that takes the steps one by one.

        Parameters
        ----------
        steps : sequence of Step
        operations : sequence of callable
            What this rule does at each.
        """
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
        """Steps of a net, each with what this rule does there.

        Parameters
        ----------
        net : nn.Module or function of one tensor
        like : Tensor, shape (B, *event)
            What its inputs look like.

        Returns
        -------
        list of Step
            In the order in which they are taken.
        list of callable
            From the laws of a step's inputs to that of its output, or what a subclass makes of it.

        Raises
        ------
        UnsupportedError
            If the net cannot be traced, or an op has no handler.
        """
        steps = self.steps(net, like)
        return steps, self._despite(self._operations(steps))[1]

    def steps(self, net: Net, like: Tensor) -> list[trace.Step]:
        """Trace a net.

        Parameters
        ----------
        net : nn.Module or function
        like : Tensor, shape (B, *event)
            What its inputs look like.

        Raises
        ------
        UnsupportedError
            If it cannot be traced.
        """
        try:
            return trace.trace(net, like, self._whole())
        except trace.UntraceableError as error:
            raise UnsupportedError(self.name, str(error)) from error

    def linearise(self, module: nn.Module) -> Any:
        """What a declared handler would be, for any differentiable module: its derivative at the mean.

        Parameters
        ----------
        module : nn.Module
            Of one value or several, each row by itself.

        Raises
        ------
        NoFormulaError
            If the rule has none.
        """
        raise NoFormulaError(described(module))

    @property
    def _linearises(self) -> bool:
        return type(self).linearise is not LayerwiseRule.linearise

    @contextmanager
    def taking(self, path: str, *places: int) -> Iterator[None]:
        """Where steps of a net are taken: what is refused there may be linearised, and the walk done again.

        Parameters
        ----------
        path : str
            Where the first one stands in the net.
        *places : int
            Values that they make.

        Raises
        ------
        CovarianceSizeError
            As it is.
        _RefusedError
            In the stead of any other refusal.
        """
        try:
            yield
        except CovarianceSizeError:
            raise
        except (NoFormulaError, UnsupportedError) as error:
            raise _RefusedError(error, path, frozenset(places)) from None

    def _despite(self, attempt: Callable[[frozenset[int]], MadeT]) -> tuple[frozenset[int], MadeT]:
        """What is made of the places that are linearised, with as many of them as it takes; these first."""
        linear: frozenset[int] = frozenset()
        while True:
            try:
                return linear, attempt(linear)
            except _RefusedError as refusal:
                linear |= self._instead(refusal, linear)

    def _instead(self, refusal: _RefusedError, linear: frozenset[int]) -> frozenset[int]:
        """Places that are linearised for a refusal."""
        can = refusal.linearisable and self._linearises
        if not can or self.fallback == "none" or refusal.places <= linear:
            hint = _HINT if can and self.fallback == "none" else ""
            raise refusal.unsupported(self.name, hint) from None
        return refusal.places

    def _operations(self, steps: Sequence[trace.Step]) -> Callable[[frozenset[int]], list[Handler]]:
        """From the places that are linearised to what is done at each step; each is prepared once."""

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
        """What there is no formula for in a module; empty if there is one."""
        kind = type_before_parametrizations(module)
        if isinstance(module, Unknown) or self.declared("_handlers", kind) is None:
            return described(module)
        if kind not in ELEMENTWISE:
            return ""
        try:
            activation = activation_of(module)  # refuses options that no handler looks at
        except NoFormulaError as error:
            return str(error)
        # A function without moments (1 / x) has those of a point mass, and a handler may be given one.
        needed = not self.linear and self.fallback == "linearise" and not activation.moments
        return described(module) if needed else ""

    def _notes(self, steps: Sequence[trace.Step], linear: frozenset[int]) -> list[str]:
        """How this rule approximates each step that it does approximate, for people."""
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
        """Classes of modules that the rule takes as they are."""
        return frozenset(kind for cls in type(self).__mro__ for kind in vars(cls).get("_handlers", {}))

    def declared(self, table: str, kind: type[nn.Module]) -> Any:
        """What this class declares for a kind of module, or the nearest of its bases that does; else None."""
        tables = (vars(cls).get(table, {}) for cls in type(self).__mro__)
        return next((table[kind] for table in tables if kind in table), None)


class _RefusedError(Exception):
    """Inside a rule's walk: steps at some places were refused.

    Parameters
    ----------
    error : NoFormulaError or UnsupportedError
    path : str
        Where the first one stands in the net.
    places : frozenset of int
    """

    def __init__(self, error: NoFormulaError | UnsupportedError, path: str, places: frozenset[int]) -> None:
        super().__init__(str(error))
        self.error, self.path, self.places = error, path, places

    @property
    def linearisable(self) -> bool:
        """Whether a derivative may stand for them."""
        return not isinstance(self.error, NoLinearPartError)

    @property
    def by_law(self) -> bool:
        """Whether it may be for some laws of a batch only."""
        return isinstance(self.error, NoFormulaForLawError)

    def unsupported(self, rule: str, hint: str) -> UnsupportedError:
        """What a rule says of it."""
        error = self.error
        if isinstance(error, UnsupportedError):  # a handler's own
            return UnsupportedError(error.rule, error.op, error.path or self.path, error.hint or hint)
        return UnsupportedError(rule, str(error), self.path, hint)


def described(module: nn.Module) -> str:
    """What a module is, in messages."""
    named = isinstance(module, Apply | LinearFunction | Rearrange | Unknown)
    return str(module.text) if named else type_before_parametrizations(module).__name__


IDENTITIES = (
    nn.Identity,
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout),
)
"""Ops that do nothing in evaluation mode."""


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
