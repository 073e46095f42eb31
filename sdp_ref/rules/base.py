"""The interface of propagation rules, their look-up by name, and the function that applies one."""

from __future__ import annotations

import math
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from sdp_ref.errors import NoFormulaError, ReplacedLawWarning, UndefinedError, UnsupportedError, not_found
from sdp_ref.laws import (
    Cauchy,
    DiagonalGaussian,
    Gaussian,
    Law,
    LocationScale,
    SplitNormal,
    SymmetricStable,
    law_of,
    unchecked,
)
from sdp_ref.laws.base import noted, require
from sdp_ref.lazy import torch
from sdp_ref.registry import members, spelled

if TYPE_CHECKING:
    from torch import Tensor

    from sdp_ref.graph.trace import Net


@runtime_checkable
class Propagator(Protocol):
    """The minimal interface of a rule: a name, and a method that predicts the law of the output."""

    @property
    def name(self) -> str:
        """Short name, as in tables."""

    def propagate(self, net: Net, x: Law) -> Law:
        """Predict the law of ``net(X)`` for X of law `x`."""


def propagate(net: Net, x: Law, rule: str | Propagator = "sdp") -> Law:
    """Predict the law of ``net(X)`` for a random input X.

    The net is a module or function that maps a batch (B, *event) to (B, m), row by row; it is not modified.
    `x` is a law of batch B, or anything that :func:`law_of` accepts. The rule decides which families it
    supports: rules based on moments accept every law with a covariance. `rule` is a name from :func:`rules`
    or a rule object.

    The result has batch B and the dtype of `x`. Rules with a full covariance return a :class:`Gaussian`;
    marginal rules return the family of `x`. If the rule cannot handle the net or the family of `x`, it raises
    :class:`UnsupportedError`. A result that is not finite raises a ValueError.
    """
    return predicted(rule_of(rule), net, x)


def predicted(rule: Propagator, net: Net, x: Law) -> Law:
    """Return the law that a rule predicts for ``net(X)``, after validating net, input and result.

    `x` is a law or anything that :func:`sdp_ref.law_of` accepts. A ValueError reports a net and a law that do
    not match, and results that are not laws: parameters that are not finite, or negative scales or variances.
    A covariance matrix may be indefinite, since some rules produce such matrices.
    """
    from sdp_ref.graph.recording import by_ordinary_attention

    if not isinstance(x, Law):
        try:
            x = law_of(x)
        except ValueError as error:
            raise ValueError(f"x must be a law such as sdp_ref.Gaussian: {error}") from None
    _check_net(net, x)
    try:
        with by_ordinary_attention(), unchanged_buffers(net):
            law = rule.propagate(net, x)
        law = law if isinstance(law, Law) else law_of(law)
    except UnsupportedError:
        raise
    except RuntimeError as error:  # torch's errors about shapes and dtypes
        raise _explained(error, rule, net, x) from error
    _check_result(law, rule, net, x)
    return law


def _check_net(net: Net, x: Law) -> None:
    """Require a net with existing parameters that have the dtype and device of the input law."""
    if not callable(net):
        raise ValueError(f"net must be a torch module or a function, got {type(net).__name__}")
    parameters = _parameters(net)
    if any(map(torch.nn.parameter.is_lazy, parameters)):
        raise ValueError("the net has lazy layers; run it once, so that they get their weights")
    weight = next((p for p in parameters if p.is_floating_point()), None)
    if weight is not None and (weight.dtype, weight.device) != (x.location.dtype, x.location.device):
        raise ValueError(
            f"the net is {weight.dtype} on {weight.device}, the input law {x.location.dtype} on "
            f"{x.location.device}; bring them together with net.to(...) or x.to(...)"
        )


def _parameters(net: object) -> list[Tensor]:
    return list(net.parameters()) if isinstance(net, torch.nn.Module) else []


def _explained(error: RuntimeError, rule: Propagator, net: Net, x: Law) -> Exception:
    """The error to raise for one of torch, which names no cause that a user can act on."""
    message = str(error).splitlines()[0]
    if missing := _NO_DERIVATIVE.search(message):
        order = "second derivative" if missing["second"] else "derivative"
        hint = "rules that only call the net, such as 'unscented', need none"
        return UnsupportedError(rule.name, f"{missing['op']}, whose {order} torch does not have", hint=hint)
    dtypes = {str(p.dtype) for p in _parameters(net) if p.is_floating_point()}
    if len(dtypes) > 1:
        message += f" (parameters are {' and '.join(sorted(dtypes))}; use net.to(dtype))"
    elif _ABOUT_TYPES.search(message):
        advice = "use net.to(dtype) and x.to(dtype)"
        message += f" (the law is {x.location.dtype}, and {_cast_of(net)}; {advice})"
    return ValueError(f"the net cannot take inputs of shape {tuple(x.location.shape)}: {message}")


def _check_result(law: Law, rule: Propagator, net: Net, x: Law) -> None:
    """Require a law of vectors with finite parameters."""
    if law.location.ndim < 2:
        raise ValueError("a net must give (B, m), not one number a row; keep a dimension: x[:, :1]")
    located = torch.isfinite(law.location.detach()).all()
    # variances in a covariance matrix are not checked: they can be negative from rounding, and for dvia by
    # design
    checks = [(located, "location is not finite".__str__), *law.soundness(derived=False)]

    def described(reason: Callable[[], str]) -> str:
        return f"rule '{rule.name}' gives no law: its {reason()}{cause_of_non_finite(net, x, law)}"

    require(*[(holds, partial(described, reason)) for holds, reason in checks])


_ABOUT_TYPES = re.compile("dtype|scalar type|(input|weight|bias) type", re.IGNORECASE)
"""Messages of torch about tensors of different types."""


def _cast_of(net: object) -> str:
    """Describe the operation of a net that most likely causes tensors of different types."""
    modules = net.modules() if isinstance(net, torch.nn.Module) else ()
    nodes = [n for m in modules if isinstance(m, torch.fx.GraphModule) for n in m.graph.nodes]
    for node in nodes:
        for value in (*node.args, *node.kwargs.values()):
            if isinstance(value, torch.dtype) and "assert" not in node.name:
                return f"its operation '{node.name}' casts to {value}"
    return "the net casts (x.float(), x.to(dtype)) or creates tensors of another type"


_NO_DERIVATIVE = re.compile(
    r"derivative for '_?(?P<op>\w+?)(?P<second>_backward)?(: \w+)?' is not implemented"
)


def cause_of_non_finite(net: Net, x: Law, law: Law) -> str:
    """Describe where the predicted `law` of ``net(X)`` is not finite, and why; empty if it is finite.

    The net and its derivative are evaluated again at the mean or location of `x`.
    """
    from sdp_ref.graph.recording import by_ordinary_attention

    components = _non_finite(law)
    if not components.any():
        return ""
    row = int(components.any(1).nonzero()[0])
    point = x.location[row : row + 1].detach()
    value = slope = torch.zeros_like(law.location[row].detach().flatten())
    try:
        with by_ordinary_attention(), unchanged_buffers(net), torch.no_grad():
            value = net(point)[0].flatten()
            # forward mode, where an output does not depend on the branches of others
            slope = torch.func.jvp(lambda at: net(at)[0].flatten(), (point,), (torch.ones_like(point),))[1]
    except Exception:  # noqa: BLE001, S110 - the net has no derivative in forward mode
        pass
    # rules that mix outputs are not finite at all of them
    for values, reason in (
        (value, "the net itself is not finite"),
        (
            slope,
            "the derivative of the net is not finite, like that of sqrt at 0; move this input, or use a rule "
            "that only calls the net, such as 'unscented'",
        ),
    ):
        causes = components[row] & ~torch.isfinite(values)
        if causes.any():
            return f"{_at(causes, law, row)}, where {reason}"
    return f"{_at(components[row], law, row)}, though the net is finite at the mean"


def _at(components: Tensor, law: Law, row: int) -> str:
    """Name the first of some components of a row."""
    index = torch.unravel_index(components.nonzero()[0, 0], law.location.shape[1:])
    return f" at output {', '.join(str(int(i)) for i in index)} of input row {row}"


def _non_finite(law: Law) -> Tensor:
    """Return which components are not finite, shape (B, m); covariances count by their diagonals."""
    components = ~torch.isfinite(law.location.detach().flatten(1))
    for name in ("covariance", "variance", "scale"):
        value = getattr(law, name, None)
        if isinstance(value, torch.Tensor):
            spread = value.diagonal(dim1=-2, dim2=-1) if name == "covariance" else value.flatten(1)
            if spread.shape == components.shape:
                components = components | ~torch.isfinite(spread.detach())
    return components


@contextmanager
def unchanged_buffers(net: object) -> Iterator[None]:
    """Restore buffers that a net in training mode updates when it is run, as spectral norm does."""
    modules = net.modules() if isinstance(net, torch.nn.Module) and not torch.compiler.is_compiling() else ()
    buffers = [b for module in modules if module.training for b in module.buffers(recurse=False)]
    before = [buffer.detach().clone() for buffer in buffers]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, old in zip(buffers, before, strict=True):
                if buffer._version and not torch.equal(buffer, old):
                    buffer.copy_(old)


def smooth_orders(mean: float, covariance: float) -> Mapping[str, float]:
    """Return orders of convergence on smooth nets, for a rule that predicts Gaussian laws."""
    return MappingProxyType({"smooth mean": mean, "smooth covariance": covariance, "smooth law": 1})


@dataclass(frozen=True)
class Rule(ABC):
    """A propagation rule predicts the law of a net's output from the net and the law of its input.

    Subclasses are frozen dataclasses whose fields are the parameters of the rule.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    """Raise it with every change that changes predictions: stored measurements of the rule are then out of
    date, and the next run measures them again."""
    claims: ClassVar[Collection[str]] = frozenset()
    """Properties that the conformance kit verifies. "moments": mean and covariance equal those of the true
    law after one hidden layer. "marginal moments": means and variances are exact after one activation.
    "second order": the mean is correct to second order in small noise.
    """
    orders: ClassVar[Mapping[str, float]] = MappingProxyType({})
    """Orders of convergence that the conformance kit verifies: the errors of "smooth mean" and "smooth
    covariance" (and of the other :data:`~sdp_ref.conformance.checks.order.ORDERS`) are proportional to the
    noise to this power, as it goes to 0.
    """
    known_faults: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Checks of :func:`sdp_ref.check_rule` that the published rule fails, with the reason."""
    title: ClassVar[str | None] = None
    """Display name; None for `name`."""
    colour: ClassVar[str | None] = None
    """Colour in figures as ``#rrggbb``; None lets the figure choose. The built-in rules use those of Okabe
    and Ito (2008), which are distinguishable with all common types of colour blindness.
    """
    marginal: ClassVar[bool] = False
    """Whether the rule drops the correlations between the units of a layer."""
    reference: ClassVar[bool] = False
    """Whether it is derived from the oracle itself and therefore not ranked."""
    rank: ClassVar[int] = 100
    """Sort key in tables: deterministic rules from 10, sampling rules from 200."""

    def propagate(self, net: Net, x: Law) -> Law:
        """Predict the law of ``net(X)`` for X of law `x`.

        The net maps a batch (B, *event) to (B, m), row by row. The family of the result depends on the rule
        and on the family of `x`. Unsupported ops and families raise :class:`~sdp_ref.UnsupportedError`.
        """
        return self.prepare(net)(x)

    @contextmanager
    def at(self, path: str = "") -> Iterator[None]:
        """Context for an op, which turns a NoFormulaError into an :class:`~sdp_ref.UnsupportedError`.

        `path` is that of the op in the net, or "" for the net as a whole.
        """
        try:
            yield
        except NoFormulaError as error:
            raise UnsupportedError(self.name, str(error), path) from None

    def require_one_of(self, name: str, choices: Collection[str]) -> None:
        """Raise a ValueError unless a parameter is one of the choices."""
        if (value := getattr(self, name)) not in choices:
            raise ValueError(f"unknown {name} '{value}' of {self.name}; choose from {', '.join(choices)}")

    def require_number(self, name: str, least: float, most: float) -> None:
        """Raise a ValueError unless a parameter is a number in a closed range."""
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            upper = f" and at most {most:g}" if most < math.inf else ""
            raise ValueError(f"{self.name} needs {name} of at least {least:g}{upper}, got {value!r}")

    @abstractmethod
    def prepare(self, net: Net) -> Callable[[Law], Law]:
        """Do the work that depends on the net only, and return a function of the law of the input."""

    def examine(self, net: Net, x: Law) -> None:  # noqa: ARG002 - a rule that looks at the shapes of inputs does
        """Raise :class:`~sdp_ref.UnsupportedError` if the rule is known not to support a net.

        Nothing is propagated if the rule can decide without it. `x` has the shape and family of the inputs.
        """
        self.prepare(net)

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters that distinguish this rule from others of its name: those not at their default."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default}

    @property
    def spec(self) -> str:
        """The rule as text, ``name`` or ``name:key=value,...``, which :func:`sdp_ref.rule` parses."""
        options = ",".join(f"{k}={v}" for k, v in self.parameters.items())
        return f"{self.name}:{options}" if options else self.name

    @property
    def label(self) -> str:
        """Display name, with the :meth:`parameters`."""
        options = ", ".join(f"{k}={v}" for k, v in self.parameters.items())
        title = self.title or self.name
        return f"{title} ({options})" if options else title

    @property
    def sampling(self) -> int | None:
        """Number of samples of the net that the rule draws, 0 if unknown; None for deterministic rules.

        Rules with a ``seed`` should override this.
        """
        return 0 if hasattr(self, "seed") else None


def check_outputs(inputs: Tensor, outputs: object) -> Tensor:
    """Require outputs with one row of floating-point numbers per input."""
    if not isinstance(outputs, torch.Tensor):
        raise ValueError(f"a net must return one tensor, got {type(outputs).__name__}")
    if outputs.ndim < 2 or outputs.shape[0] != inputs.shape[0] or not outputs.is_floating_point():
        raise ValueError(
            f"a net must map {tuple(inputs.shape)} to (B, m) row by row, got {tuple(outputs.shape)} "
            f"of {outputs.dtype}"
        )
    return outputs


def with_checked_outputs(net: Net) -> Net:
    """Return the net with :func:`check_outputs`, and itself as `__wrapped__`."""

    def checked(inputs: Tensor) -> Tensor:
        return check_outputs(inputs, net(inputs))

    checked.__wrapped__ = net  # type: ignore[attr-defined]
    return checked


def stored(mean: Tensor, covariance: Tensor, dtype: torch.dtype) -> Gaussian:
    """Return a Gaussian of `dtype` without rounding errors of symmetry, and a note if it loses variances."""
    covariance = (covariance + covariance.mT) / 2
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    law = unchecked(Gaussian, mean.to(dtype), covariance.to(dtype))
    return noted(law, lost_variances(variance, dtype))


@cache
def _least(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).tiny


def lost_variances(
    variance: Tensor, dtype: torch.dtype, scale: Callable[[], Tensor] | None = None
) -> list[str]:
    """Return a note if `dtype` cannot store all positive variances.

    `scale` computes numbers that are positive where the exact variance is, if it may have underflowed to 0.
    """
    if not variance.is_cpu or torch.compiler.is_compiling():
        return []
    least = _least(dtype)
    smallest = variance.detach() if variance.requires_grad else variance
    if not variance.numel() or float(smallest.amin()) >= least:
        return []
    positive = variance if scale is None else scale()
    if not bool(((variance.detach() < least) & (positive.detach() > 0)).any()):
        return []
    return [f"variances below {least:.1e}, which {dtype} stores as 0 or inexactly (use float64)"]


@contextmanager
def _of_moments(rule: str, x: Law) -> Iterator[None]:
    """Wrap the reading of the moments of a law that is not Gaussian.

    Without moments an UnsupportedError is raised; otherwise a warning says that it is taken for a Gaussian.
    """
    kind = type(x).__name__
    try:
        yield
    except UndefinedError as error:
        raise UnsupportedError(rule, f"{kind} input, which has no covariance ({error})") from None
    warnings.warn(
        f"rule '{rule}' takes {x.described} for the Gaussian with its mean and covariance",
        ReplacedLawWarning,
        stacklevel=4,  # this function, contextlib, `as_...` below, its caller
    )


def as_any_gaussian(rule: str, x: Law) -> Gaussian | DiagonalGaussian:
    """Return `x` as a Gaussian, without a dense covariance if its components are independent."""
    if isinstance(x, Gaussian | DiagonalGaussian):
        return x
    with _of_moments(rule, x):
        if isinstance(x, LocationScale | SplitNormal):
            return unchecked(DiagonalGaussian, x.mean, x.variance)
        return unchecked(Gaussian, x.mean, x.covariance)


def as_gaussian(rule: str, x: Law) -> Gaussian:
    """Return `x` as a Gaussian with its mean (B, *event) and covariance (B, n, n); warn if it is not one."""
    x = as_any_gaussian(rule, x)
    return x if isinstance(x, Gaussian) else unchecked(Gaussian, x.mean, x.covariance)


def as_marginal(rule: str, x: Law) -> Law:
    """Return `x` without its correlations, Gaussian unless it is stable, and warn about what was dropped."""
    if isinstance(x, DiagonalGaussian | Cauchy | SymmetricStable):
        return x
    if not isinstance(x, Gaussian):
        with _of_moments(rule, x):
            return unchecked(DiagonalGaussian, x.mean, x.variance)
    warnings.warn(
        f"rule '{rule}' is marginal: it uses the variances of its Gaussian input and drops the covariances",
        ReplacedLawWarning,
        stacklevel=2,
    )
    return unchecked(DiagonalGaussian, x.mean, x.variance)


@dataclass(frozen=True)
class Traits:
    """Metadata of a rule for tables, figures and statistics; see the attributes of :class:`Rule`."""

    label: str
    colour: str | None = Rule.colour
    sampling: int | None = None
    marginal: bool = Rule.marginal
    reference: bool = Rule.reference
    rank: int = Rule.rank


def traits(rule: Propagator) -> Traits:
    """Return the metadata of any rule, from its attributes of these names.

    A rule that has a ``seed`` but does not declare the number of samples counts as sampling, since its
    results may depend on the seed.
    """
    sampling = getattr(rule, "sampling", 0 if hasattr(rule, "seed") else None)
    return Traits(
        label=str(getattr(rule, "label", rule.name)),
        colour=getattr(rule, "colour", Rule.colour),
        sampling=None if sampling is None else int(sampling),
        marginal=bool(getattr(rule, "marginal", Rule.marginal)),
        reference=bool(getattr(rule, "reference", Rule.reference)),
        rank=int(getattr(rule, "rank", Rule.rank)),
    )


_RULES: Mapping[str, type[Rule]] = members("sdp_ref.rules", "sdp_ref.rules.base.Rule")


def rules() -> tuple[str, ...]:
    """Names of the built-in rules, in the order of tables."""
    return tuple(_RULES)


def rule(name: str, **parameters: Any) -> Rule:
    """Return a rule by name.

    `name` is one of :func:`rules`, optionally with parameters as text, such as ``"monte_carlo:samples=100"``.
    Keyword arguments are parameters, too, such as ``samples=100``. Unknown names and invalid parameters raise
    a ValueError.
    """
    if not isinstance(name, str):
        raise ValueError(f"a rule is named by a string such as 'sdp', got {name!r}")
    name, _, text = name.partition(":")
    kind = _kind(name)
    given = {**parse_parameters(kind.name, text), **parameters} if text else parameters
    known = [f.name for f in fields(kind) if f.init]
    for key in given:
        if key not in known:
            accepted = f"its parameters are {', '.join(known)}" if known else "it takes none"
            raise ValueError(f"rule '{kind.name}' has no parameter '{key}'; {accepted}")
    return kind(**{key: _part(kind, key, value) for key, value in given.items()})


@cache
def _kind(name: str) -> type[Rule]:
    name = spelled(name, _RULES)
    if name not in _RULES:
        raise ValueError(not_found("rule", name, _RULES))
    return _RULES[name]


def rule_of(chosen: str | Propagator) -> Propagator:
    """Return a rule object as it is, or look up a name as :func:`rule` does."""
    if isinstance(chosen, str):
        return rule(chosen)
    if not isinstance(chosen, Propagator):
        raise ValueError(f"rule must be a name or an object with name and propagate(net, x), got {chosen!r}")
    return chosen


def _part(kind: type[Rule], key: str, value: Any) -> Any:
    """Build a parameter that is itself a rule from its spec; return other parameters unchanged."""
    metadata = {field.name: field.metadata for field in fields(kind)}
    if not (metadata[key].get("rule") and isinstance(value, str)):
        return value
    try:
        return rule(value)
    except ValueError as error:
        raise ValueError(f"{key} of {kind.name}: {error}") from None


def parse_parameters(name: str, text: str) -> dict[str, Any]:
    """Parse the text ``key=value,...`` for the rule `name`; values become bool, int, float or str."""
    parsed: dict[str, Any] = {}
    for item in text.split(","):
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"rule '{name}': parameters are written key=value, got '{item}'")
        parsed[key.strip()] = _value(value.strip())
    return parsed


def _value(text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
