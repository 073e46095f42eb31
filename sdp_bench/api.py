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
from sdp_bench.bench.budget.budget import SAMPLES, budget_on
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.files import column_names
from sdp_bench.bench.nets.own.net import finder
from sdp_bench.bench.noise import Noise, noise_of, noise_of_law
from sdp_bench.bench.plugins import plugin, session
from sdp_bench.bench.rules import built_in
from sdp_bench.bench.sampling.adaptive import MAX_SAMPLES, SampleRequest, sample_until
from sdp_bench.bench.sampling.quantities import quantity_of
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
    has_class: bool | None = None,
    compare_with: Sequence[Any] | None = None,
    experiments: Sequence[str] = (),
    preset: str = "quick",
    budget: bool = False,
    groups: str = "",
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
    for the command; or a list of these. Without a rule, the built-in rules are compared on `net`.
    `compare_with` are further rules, given like `rule`; by default the usual built-in ones. `net` is a
    module, a callable without arguments that makes one, or an address or a file as for the command; by
    default, small nets that are trained on Iris. Your rule and your net run in separate processes, to which
    they are sent as they are now, with the values of the variables that they use.

    `inputs` of the net are an array, a tensor or a path, of shape ``(B, *event)`` with B >= 1; or a mapping
    with several of these, by name or position of the net's input. `rows` is the number of inputs to use, from
    the first one. `net_input` and `net_output` are name or position of the noisy input and of the output to
    predict. `has_class` is whether the largest output is a decision (by default it is); False omits the use
    "class", for regression.

    `noise` is the standard deviation of Gaussian noise, a number or several; or a text that names a family,
    as ``--noise`` does; or a law with one row and mean 0: a `Gaussian`, a `DiagonalGaussian`, or an
    `Empirical` of residuals. `sigma` are scales of the noise, in the units of the inputs. They are required
    with `net`, unless `noise` has numbers, is a law, or names scales, a covariance or residuals, for which
    the scale is 1 by default.

    `experiments` run instead of the default cells; `depths`, `activation` and `nets` (number per depth) are
    for their nets. `budget` is whether to add an uncertainty budget of the net, with these `groups`; see
    :func:`budget`. `preset` is ``smoke``, ``quick`` or ``paper``, `samples` the number of samples of each
    oracle and each prediction, and `w1_points` that of points per side of W1. `conformance` is whether the
    conformance kit runs first. `kit_limit` and `group_limit` are time limits of the kit and of a group in
    seconds, and `jobs` is the number of worker processes, by default one per core. `database` is a folder of
    results (default: a temporary one), `output` the folder of the scorecard (default: none is written), and
    `progress` is whether to print progress on standard error.

    The result has the measurements as `frame`, and `verdicts`; a notebook displays it as tables. Raises
    UserError if an argument is invalid, and RunFailedError if `output` or `database` cannot be written, or a
    rule or net ends its process. A rule that fails its checks raises no error: see `is_wrong`.
    """
    family, sigmas = _noise(noise, sigma)
    settings = {
        "samples": _read("samples", values.SAMPLES, samples),
        "depths": _read("depths", values.DEPTHS, depths),
        "nets": _read("nets", values.NETS, nets),
        "w1_points": _read("w1_points", values.W1_POINTS, w1_points),
        "activation": _read("activation", values.WORD, activation),
        "noise": family,
        "sigmas": sigmas,
    }
    folder = _read("output", values.FOLDER, output)
    results_folder = _read("database", values.RESULTS, database)
    request = ValidationRequest(
        rules=_rules(rule),
        net=_net(net, inputs, rows, net_input, net_output, has_class),
        experiments=_read("experiments", values.WORD, experiments or None, several=True) or (),
        preset=_read("preset", values.WORD, preset),
        compare_with=_rules(compare_with),
        options={name: value for name, value in settings.items() if value is not None},
        conformance=_read("conformance", values.FLAG, conformance),
        budget=_read("budget", values.FLAG, budget),
        groups=_read("groups", values.WORD, groups or None) or "",
        columns=_columns(inputs),
        kit_limit=_read("kit_limit", values.SECONDS, kit_limit),
        group_limit=_read("group_limit", values.SECONDS, group_limit),
        jobs=_read("jobs", values.WORKERS, jobs),
        command="sdp_bench.validate",
    )
    if folder is not None:
        check(folder, FILES)
    page = None if folder is None else folder / PAGE
    with tempfile.TemporaryDirectory() as temporary:
        results = results_folder or Path(temporary)
        validation = run.validate(request, results, Screen(quiet=not progress), page)
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
    has_class: bool | None = None,
    seed: int = 0,
    progress: bool = True,
) -> pd.DataFrame:
    """Advise whether linearisation is accurate for a net, without an oracle, as ``sdp-bench advise`` does.

    Arguments are those of :func:`validate`; `seed` is the random seed of the samples. The result has a row
    for each noise level, input and use, with the columns of :func:`sdp_bench.bench.advice.advice.advise` and
    `sigma`; ``attrs["net"]`` is the name of the net, and ``attrs["notes"]`` are lines on how it was loaded.
    A UserError is raised for invalid arguments, and for noise that is not Gaussian.
    """
    family, sigmas = _noise(noise, sigma)
    load_net = _net(net, inputs, rows, net_input, net_output, has_class) if net is not None else None
    if load_net is None:
        raise UserError("net is required: an nn.Module, a function that makes one, or text")
    number = _read("seed", values.SEED, seed)
    return advise_on(load_net(), family, sigmas, Screen(quiet=not progress), seed=number)


def sample(
    net: Any,
    inputs: Any,
    *,
    noise: Any = None,
    sigma: float | Sequence[float] | None = None,
    until: float | str = "1%",
    quantity: str | Sequence[str] = "sd",
    max_samples: int = MAX_SAMPLES,
    block: int | None = None,
    seed: int = 0,
    rows: int | None = None,
    net_input: str | int | None = None,
    net_output: str | int | None = None,
    database: str | PathLike[str] | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Sample a net until its outputs are known within a tolerance, as ``sdp-bench sample`` does.

    `net`, `inputs`, `noise`, `sigma`, `rows`, `net_input` and `net_output` are those of :func:`validate`.
    `quantity` is one or several of ``mean``, ``sd``, ``quantile:0.95`` (any level), ``class`` and
    ``above:51``, the probability that an output exceeds 51 (or any other threshold). `until` is the
    tolerance, ``"1%"`` or 0.01: relative to the standard deviation of the output, and absolute for
    probabilities. `max_samples` is the limit for each input and noise level, `block` the number of samples of
    a block, and `database` the folder of an interrupted call to resume (default: a temporary one).

    The result has a row for each noise level, input, output and quantity, with a 95 % interval from `low` to
    `high`, and `reached` is whether it is at most `until` to either side; ``attrs["shortfall"]`` is a line on
    estimates for which it is not. Raises UserError for invalid arguments and RunFailedError if the net fails.
    """
    family, sigmas = _noise(noise, sigma)
    load_net = _net(net, inputs, rows, net_input, net_output) if net is not None else None
    if load_net is None:
        raise UserError("net is required: an nn.Module, a function that makes one, or text")
    request = SampleRequest(
        quantities=tuple(dict.fromkeys(map(quantity_of, _read("quantity", values.QUANTITIES, quantity)))),
        tolerance=_read("until", values.SHARE, until),
        max_samples=_read("max_samples", values.MAX_SAMPLES, max_samples),
        block=_read("block", values.COUNT, block),
        seed=_read("seed", values.SEED, seed),
    )
    folder = _read("database", values.FOLDER, database)
    with tempfile.TemporaryDirectory() as temporary:
        screen = Screen(quiet=not progress)
        return sample_until(load_net(), family, sigmas, request, folder or Path(temporary), screen)


def budget(
    net: Any,
    inputs: Any,
    *,
    noise: Any = None,
    sigma: float | Sequence[float] | None = None,
    groups: str = "",
    samples: int = SAMPLES,
    seed: int = 0,
    rows: int | None = None,
    net_input: str | int | None = None,
    net_output: str | int | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Divide the variance of each output among the inputs, as ``sdp-bench budget`` does.

    `net`, `inputs`, `noise`, `sigma`, `rows`, `net_input` and `net_output` are those of :func:`validate`;
    columns of a CSV file or of a data frame are known by their names. `groups` are columns that belong
    together, ``"speed+slope,temperature"``, or blocks of a signal or an image, ``"8"`` or ``"4x4"``; by
    default they are single inputs or 16 blocks. `samples` times (2 + number of groups) passes are evaluated;
    `seed` is the random seed of the samples. `progress` is whether to print progress on standard error.

    The result has the columns of :func:`sdp_bench.bench.budget.budget.budget_of`, preceded by `sigma` and
    `input`. Raises UserError for invalid arguments and RunFailedError if the net fails.
    """
    family, sigmas = _noise(noise, sigma)
    load_net = _net(net, inputs, rows, net_input, net_output) if net is not None else None
    if load_net is None:
        raise UserError("net is required: an nn.Module, a function that makes one, or text")
    text = _read("groups", values.WORD, groups or None) or ""
    count, number = _read("samples", values.BUDGET_SAMPLES, samples), _read("seed", values.SEED, seed)
    screen = Screen(quiet=not progress)
    return budget_on(load_net(), family, sigmas, text, _columns(inputs), count, number, progress=screen)


def _columns(inputs: Any) -> tuple[str, ...]:
    """Names of the columns of a table, or nothing."""
    if isinstance(inputs, pd.DataFrame):
        return tuple(map(str, inputs.columns))
    return column_names(Path(inputs)) if isinstance(inputs, str | PathLike) else ()


def _read(name: str, kind: values.Kind, argument: Any, *, several: bool = False) -> Any:
    """Read an argument as the command's option of this kind does; None stays None."""
    if argument is None:
        return None
    plain: list[Any] = []  # without types of NumPy and paths
    for value in _list(argument):
        if isinstance(value, np.generic):
            plain.append(value.item())
        else:
            plain.append(fspath(value) if isinstance(value, PathLike) else value)
    is_list = isinstance(argument, list | tuple)
    try:
        return values.converted(kind, plain if is_list else plain[0], several=several)
    except UserError as error:
        raise UserError(f"{name}: {on_one_line(str(error))}") from error


def _list(argument: Any) -> list[Any]:
    return list(argument) if isinstance(argument, list | tuple) else [argument]


def _rules(argument: Any) -> tuple[str | Plugin, ...]:
    return () if argument is None else tuple(_rule(rule) for rule in _list(argument))


def _rule(rule: Any) -> str | Plugin:
    """Spec or address of a rule, or the plug-in made from it."""
    if isinstance(rule, str):
        return str(_read("rules", values.WORD, rule))
    is_class = isinstance(rule, type)
    rule_class = rule if is_class else type(rule)
    if issubclass(rule_class, Rule) and rule_class.__module__.partition(".")[0] == "sdp_ref":
        return str(rule.name if is_class else rule.spec)
    if not (is_class or callable(rule) or hasattr(rule, "propagate")):
        raise UserError(f"a rule has a name and propagate(net, x), or is named by text, got {shown(rule)}")
    return plugin.of(session.code_of(rule), built_in())


def _net(
    net: Any, inputs: Any, rows: Any, net_input: Any, net_output: Any, has_class: Any = None
) -> Callable[[], OwnNet] | None:
    """Function that loads the net, in whatever form the arguments describe it; None without a net."""
    input_name = _port("net_input", net_input)
    output_name = _port("net_output", net_output)
    code: Any = None
    if isinstance(net, str | PathLike):
        code = _read("net", values.WORD, net)
    elif net is not None:
        if not callable(net):
            raise UserError(f"net must be an nn.Module, a function that makes one, or text, got {shown(net)}")
        code = session.code_of(_on_cpu(net) if isinstance(net, nn.Module) else net)
    arrays = _arrays(inputs)
    is_class = _read("has_class", values.FLAG, has_class)
    return finder(code, arrays, _read("rows", values.COUNT, rows), input_name, output_name, is_class)


def _port(name: str, port: Any) -> str | None:
    """Name or position of an input or output of the net, as text."""
    text: str | None = _read(name, values.WORD, str(port) if isinstance(port, int | np.integer) else port)
    return text


def _on_cpu(net: nn.Module) -> nn.Module:
    """The net, or a copy of it on the CPU if it is elsewhere."""
    if all(tensor.is_cpu for tensor in (*net.parameters(), *net.buffers())):
        return net
    return copy.deepcopy(net).cpu()


def _arrays(inputs: Any) -> Inputs | None:
    if inputs is None:
        return None
    if isinstance(inputs, str | PathLike):
        path: Path = _read("inputs", values.FILE, inputs)
        return path
    named = inputs if isinstance(inputs, Mapping) else {"0": inputs}
    return {str(name): _array(numbers) for name, numbers in named.items()}


def _array(numbers: Any) -> np.ndarray:
    """Numbers as an array, to be validated like those of files."""
    if isinstance(numbers, torch.Tensor):
        tensor = numbers.detach().cpu()
        if tensor.dtype == torch.bfloat16:  # which NumPy does not have
            tensor = tensor.float()
        return np.asarray(tensor.numpy())
    try:
        return np.asarray(numbers)
    except ValueError as error:
        raise UserError(f"inputs must be an array of shape (B, *event): {error}") from error


def _plain(value: Any) -> Any:
    """Arrays and tensors as numbers or lists."""
    return value.tolist() if isinstance(value, np.ndarray | torch.Tensor) else value


def _noise(noise: Any, sigma: Any) -> tuple[Noise | None, tuple[float, ...] | None]:
    """Noise family and noise levels, None if they are not given; `noise` may be one level or several."""
    noise, sigma = _plain(noise), _plain(sigma)
    if all(isinstance(number, Real) and not isinstance(number, bool) for number in _list(noise)):
        if sigma is not None:
            raise UserError("noise is a number, and so is sigma; give one of them, or the family as text")
        return None, _read("sigma", values.SIGMAS, noise)
    sigmas = _read("sigma", values.SIGMAS, sigma)
    if noise is None or isinstance(noise, Noise):
        return noise, sigmas
    if isinstance(noise, str):
        return noise_of(_read("noise", values.WORD, noise)), sigmas
    if not isinstance(noise, Gaussian | DiagonalGaussian | Empirical):
        raise UserError(
            "noise is a number, text such as 'student_t:5', or a Gaussian, DiagonalGaussian or Empirical "
            f"law, got {shown(noise)}"
        )
    return noise_of_law(noise), sigmas or (1.0,)
