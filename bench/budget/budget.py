"""Uncertainty budget of a user's net, by linearisation and by samples."""

from __future__ import annotations

import copy
import math
import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.special import ndtri
from torch import Tensor, nn

from sdp_ref.jacobian.jacobian import jacobian_of
from sdp_ref.laws import DiagonalGaussian, Gaussian, Law, LocationScale, SplitNormal

from ..errors import MeasuredCodeError, RunFailedError, UserError, measured_code, one_line
from ..executors.local import Limits, in_separate_process, send
from ..nets.own.inputs import row_seed
from ..nets.own.net import OwnNet
from ..noise import GAUSSIAN, Noise
from ..progress import Progress
from .groups import OTHERS, Group, groups_of
from .sobol import CONFIDENCE, FEWEST_EFFECTIVE, Indices, effective_samples, sobol_indices

Array = NDArray[np.float64]

SAMPLES = 4096
_BATCH_VALUES = 2**18  # input values of a forward pass
_MOST_VALUES = 2**26  # outputs at all samples of all groups
_FLAT = 1e-4  # spread of an output, relative to its size, that rounding in float32 would change
# Spread of an output that counts as constant, relative to its size.
_CONSTANT_DOUBLE, _CONSTANT_SINGLE = 1e-12, 1e-6

CONSTANT = "the output is constant"
LINEAR_CONSTANT = "no linear shares: the linearised output is constant"
DEPENDENT = "no Sobol indices, which require independent groups: this noise is dependent across groups"
HEAVY_TAILS = (
    "a few samples dominate the variance (heavy tails or rare events), so total and first-order shares, "
    "correlations and their intervals are unreliable"
)
NO_GRADIENT = "no linearisation: "


def budget_of(
    net: nn.Module, law: Law, groups: Sequence[Group], samples: int = SAMPLES, seed: int = 0
) -> pd.DataFrame:
    """Return the shares of groups of inputs in the variance of each output, for a law with one row.

    Columns: `output`, `group`;

    - `linear`: the share of the linearised output, ``Cov(y, J_g z_g) / Var(y)`` for the noise ``z_g`` of the
      group and its columns ``J_g`` of the Jacobian. Shares sum to one; with correlated noise they contain
      half of each covariance with other groups, and can be negative (Li et al., "Global sensitivity analysis
      for systems with independent and/or correlated inputs", J. Phys. Chem. A 2010).
    - `first` and `total`: Sobol indices from `samples` times (2 + number of groups) forward passes, with 95 %
      intervals `first_low` to `first_high` and `total_low` to `total_high`. They differ if inputs interact.
    - `largest`: whether the group has the largest total index: yes, no or undecided; always undecided if a
      few samples dominate the variance.
    - `covariance` and `correlation` of the output with an input, from the samples, for groups of a single
      input; `correlation_low` to `correlation_high` is its 95 % interval.
    - `note`: why numbers are NaN or unreliable.
    """
    inputs, others = _samples(law, samples, seed)
    outputs, dtype = _outputs(net, inputs, law)
    if dtype != torch.float64 and _is_constant(outputs, _FLAT).any() and _runs_in_double(net, law):
        net, law = copy.deepcopy(net).double(), law.to(dtype=torch.float64)
        inputs, others = _samples(law, samples, seed)
        outputs, dtype = _outputs(net, inputs, law)
    other_outputs, _ = _outputs(net, others, law)
    linear, note = _linear_shares(net, law, groups)
    indices = None
    dependent = _dependent_groups(law, groups)
    if len(dependent) == len(groups):
        indices = _sobol_indices(net, law, groups, inputs, others, outputs, other_outputs)
    else:
        note = "; ".join(filter(None, (note, DEPENDENT + _grouping(dependent, law.event_shape))))
    is_constant = _is_constant(outputs, _CONSTANT_DOUBLE if dtype == torch.float64 else _CONSTANT_SINGLE)
    is_dominated = effective_samples(np.concatenate([outputs, other_outputs])) < FEWEST_EFFECTIVE
    rows = []
    for output in range(outputs.shape[1]):
        lacks_linear = np.isnan(linear[:, output]).any() and not note.startswith(NO_GRADIENT)
        notes = [note] if note else []
        if lacks_linear:
            notes.append(LINEAR_CONSTANT)
        if is_dominated[output]:
            notes.append(HEAVY_TAILS)
        for position, group in enumerate(groups):
            row: dict[str, Any] = {"output": output, "group": group.name}
            row["linear"] = linear[position, output]
            row |= _index_columns(indices, position, output)
            if is_dominated[output] and len(groups) > 1:
                row["largest"] = "undecided"
            row |= _correlation(inputs, outputs[:, output], group)
            row["note"] = "; ".join(notes)
            if is_constant[output]:
                row = dict.fromkeys(row, math.nan) | {
                    "output": output,
                    "group": group.name,
                    "largest": "undecided",
                    "note": CONSTANT,
                }
            rows.append(row)
    return pd.DataFrame(rows)


def _sobol_indices(
    net: nn.Module,
    law: Law,
    groups: Sequence[Group],
    inputs: Tensor,
    others: Tensor,
    outputs: Array,
    other_outputs: Array,
) -> Indices:
    """Evaluate the net with each group of `inputs` taken from `others`, and return the Sobol indices."""
    samples, count = outputs.shape
    if samples * len(groups) * count > _MOST_VALUES:
        raise UserError(
            f"{count} outputs and {len(groups)} groups need too much memory; select an output "
            "(--net-output) or use fewer groups (--groups)"
        )
    exchanged = np.empty((len(groups), samples, count))
    for position, group in enumerate(groups):
        mask = torch.from_numpy(group.mask)
        exchanged[position], _ = _outputs(net, torch.where(mask, others, inputs), law)
    return sobol_indices(outputs, other_outputs, exchanged)


def _index_columns(indices: Indices | None, position: int, output: int) -> dict[str, Any]:
    """Sobol indices of a group with their intervals, clipped to what a share can be; NaN without indices."""
    columns = ("first", "first_low", "first_high", "total", "total_low", "total_high")
    row: dict[str, Any] = dict.fromkeys(columns, math.nan)
    row["largest"] = "undecided"
    if indices is None:
        return row
    cell = position, output
    estimates = {
        "first": (indices.first[cell], indices.first_margin[cell]),
        "total": (indices.total[cell], indices.total_margin[cell]),
    }
    for name, (value, margin) in estimates.items():
        if not math.isnan(value):
            row[name] = value
            row[f"{name}_low"] = max(0.0, value - margin)
            row[f"{name}_high"] = min(1.0, value + margin)
    is_largest = indices.is_largest[cell]
    if not math.isnan(is_largest):
        row["largest"] = "yes" if is_largest else "no"
    return row


def budget_on(
    net: OwnNet,
    noise: Noise | None = None,
    sigmas: Sequence[float] | None = None,
    groups: str = "",
    columns: Sequence[str] = (),
    samples: int = SAMPLES,
    seed: int = 0,
    *,
    progress: Progress,
) -> pd.DataFrame:
    """Return the budget of a user's net at all its inputs and noise levels, in a separate process.

    The result has the columns of :func:`budget_of`, preceded by `sigma` and `input`; ``attrs["net"]`` is the
    name of the net, and ``attrs["notes"]`` are lines on how it was loaded and on the noise. `groups` and
    `columns` are those of :func:`sdp_bench.bench.budget.groups.groups_of`. Raises UserError for invalid
    arguments and for noise without a variance, and RunFailedError if the net fails.
    """
    noise = noise or GAUSSIAN
    if sigmas is None and noise.values is None:
        raise UserError("sigma is required (--sigma 0.1,1)")
    sigmas = tuple(sigmas or (1.0,))
    event = tuple(net.inputs.shape[1:])
    noise.check(event, sigmas, "mc", len(net.inputs))
    if any(not sigma > 0 for sigma in sigmas):
        raise UserError(f"a noise level must be positive, got {min(sigmas):g}")
    if not hasattr(noise.example, "variance"):
        raise UserError(f"{noise.name} noise has no variance, so it cannot be divided among inputs")
    if columns and len(columns) != math.prod(event):
        columns = ()
    chosen, name = groups_of(groups, event, columns), net.architecture.name
    with progress.meter("inputs") as meter:
        rows = in_separate_process(
            _rows,
            net,
            noise,
            sigmas,
            chosen,
            samples,
            seed,
            address=name,
            limits=Limits(),
            on_message=lambda step: meter.done(step[0], step[1], ""),
        )
    table = pd.DataFrame(rows)
    table.attrs["net"], table.attrs["notes"] = name, [*net.notes, *noise.scale_notes]
    return table


def _rows(
    net: OwnNet, noise: Noise, sigmas: Sequence[float], groups: Sequence[Group], samples: int, seed: int
) -> list[dict[Any, Any]]:
    module = net.build()
    rows: list[dict[Any, Any]] = []
    finished = 0
    for sigma in sigmas:
        law = noise.law(net.inputs, sigma, range(len(net.inputs)))
        for number in range(len(net.inputs)):
            try:
                with measured_code():
                    table = budget_of(module, law[number], groups, samples, row_seed(seed, number))
            except MeasuredCodeError as error:
                raise RunFailedError(f"{net.architecture.name}, input {number}: {error}") from error
            table.insert(0, "sigma", sigma)
            table.insert(1, "input", number)
            rows += table.to_dict("records")
            finished += 1
            send((finished, len(sigmas) * len(net.inputs)))
    return rows


def _samples(law: Law, samples: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return two independent samples of flattened inputs."""
    generator = torch.Generator().manual_seed(seed)
    return law.sample(samples, generator)[:, 0].flatten(1), law.sample(samples, generator)[:, 0].flatten(1)


def _outputs(net: nn.Module, inputs: Tensor, law: Law) -> tuple[Array, torch.dtype]:
    """Return outputs at flattened inputs, and the type in which the net computed them."""
    dtype = _dtype(net, law)
    batch = max(1, _BATCH_VALUES // inputs.shape[1])
    with torch.no_grad():
        parts = [net(part.reshape(-1, *law.event_shape).to(dtype)) for part in inputs.split(batch)]
    outputs: Array = torch.cat(parts).double().numpy()
    if not np.isfinite(outputs).all():
        raise UserError("the net gives NaN or infinity at some samples")
    return outputs, parts[0].dtype


def _dtype(net: nn.Module, law: Law) -> torch.dtype:
    return next((weight.dtype for weight in net.parameters()), law.location.dtype)


def _runs_in_double(net: nn.Module, law: Law) -> bool:
    try:
        with torch.no_grad():
            outputs = copy.deepcopy(net).double()(law.location.double())
    except Exception:  # noqa: BLE001  of the user's net
        return False
    return bool(outputs.dtype == torch.float64)


def _is_constant(outputs: Array, resolution: float) -> NDArray[np.bool_]:
    """Whether the spread of each output is at most a share of its size, shape (m,)."""
    is_constant: NDArray[np.bool_] = outputs.std(0) <= resolution * np.abs(outputs).max(0)
    return is_constant


def _linear_shares(net: nn.Module, law: Law, groups: Sequence[Group]) -> tuple[Array, str]:
    """Shares of the linearised output, shape (groups, m), and why there are none."""
    dtype = _dtype(net, law)
    try:
        _, jacobian = jacobian_of(net, law.mean.to(dtype), spread=law.spread.to(dtype))
    except Exception as error:  # noqa: BLE001  of the user's net
        outputs, _ = _outputs(net, law.mean.flatten(1), law)
        return np.full((len(groups), outputs.shape[1]), math.nan), f"{NO_GRADIENT}{one_line(error)}"
    rows = jacobian[0].flatten(1).double()
    if isinstance(law, _INDEPENDENT):
        covariances = rows * law.variance[0].flatten().double()  # with each input, shape (m, n)
    else:
        covariances = rows @ law.covariance[0].double()
    parts = (rows * covariances).numpy()  # of single inputs
    shares = np.stack([parts[:, group.mask].sum(1) for group in groups])
    with np.errstate(invalid="ignore"):
        return shares / parts.sum(1), ""


_INDEPENDENT = (DiagonalGaussian, LocationScale, SplitNormal)
"""Laws with independent components."""


def _dependent_groups(law: Law, groups: Sequence[Group]) -> list[list[Group]]:
    """Divide groups into the largest number of sets that are independent of each other."""
    if isinstance(law, _INDEPENDENT):
        return [[group] for group in groups]
    if not isinstance(law, Gaussian):
        return [list(groups)]
    correlated = law.covariance[0].numpy() != 0
    links = [[correlated[a.mask][:, b.mask].any() for b in groups] for a in groups]
    count, labels = connected_components(np.array(links), directed=False)
    sets: list[list[Group]] = [[] for _ in range(count)]
    for group, label in zip(groups, labels, strict=True):
        sets[label].append(group)
    return sets


def _grouping(dependent: Sequence[Sequence[Group]], event: tuple[int, ...]) -> str:
    """Say which groups to take together, if these are columns of a table and not all of them."""
    is_listed = len(event) == 1 and not any(group.is_block for groups in dependent for group in groups)
    if len(dependent) == 1 or not is_listed:
        return ""
    sets = [[_listed_name(group) for group in groups] for groups in dependent]
    listed = ",".join("+".join(names) for names in sets if OTHERS not in names)
    return f"; take dependent ones together: --groups {shlex.quote(listed)}"


def _listed_name(group: Group) -> str:
    """Name of a group in --groups: the index of a column with a separator in its name."""
    has_separator = group.component is not None and any(separator in group.name for separator in ",+")
    return str(group.component) if has_separator else group.name


def _correlation(inputs: Tensor, output: Array, group: Group) -> dict[str, float]:
    """Covariance and correlation with the input of a group; the interval follows to first order."""
    names = ("covariance", "correlation", "correlation_low", "correlation_high")
    if group.component is None:
        return dict.fromkeys(names, math.nan)
    x, y = inputs[:, group.component].double().numpy(), output - output.mean()
    x = x - x.mean()
    covariance, scale = float((x * y).mean()), float(x.std() * y.std())
    if not scale > 0:
        return dict.fromkeys(names, math.nan)
    correlation = max(-1.0, min(1.0, covariance / scale))
    u, v = x / x.std(), y / y.std()
    terms = u * v - correlation * (u**2 + v**2) / 2
    margin = float(ndtri((1 + CONFIDENCE) / 2) * terms.std()) / math.sqrt(len(terms))
    low, high = max(-1.0, correlation - margin), min(1.0, correlation + margin)
    return dict(zip(names, (covariance, correlation, low, high), strict=True))
