"""The walk that layer-wise rules inherit: the law of each layer's output from that of its input."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any, ClassVar, TypeVar

from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from sdp_ref.activations import ELEMENTWISE, activation_of
from sdp_ref.errors import NoFormulaError, UnsupportedError
from sdp_ref.graph import trace
from sdp_ref.graph.affine import Rearrangement
from sdp_ref.graph.ops import Rearrange, Unknown
from sdp_ref.graph.trace import Net
from sdp_ref.laws import Gaussian, Law, unchecked
from sdp_ref.rules.base import Rule

Handler = Callable[..., Any]
Maker = Callable[..., Handler]
HandlerT = TypeVar("HandlerT", bound=Handler)


class LayerwiseRule(Rule):
    """A rule that maps the law of a layer's input to the law of its output, op by op.

    A subclass says with :meth:`start` which law enters the first layer and declares, with
    :meth:`handles`, one handler per op. Handlers are inherited.
    """

    _handlers: ClassVar[dict[type[nn.Module], Maker]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._handlers = {}

    @classmethod
    def handles(cls, *kinds: type[nn.Module]) -> Callable[[HandlerT], HandlerT]:
        """Declare the decorated function as the handler of modules of these `kinds`.

        It is called as ``handler(rule, module, *laws)`` and returns the law of the module's
        output. A functional form of an op (``F.relu``) arrives as the module that does the same.

        Parameters
        ----------
        *kinds : type
            Classes of modules.

        Returns
        -------
        callable
            The decorator, which gives the function back.
        """

        def register(handler: HandlerT) -> HandlerT:
            def make(rule: LayerwiseRule, module: nn.Module) -> Handler:
                return partial(handler, rule, module)

            cls._handlers.update(dict.fromkeys(kinds, make))
            return handler

        return register

    @classmethod
    def prepares(cls, *kinds: type[nn.Module]) -> Callable[[HandlerT], HandlerT]:
        """As :meth:`handles`, for ops where something depends on the module alone.

        The decorated function is called once a net, as ``make(rule, module)``, and returns the
        function of the laws.

        Parameters
        ----------
        *kinds : type
            Classes of modules.

        Returns
        -------
        callable
            The decorator, which gives the function back.
        """

        def register(make: HandlerT) -> HandlerT:
            cls._handlers.update(dict.fromkeys(kinds, make))
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
                walks[key] = self.walk(net, at)
            return walks[key](x)

        return propagate

    def examine(self, net: Net, x: Law) -> None:
        """Trace the net and look for a handler for each op; see :class:`Rule`."""
        self.walk(net, x.location)

    def walk(self, net: Net, like: Tensor) -> Callable[[Law], Law]:
        """Make the function that takes laws through a net.

        Parameters
        ----------
        net : nn.Module or function of one tensor
        like : Tensor, shape (B, *event)
            What its inputs look like.

        Returns
        -------
        callable
            From the law of an input of that shape to that of the output.

        Raises
        ------
        UnsupportedError
            If the net cannot be traced, or an op has no handler.
        """
        steps, operations = self.operations(net, like)
        done = trace.last_uses(steps)

        def propagate(x: Law) -> Law:
            values = {0: self.start(x)}
            for number, (step, operation, unneeded) in enumerate(
                zip(steps, operations, done, strict=True), start=1
            ):
                with self.at(step.path):
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
        try:
            steps = trace.trace(net, like, self._whole())
        except trace.UntraceableError as error:
            raise UnsupportedError(self.name, str(error)) from error
        return steps, [self._operation(step) for step in steps]

    def _operation(self, step: trace.Step) -> Handler:
        module = step.module
        kind = type_before_parametrizations(module)
        make: Maker | None = self.declared("_handlers", kind)
        with self.at(step.path):
            if isinstance(module, Unknown):
                raise NoFormulaError(module.text)
            if make is None:
                raise NoFormulaError(module.text if isinstance(module, Rearrange) else kind.__name__)
            if isinstance(module, nn.modules.dropout._DropoutNd) and module.training:
                raise NoFormulaError(f"{kind.__name__} in training mode (call net.eval())")
            if kind in ELEMENTWISE:
                activation_of(module)  # refuses options that no handler looks at
            return make(self, module)

    def _whole(self) -> frozenset[type[nn.Module]]:
        """Classes of modules that the rule takes as they are."""
        return frozenset(kind for cls in type(self).__mro__ for kind in vars(cls).get("_handlers", {}))

    def declared(self, table: str, kind: type[nn.Module]) -> Any:
        """What this class declares for a kind of module, or the nearest of its bases that does; else None."""
        tables = (vars(cls).get(table, {}) for cls in type(self).__mro__)
        return next((table[kind] for table in tables if kind in table), None)


IDENTITIES = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout)
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
