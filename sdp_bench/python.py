"""The commands as Python functions, with objects in place of addresses and files."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import nn

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.executors.local import main_hidden
from sdp_bench.bench.nets.own import net as own_nets
from sdp_bench.bench.noise import Noise, noise_of
from sdp_bench.bench.plugins import plugin, session
from sdp_bench.bench.rules import RULES
from sdp_bench.bench.text import printable, shown
from sdp_bench.commands.progress import Screen
from sdp_bench.commands.validate import GROUP_LIMIT, KIT_LIMIT
from sdp_bench.reports.scorecard.page import build
from sdp_bench.reports.scorecard.validation import Question, Validation, validated
from sdp_ref.laws import DiagonalGaussian, Empirical, Gaussian
from sdp_ref.rules import Rule

if TYPE_CHECKING:
    from sdp_bench.bench.nets.own.inputs import Inputs
    from sdp_bench.bench.nets.own.net import OwnNet
    from sdp_bench.bench.plugins.plugin import Plugin
    from sdp_bench.bench.runs.driver import Meter

_COMMAND = "sdp_bench.validate"
_MOST, _MOST_FLOAT = 2**31 - 1, 1e300


def validate(
    rule: Any = None,
    *,
    net: Any = None,
    inputs: Any = None,
    noise: Any = None,
    sigma: float | Sequence[float] | None = None,
    samples: int | None = None,
    rows: int | None = None,
    net_input: str | int | None = None,
    net_output: str | int | None = None,
    beside: Sequence[Any] | None = None,
    experiments: Sequence[str] = (),
    preset: str = "quick",
    depths: Sequence[int] | None = None,
    activation: str | None = None,
    nets: int | None = None,
    w1_points: int | None = None,
    conformance: bool = True,
    kit_limit: float = KIT_LIMIT,
    group_limit: float = GROUP_LIMIT,
    jobs: int | None = None,
    database: str | PathLike[str] | None = None,
    output: str | PathLike[str] | None = None,
    progress: bool = True,
) -> Validation:
    """Check a rule and compare it with the built-in rules, as ``sdp-bench validate`` does.

    Your rule and your net run in separate processes, to which they are sent as they are now, with the values
    of the variables that they use.

    Parameters
    ----------
    rule
        A class with ``name`` and ``propagate(net, x)``, an instance, a factory function, or a text as for the
        command; or a list of these. Without a rule, the built-in rules are compared on `net`.
    net
        Net on which rules are measured: a module, a callable without arguments that makes one, or an address
        or a file as for the command. By default, small nets that are trained on Iris.
    inputs
        Inputs of the net as an array, a tensor or a path, of shape ``(B, *event)`` with B >= 1; or a mapping
        with several of these, by name or position of the net's input.
    noise
        A number or a sequence of numbers is the standard deviation of Gaussian noise. A text names a family,
        as ``--noise`` does. A law must have one row and mean 0: a `Gaussian`, a `DiagonalGaussian`, or an
        `Empirical` of residuals.
    sigma
        Scales of the noise, in the units of the inputs. Required with `net`, unless `noise` has numbers, is a
        law, or names scales, a covariance or residuals, for which the scale is 1 by default.
    samples
        Number of samples of each oracle and each prediction.
    rows
        Number of inputs to use, from the first one.
    net_input, net_output
        Name or position of the noisy input, and of the output to predict.
    beside
        Rules to compare with, each given like `rule`; by default all built-in ones.
    experiments
        Experiments to run instead of the default cells.
    preset
        ``smoke``, ``quick`` or ``paper``.
    depths, activation, nets
        Hidden layers, activation and number of nets per depth, for the nets of the experiments.
    w1_points
        Points per side of W1.
    conformance
        Whether the conformance kit runs first.
    kit_limit, group_limit
        Time limits of the kit and of a group in seconds.
    jobs
        Worker processes; by default one per core.
    database
        Results file; by default a temporary one.
    output
        Folder of the scorecard; by default none is written.
    progress
        Whether to print progress on standard error.

    Returns
    -------
    Validation
        With the measurements as `frame`, and `verdicts`; a notebook displays it as tables.

    Raises
    ------
    UserError
        If an argument is invalid. A rule that fails its checks raises no error: see `is_wrong`.
    RunFailedError
        If `output` or `database` cannot be written, or a rule or net ends its process.
    """
    options = {
        "noise": _noise(noise),
        "sigmas": _sigmas(noise, sigma),
        "samples": _whole("samples", samples),
        "depths": None if depths is None else tuple(_count("depths", each) for each in _list(depths)),
        "activation": _text("activation", activation),
        "nets": _whole("nets", nets),
        "w1_points": _whole("w1_points", w1_points),
    }
    folder, kept = _place("output", output), _place("database", database)
    with tempfile.TemporaryDirectory() as place, main_hidden():
        ports = _port("net_input", net_input), _port("net_output", net_output)
        own = _net(net, inputs, (_whole("rows", rows), *ports))
        if own and (experiments or any(options[name] for name in ("depths", "activation", "nets"))):
            raise UserError("experiments, depths, activation and nets are for the experiments' own nets")
        question = Question(
            rules=tuple(map(_rule, () if rule is None else _list(rule))),
            net=own,
            experiments=tuple(_text("experiments", each) for each in _list(experiments)),
            preset=_text("preset", preset),
            beside=() if beside is None else tuple(map(_rule, _list(beside))),
            options={name: value for name, value in options.items() if value is not None},
            conformance=_flag("conformance", conformance),
            kit_limit=_seconds("kit_limit", kit_limit),
            group_limit=_seconds("group_limit", group_limit),
            jobs=_whole("jobs", jobs),
            command=_COMMAND,
        )
        screen = Screen() if _flag("progress", progress) else _Silent()
        found = validated(question, kept or Path(place, "validate.sqlite"), screen, folder)
    if folder is not None:
        build(found.card, folder)
    return found


class _Silent:
    """A :class:`sdp_bench.bench.runs.driver.Progress` that prints nothing."""

    def say(self, text: str) -> None:
        pass

    @contextmanager
    def meter(self, title: str) -> Iterator[Meter]:  # noqa: ARG002
        yield self

    def done(self, count: int, total: int, text: str, share: float | None = None) -> None:
        pass

    def note(self, text: str) -> None:
        pass


def _list(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]


def _rule(given: Any) -> str | Plugin:
    """Spec or address of a rule, or the plug-in made from it."""
    if isinstance(given, str):
        return str(_text("a rule", given))
    kind = given if isinstance(given, type) else type(given)
    if issubclass(kind, Rule) and kind.__module__.partition(".")[0] == "sdp_ref":
        return str(getattr(given, "name" if isinstance(given, type) else "spec"))
    if not (isinstance(given, type) or callable(given) or hasattr(given, "propagate")):
        raise UserError(f"a rule has a name and propagate(net, x), or is named by text, got {shown(given)}")
    return plugin.of(session.code_of(given), RULES)


def _net(
    net: Any, inputs: Any, taken: tuple[int | None, str | None, str | None]
) -> Callable[[], OwnNet] | None:
    if net is None:
        if inputs is not None or any(each is not None for each in taken):
            raise UserError("inputs, rows, net_input and net_output go with net")
        return None
    if inputs is None:
        raise UserError("net needs inputs: an array of shape (B, *event)")
    arrays = _inputs(inputs)
    if isinstance(net, str | PathLike):
        return partial(own_nets.find, _text("net", str(net)), arrays, *taken)
    if not callable(net):
        raise UserError(
            f"net must be an nn.Module, a function that makes one, or text, got {type(net).__name__}"
        )
    if isinstance(net, nn.Module) and any(not t.is_cpu for t in (*net.parameters(), *net.buffers())):
        net = copy.deepcopy(net).cpu()
    return partial(own_nets.of, session.code_of(net), arrays, *taken)


def _inputs(given: Any) -> Inputs:
    if isinstance(given, str | PathLike):
        return Path(_text("inputs", str(given)))
    if isinstance(given, Mapping):
        return {str(name): _array(each) for name, each in given.items()}
    return {"0": _array(given)}


def _array(given: Any) -> np.ndarray:
    """Numbers as an array, to be validated like those of files."""
    if isinstance(given, torch.Tensor):
        plain = given.detach().cpu()
        return np.asarray((plain.float() if plain.dtype == torch.bfloat16 else plain).numpy())
    try:
        return np.asarray(given)
    except ValueError as error:
        raise UserError(f"inputs must be an array of shape (B, *event): {error}") from error


def _are_numbers(given: Any) -> bool:
    return all(_is_number(each) for each in _list(given))


def _is_number(given: Any) -> bool:
    is_number = isinstance(given, int | float | np.floating | np.integer) and not isinstance(given, bool)
    return is_number and not abs(given) > _MOST_FLOAT


def _noise(given: Any) -> Noise | str | None:
    """Noise family, if one is given."""
    if given is None or isinstance(given, Noise):
        return given
    if isinstance(given, str):
        return str(_text("noise", given))
    if _are_numbers(given):
        return None
    if not isinstance(given, Gaussian | DiagonalGaussian | Empirical):
        raise UserError(
            "noise is a number, text such as 'student_t:5', or a Gaussian, DiagonalGaussian or Empirical "
            f"law, got {shown(given)}"
        )
    kind, values = _centred(given)
    return noise_of(f"{kind}:law.npy", values.detach().cpu().double().numpy())


def _centred(law: Gaussian | DiagonalGaussian | Empirical) -> tuple[str, torch.Tensor]:
    """Kind of noise of a law with mean 0, and its values."""
    if isinstance(law, Empirical) and law.weights is not None:
        raise UserError("residuals are drawn alike; an Empirical law with weights cannot be noise")
    mean = law.mean
    if len(mean) != 1 or bool((mean.abs() > 1e-6 * law.variance.sqrt()).any()):
        raise UserError(
            "noise as a law has one row and mean 0; it is put around each input, got "
            f"{len(mean)} row(s) with means up to {float(mean.abs().max()):.3g}"
        )
    if isinstance(law, Gaussian):
        return "covariance", law.covariance[0]
    if isinstance(law, DiagonalGaussian):
        return "scales", law.variance[0].sqrt()
    return "residuals", law.samples[0]


def _sigmas(noise: Any, sigma: Any) -> tuple[float, ...] | None:
    is_scale = noise is not None and not isinstance(noise, Noise | str) and _are_numbers(noise)
    if is_scale and sigma is not None:
        raise UserError("noise is a number, and so is sigma; give one of them, or the family as text")
    given = noise if is_scale else sigma
    if given is None:
        return None if noise is None or isinstance(noise, Noise | str) else (1.0,)
    if not (_are_numbers(given) and _list(given)):
        raise UserError(f"sigma is a number or several of them, got {shown(given)}")
    return tuple(map(float, _list(given)))


def _whole(name: str, given: Any) -> Any:
    return None if given is None else _count(name, given)


def _count(name: str, given: Any) -> int:
    if not isinstance(given, int | np.integer) or isinstance(given, bool) or not 1 <= given <= _MOST:
        raise UserError(f"{name} is a whole number of at least 1 and at most {_MOST}, got {shown(given)}")
    return int(given)


def _text(name: str, given: Any) -> Any:
    """A non-empty printable text on one line, or None."""
    is_text = isinstance(given, str) and given.strip() and printable(given) == given
    if given is not None and not (is_text and len(given.splitlines()) == 1):
        raise UserError(f"{name} is named by text, got {shown(given)}")
    return given


def _port(name: str, given: Any) -> str | None:
    """Name or position of an input or output of a net."""
    is_place = isinstance(given, int | np.integer) and not isinstance(given, bool) and given >= 0
    return str(given) if is_place else cast("str | None", _text(name, given))


def _place(name: str, given: Any) -> Path | None:
    if given is not None and not isinstance(given, str | PathLike):
        raise UserError(f"{name} is a path, got {shown(given)}")
    return None if given is None else Path(_text(name, str(given)))


def _flag(name: str, given: Any) -> bool:
    if not isinstance(given, bool | np.bool_):
        raise UserError(f"{name} is True or False, got {shown(given)}")
    return bool(given)


def _seconds(name: str, given: Any) -> float:
    if not _is_number(given) or not 0 < given < 1e8:
        raise UserError(f"{name} is a positive number of seconds, got {shown(given)}")
    return float(given)
