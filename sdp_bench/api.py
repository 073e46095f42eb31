"""The commands as Python functions, with objects in place of addresses and files."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from sdp_bench import values
from sdp_bench.bench.advice.advice import advise_on
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.nets.own.net import finder
from sdp_bench.bench.noise import Noise, noise_of, noise_of_law
from sdp_bench.bench.plugins import plugin, session
from sdp_bench.bench.rules import built_in
from sdp_bench.bench.text import shown
from sdp_bench.bench.validation import run
from sdp_bench.bench.validation.run import ValidationRequest
from sdp_bench.progress import Screen
from sdp_bench.reports.folder import check
from sdp_bench.reports.scorecard.page import FILES, Scorecard, build, scorecard_of
from sdp_bench.reports.site import PAGE
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
    kit_limit: float = values.KIT_LIMIT,
    group_limit: float = values.GROUP_LIMIT,
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
    seconds, and `jobs` is the number of worker processes, by default one per core. `database` is a folder of
    results (default: a temporary one), `output` the folder of the scorecard (default: none is written), and
    `progress` is whether to print progress on standard error.

    The result has the measurements as `frame`, and `verdicts`; a notebook displays it as tables. Raises
    UserError if an argument is invalid, and RunFailedError if `output` or `database` cannot be written, or a
    rule or net ends its process. A rule that fails its checks raises no error: see `is_wrong`.
    """
    settings = {
        "samples": _read("samples", values.SAMPLES, samples),
        "depths": _read("depths", values.DEPTHS, depths),
        "nets": _read("nets", values.NETS, nets),
        "w1_points": _read("w1_points", values.W1_POINTS, w1_points),
        "activation": _read("activation", values.WORD, activation),
    }
    settings["noise"], settings["sigmas"] = _noise(noise, sigma)
    folder = _read("output", values.FOLDER, output)
    kept_results = _read("database", values.RESULTS, database)
    request = ValidationRequest(
        rules=() if rule is None else tuple(map(_rule, _list(rule))),
        net=_net(net, inputs, rows, net_input, net_output),
        experiments=_read("experiments", values.WORD, experiments or None, several=True) or (),
        preset=_read("preset", values.WORD, preset),
        beside=() if beside is None else tuple(map(_rule, _list(beside))),
        options={name: value for name, value in settings.items() if value is not None},
        conformance=_read("conformance", values.FLAG, conformance),
        kit_limit=_read("kit_limit", values.SECONDS, kit_limit),
        group_limit=_read("group_limit", values.SECONDS, group_limit),
        jobs=_read("jobs", values.WORKERS, jobs),
        command="sdp_bench.validate",
    )
    if folder is not None:
        check(folder, FILES)
    with tempfile.TemporaryDirectory() as temporary:
        results = kept_results or Path(temporary)
        screen = Screen(quiet=not progress)
        validation = run.validate(request, results, screen, None if folder is None else folder / PAGE)
        scorecard = scorecard_of(validation, results)
    if folder is not None:
        build(scorecard, folder)
    return scorecard


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
    family, sigmas = _noise(noise, sigma)
    find = _net(net, inputs, rows, net_input, net_output) if net is not None else None
    if find is None:
        raise UserError("net is required: an nn.Module, a function that makes one, or text")
    return advise_on(find(), family, sigmas)


def _read(name: str, kind: values.Kind, given: Any, *, several: bool = False) -> Any:
    """Read a value as the command's option of this kind does; None stays None."""
    if given is None:
        return None
    plain = [value.item() if isinstance(value, np.generic) else value for value in _list(given)]
    plain = [fspath(value) if isinstance(value, PathLike) else value for value in plain]
    try:
        return values.converted(kind, plain if isinstance(given, list | tuple) else plain[0], several=several)
    except UserError as error:
        raise UserError(f"{name}: {on_one_line(str(error))}") from error


def _list(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]


def _rule(given: Any) -> str | Plugin:
    """Spec or address of a rule, or the plug-in made from it."""
    if isinstance(given, str):
        return str(_read("rules", values.WORD, given))
    kind = given if isinstance(given, type) else type(given)
    if issubclass(kind, Rule) and kind.__module__.partition(".")[0] == "sdp_ref":
        return str(getattr(given, "name" if isinstance(given, type) else "spec"))
    if not (isinstance(given, type) or callable(given) or hasattr(given, "propagate")):
        raise UserError(f"a rule has a name and propagate(net, x), or is named by text, got {shown(given)}")
    return plugin.of(session.code_of(given), built_in())


def _net(net: Any, inputs: Any, rows: Any, net_input: Any, net_output: Any) -> Callable[[], OwnNet] | None:
    ports = [
        _read(name, values.WORD, str(given) if isinstance(given, int | np.integer) else given)
        for name, given in (("net_input", net_input), ("net_output", net_output))
    ]
    code: Any = net
    if isinstance(net, str | PathLike):
        code = _read("net", values.WORD, net)
    elif net is not None and not callable(net):
        raise UserError(f"net must be an nn.Module, a function that makes one, or text, got {shown(net)}")
    elif net is not None:
        if isinstance(net, nn.Module) and any(not t.is_cpu for t in (*net.parameters(), *net.buffers())):
            net = copy.deepcopy(net).cpu()
        code = session.code_of(net)
    return finder(code, _arrays(inputs), _read("rows", values.COUNT, rows), *ports)


def _arrays(inputs: Any) -> Inputs | None:
    if inputs is None:
        return None
    if isinstance(inputs, str | PathLike):
        path: Path = _read("inputs", values.FILE, inputs)
        return path
    named = inputs if isinstance(inputs, Mapping) else {"0": inputs}
    return {str(name): _array(numbers) for name, numbers in named.items()}


def _array(given: Any) -> np.ndarray:
    """Numbers as an array, to be validated like those of files."""
    if isinstance(given, torch.Tensor):
        plain = given.detach().cpu()
        return np.asarray((plain.float() if plain.dtype == torch.bfloat16 else plain).numpy())
    try:
        return np.asarray(given)
    except ValueError as error:
        raise UserError(f"inputs must be an array of shape (B, *event): {error}") from error


def _plain(value: Any) -> Any:
    """Arrays and tensors as numbers or lists."""
    return value.tolist() if isinstance(value, np.ndarray | torch.Tensor) else value


def _noise(given: Any, sigma: Any) -> tuple[Noise | None, tuple[float, ...] | None]:
    """Noise family and noise levels, as far as they are given; a number or several are levels."""
    given, sigma = _plain(given), _plain(sigma)
    if all(isinstance(number, Real) and not isinstance(number, bool) for number in _list(given)):
        if sigma is not None:
            raise UserError("noise is a number, and so is sigma; give one of them, or the family as text")
        return None, _read("sigma", values.SIGMAS, given)
    sigmas = _read("sigma", values.SIGMAS, sigma)
    if given is None or isinstance(given, Noise):
        return given, sigmas
    if isinstance(given, str):
        return noise_of(_read("noise", values.WORD, given)), sigmas
    if not isinstance(given, Gaussian | DiagonalGaussian | Empirical):
        raise UserError(
            "noise is a number, text such as 'student_t:5', or a Gaussian, DiagonalGaussian or Empirical "
            f"law, got {shown(given)}"
        )
    return noise_of_law(given), sigmas or (1.0,)
