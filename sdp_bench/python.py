"""The commands as Python functions, with objects in place of addresses and files."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from numbers import Real
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import pandas as pd
import torch
from torch import nn

from sdp_bench.bench.advice.advice import advise_on
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.executors.local import apart, main_hidden
from sdp_bench.bench.nets.own import net as own_nets
from sdp_bench.bench.noise import GAUSSIAN, Noise, noise_of
from sdp_bench.bench.plugins import plugin, session
from sdp_bench.bench.rules import built_in
from sdp_bench.bench.text import shown
from sdp_bench.commands.config import converted
from sdp_bench.commands.progress import Screen, command_line
from sdp_bench.commands.validate import GROUP_LIMIT, KIT_LIMIT
from sdp_bench.commands.validate import validate as command
from sdp_bench.reports.scorecard.page import Scorecard, build
from sdp_bench.reports.scorecard.validation import Question, validated
from sdp_ref.errors import on_one_line
from sdp_ref.laws import DiagonalGaussian, Empirical, Gaussian
from sdp_ref.rules import Rule

if TYPE_CHECKING:
    from sdp_bench.bench.nets.own.inputs import Inputs
    from sdp_bench.bench.nets.own.net import OwnNet
    from sdp_bench.bench.plugins.plugin import Plugin


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
) -> Scorecard:
    """Check a rule and compare it with the built-in rules, as ``sdp-bench validate`` does.

    `rule` is a class with ``name`` and ``propagate(net, x)``, an instance, a factory function, or a text as
    for the command; or a list of these. Without a rule, the built-in rules are compared on `net`. `beside`
    are rules to compare with, each given like `rule`; by default all built-in ones. `net` is a module, a
    callable without arguments that makes one, or an address or a file as for the command; by default, small
    nets that are trained on Iris. Your rule and your net run in separate processes, to which they are sent as
    they are now, with the values of the variables that they use.

    `inputs` of the net are an array, a tensor or a path, of shape ``(B, *event)`` with B >= 1; or a mapping
    with several of these, by name or position of the net's input. `rows` is the number of inputs to use, from
    the first one. `net_input` and `net_output` are name or position of the noisy input and of the output to
    predict.

    `noise` is the standard deviation of Gaussian noise, a number or several; or a text that names a family,
    as ``--noise`` does; or a law with one row and mean 0: a `Gaussian`, a `DiagonalGaussian`, or an
    `Empirical` of residuals. `sigma` are scales of the noise, in the units of the inputs. They are required
    with `net`, unless `noise` has numbers, is a law, or names scales, a covariance or residuals, for which
    the scale is 1 by default.

    `experiments` run instead of the default cells; `depths`, `activation` and `nets` (number per depth) are
    for their nets. `preset` is ``smoke``, ``quick`` or ``paper``, `samples` the number of samples of each
    oracle and each prediction, and `w1_points` that of points per side of W1. `conformance` is whether the
    conformance kit runs first. `kit_limit` and `group_limit` are time limits of the kit and of a group in
    seconds, and `jobs` is the number of worker processes, by default one per core. `database` is a results
    file (default: a temporary one), `output` the folder of the scorecard (default: none is written), and
    `progress` is whether to print progress on standard error.

    The result has the measurements as `frame`, and `verdicts`; a notebook displays it as tables. Raises
    UserError if an argument is invalid, and RunFailedError if `output` or `database` cannot be written, or a
    rule or net ends its process. A rule that fails its checks raises no error: see `is_wrong`.
    """
    given = {"samples": samples, "depths": depths, "nets": nets, "w1_points": w1_points}
    options = {name: _option(name, value) for name, value in (given | {"activation": activation}).items()}
    options["noise"], options["sigmas"] = _noise(noise, sigma)
    folder, kept = _option("output", output), _option("database", database)
    with tempfile.TemporaryDirectory() as place, main_hidden():
        question = Question(
            rules=tuple(map(_rule, () if rule is None else _list(rule))),
            net=_net(net, inputs, rows, net_input, net_output),
            experiments=_option("experiments", experiments or None) or (),
            preset=_option("preset", preset),
            beside=() if beside is None else tuple(map(_rule, _list(beside))),
            options={name: value for name, value in options.items() if value is not None},
            conformance=_option("conformance", conformance),
            kit_limit=_option("kit_limit", kit_limit),
            group_limit=_option("group_limit", group_limit),
            jobs=_option("jobs", jobs),
            command=command_line(),
        )
        screen = Screen(quiet=not progress)
        found = validated(question, kept or Path(place, "validate.sqlite"), screen, folder)
    if folder is not None:
        build(found, folder)
    return found


def advise(
    net: Any,
    inputs: Any,
    *,
    noise: Any = None,
    sigma: float | Sequence[float] | None = None,
    rows: int | None = None,
    net_input: str | int | None = None,
    net_output: str | int | None = None,
) -> pd.DataFrame:
    """Advise whether linearisation is accurate for a net, without an oracle, as ``sdp-bench advise`` does.

    Arguments are those of :func:`validate`. The result has a row for each noise level, input and use, with
    the columns of :func:`sdp_bench.bench.advice.advice.advise` and `sigma`; ``attrs["net"]`` is the name of
    the net, and ``attrs["notes"]`` are lines on how it was loaded. A UserError is raised for invalid
    arguments, and for noise that is not Gaussian.
    """
    given, sigmas = _noise(noise, sigma)
    family = noise_of(given) if isinstance(given, str) else given or GAUSSIAN
    if sigmas is None and family.values is None:
        raise UserError("sigma is required (--sigma 0.1,1)")
    with main_hidden():
        find = None if net is None else _net(net, inputs, rows, net_input, net_output)
        if find is None:
            raise UserError("net is required: an nn.Module, a function that makes one, or text")
        own = find()
        name = own.architecture.name
        table = pd.DataFrame(apart(advise_on, own, family, sigmas or (1.0,), address=name))
    table.attrs["net"], table.attrs["notes"] = name, list(own.notes)
    return table


def _option(name: str, given: Any) -> Any:
    """Convert a value as the command's option or argument of this name does; None stays None."""
    if given is None:
        return None
    plain = [value.item() if isinstance(value, np.generic) else value for value in _list(given)]
    plain = [fspath(value) if isinstance(value, PathLike) else value for value in plain]
    parameter = next(each for each in command.params if each.name == name)
    try:
        is_list = isinstance(given, list | tuple)
        return converted(parameter, plain if is_list else plain[0], click.Context(command))
    except click.BadParameter as error:
        raise UserError(f"{name}: {on_one_line(error.message)}") from error


def _list(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]


def _rule(given: Any) -> str | Plugin:
    """Spec or address of a rule, or the plug-in made from it."""
    if isinstance(given, str):
        return str(_option("rules", given)[0])
    kind = given if isinstance(given, type) else type(given)
    if issubclass(kind, Rule) and kind.__module__.partition(".")[0] == "sdp_ref":
        return str(getattr(given, "name" if isinstance(given, type) else "spec"))
    if not (isinstance(given, type) or callable(given) or hasattr(given, "propagate")):
        raise UserError(f"a rule has a name and propagate(net, x), or is named by text, got {shown(given)}")
    return plugin.of(session.code_of(given), built_in())


def _net(net: Any, inputs: Any, rows: Any, net_input: Any, net_output: Any) -> Callable[[], OwnNet] | None:
    if net is None:
        if any(given is not None for given in (inputs, rows, net_input, net_output)):
            raise UserError("inputs, rows, net_input and net_output need a net (--net FILE.py:build)")
        return None
    if inputs is None:
        raise UserError(
            "a net needs inputs (--inputs x.npy, or x.csv with one row each): an array of shape (B, *event)"
        )
    arrays: Inputs
    if isinstance(inputs, str | PathLike):
        arrays = _option("inputs", inputs)
    else:
        named = inputs if isinstance(inputs, Mapping) else {"0": inputs}
        arrays = {str(name): _array(values) for name, values in named.items()}
    ports = {
        name: _option(name, str(given) if isinstance(given, int | np.integer) else given)
        for name, given in (("net_input", net_input), ("net_output", net_output))
    }
    taken = (_option("rows", rows), *ports.values())
    if isinstance(net, str | PathLike):
        return partial(own_nets.find, _option("net", net), arrays, *taken)
    if not callable(net):
        raise UserError(f"net must be an nn.Module, a function that makes one, or text, got {shown(net)}")
    if isinstance(net, nn.Module) and any(not t.is_cpu for t in (*net.parameters(), *net.buffers())):
        net = copy.deepcopy(net).cpu()
    return partial(own_nets.find, session.code_of(net), arrays, *taken)


def _array(given: Any) -> np.ndarray:
    """Numbers as an array, to be validated like those of files."""
    if isinstance(given, torch.Tensor):
        plain = given.detach().cpu()
        return np.asarray((plain.float() if plain.dtype == torch.bfloat16 else plain).numpy())
    try:
        return np.asarray(given)
    except ValueError as error:
        raise UserError(f"inputs must be an array of shape (B, *event): {error}") from error


def _noise(given: Any, sigma: Any) -> tuple[Noise | str | None, tuple[float, ...] | None]:
    """Noise family and noise levels, as far as they are given; a number or several are levels."""
    given, sigma = (x.tolist() if isinstance(x, np.ndarray | torch.Tensor) else x for x in (given, sigma))
    if all(isinstance(each, Real) and not isinstance(each, bool) for each in _list(given)):
        if sigma is not None:
            raise UserError("noise is a number, and so is sigma; give one of them, or the family as text")
        return None, _option("sigma", given)
    sigmas = _option("sigma", sigma)
    if given is None or isinstance(given, Noise | str):
        return _option("noise", given) if isinstance(given, str) else given, sigmas
    if isinstance(given, Empirical) and given.weights is not None:
        raise UserError("residuals are drawn alike; an Empirical law with weights cannot be noise")
    if not isinstance(given, Gaussian | DiagonalGaussian | Empirical):
        raise UserError(
            "noise is a number, text such as 'student_t:5', or a Gaussian, DiagonalGaussian or Empirical "
            f"law, got {shown(given)}"
        )
    mean = given.mean
    if len(mean) != 1 or bool((mean.abs() > 1e-6 * given.variance.sqrt()).any()):
        raise UserError(
            "noise as a law has one row and mean 0; it is put around each input, got "
            f"{len(mean)} row(s) with means up to {float(mean.abs().max()):.3g}"
        )
    if isinstance(given, Gaussian):
        kind, values = "covariance", given.covariance[0]
    elif isinstance(given, DiagonalGaussian):
        kind, values = "scales", given.variance[0].sqrt()
    else:
        kind, values = "residuals", given.samples[0]
    return noise_of(f"{kind}:law.npy", values.detach().cpu().double().numpy()), sigmas or (1.0,)
