"""Samples of f(x + eps), the Monte Carlo oracle: seeded, on any device, with constant memory."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from sdp_ref.graph.consistency import inconsistency
from sdp_ref.laws import Law
from sdp_ref.laws.base import NORMAL, Standard

from .forward import Chain, Network, chunked_forward, in_threads
from .noise import (
    SAMPLERS,
    Block,
    Seed,
    block_rows,
    generator_of,
    monte_carlo_blocks,
    quantile_of,
    sobol_blocks,
    variates_of,
)

Sampler = Literal["mc", "sobol"]


def standard_normals(samples: int, dimension: int, *, seed: Seed, sampler: Sampler = "mc") -> Tensor:
    """Independent standard normal variates, on the CPU.

    Parameters
    ----------
    samples, dimension : int
        Number of rows and columns.
    seed : int or SeedSequence
        The result does not depend on the number of threads, and a shorter sample of the "mc" sampler is the
        beginning of a longer one.
    sampler : {"mc", "sobol"}
        Plain Monte Carlo, or scrambled Sobol points: 16 independent scrambles of samples / 16 points, one
        after the other (the first ones have one more if 16 is not a divisor).
    """
    samples, dimension = _positive("samples", samples), _positive("dimension", dimension)
    _check_seed(seed)
    blocks = _blocks(sampler, samples, dimension, seed, NORMAL)
    return torch.cat(list(in_threads(partial(_tensor, block) for block in blocks)))


def sample_outputs(
    net: Network,
    x: Law,
    samples: int = 10**6,
    *,
    seed: Seed,
    device: torch.device | str | None = None,
    sampler: Sampler = "mc",
) -> Tensor:
    """Outputs of a network whose input has law `x`, shape (samples, m).

    The outputs have the dtype of the network, or of the law if the network has no parameters, and are on
    `device`. The result does not depend on chunks, threads, workers or device, up to rounding.

    Parameters
    ----------
    net : Module or callable
        Maps (rows, *event) to (rows, m). Its mode (train or eval), precision and device are not changed.
    x : Law, batch 1
    samples : int
    seed : int or SeedSequence
    device : device, optional
        Device of the network; by default that of the law.
    sampler : {"mc", "sobol"}
        As in :func:`standard_normals`; "sobol" requires a law with quantiles.

    Notes
    -----
    The largest of N Cauchy samples is about N times the scale, far from the limit of float32. For
    alpha-stable ones it is N^(1 / alpha) times the scale, which may overflow for alpha below 0.2 and raise an
    error. An output of that size has seven digits, so in float32 its thin directions are lost; this affects
    samples beyond 10^4 scales, a share of 10^-4 of a Cauchy law.
    """
    # concatenate at the end: copying each block would compete with the running threads
    return torch.cat(list(stream_outputs(net, x, samples, seed=seed, device=device, sampler=sampler)))


def stream_outputs(
    net: Network,
    x: Law,
    samples: int,
    *,
    seed: Seed,
    device: torch.device | str | None = None,
    sampler: Sampler = "mc",
) -> Iterator[Tensor]:
    """Yield the outputs of :func:`sample_outputs` in consecutive blocks, without storing them.

    Blocks have up to 2^18 / n rows, with n the input's dimension, so memory does not grow with `samples`.
    Arguments are validated at the call, not at the first block. A ValueError reports a net that is not one
    function of each row: its outputs differ with and without gradients, or depend on other rows of the batch.
    """
    samples = _positive("samples", samples)
    _check_seed(seed)
    forward, target, dtype = _forward(net, x, device)
    variates = _variates(x, samples, seed, sampler)
    push = _push(x, target, dtype)
    if target.type != "cpu":  # draw variates and check results while the device computes
        drawn = (block() for block in variates) if x.standard is None else in_threads(variates)
        return _one_behind(_outputs(forward, push, block) for block in drawn)
    recipes = (partial(_run, forward, push, block) for block in variates)
    if isinstance(forward, Chain) and x.standard is not None:
        return in_threads(recipes)
    return (run() for run in recipes)


def independent_blocks(
    net: Network,
    x: Law,
    rows: int,
    *,
    seed: Seed,
    first: int = 0,
    device: torch.device | str | None = None,
) -> Iterator[Tensor]:
    """Yield outputs of a network in endless blocks of `rows` samples, shape (rows, m), from block `first` on.

    Each block has its own seed, so a stream that begins with a later block continues an interrupted one.
    Arguments and errors are those of :func:`stream_outputs`.
    """
    rows = _positive("rows", rows)
    _check_seed(seed)
    forward, target, dtype = _forward(net, x, device)
    push = _push(x, target, dtype)
    root = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)

    def drawn(block: int) -> Tensor:
        child = np.random.SeedSequence(root.entropy, spawn_key=(*root.spawn_key, block))
        variates = _variates(x, rows, child, "mc")
        return torch.cat([_run(forward, push, part) for part in variates])

    return (drawn(block) for block in itertools.count(first))


def _forward(
    net: Network, x: Law, device: torch.device | str | None
) -> tuple[Network, torch.device, torch.dtype]:
    """The network as a function of blocks of rows, and the device and type of its inputs."""
    if not isinstance(x, Law):
        raise ValueError(f"x must be a law such as DiagonalGaussian, got {type(x).__name__}")
    if x.batch != 1:
        raise ValueError(f"x must hold one law (batch 1), got a batch of {x.batch}; take x[i]")
    target = _device(device, x.location.device)
    dtype = x.location.dtype
    if isinstance(net, nn.Module) and (weights := next(net.parameters(), None)) is not None:
        if weights.device.type != target.type:
            raise ValueError(
                f"the network is on {weights.device} and is to run on {target}; move one of them"
            )
        dtype = weights.dtype if weights.is_floating_point() else dtype
    forward = chunked_forward(net, x.event_shape)
    reason = inconsistency(net, x.location.to(target, dtype), x.spread, forward)
    if reason is not None:
        raise ValueError("; ".join(part for part in (f"the network {reason[0]}", reason[1]) if part))
    return forward, target, dtype


Push = Callable[[Tensor], Tensor]


def _push(x: Law, device: torch.device, dtype: torch.dtype) -> Push:
    """Map from variates to samples of a law, shape (rows, n)."""
    if x.standard is None:
        return lambda drawn: drawn.to(device, dtype)
    return x.push(device, dtype)


def _variates(x: Law, samples: int, seed: Seed, sampler: Sampler) -> Iterator[Callable[[], Tensor]]:
    """Functions that draw blocks of variates, or of samples for a law with its own sampler."""
    if sampler == "sobol" and (x.standard is None or x.standard.uniforms > 1):
        raise ValueError(f"sampler 'sobol' draws laws with quantiles only, not {x.described}")
    if x.standard is None:
        return _law_blocks(x, samples, seed)
    blocks = _blocks(sampler, samples, x.variates, seed, x.standard)
    return (partial(_tensor, block) for block in blocks)


def _law_blocks(x: Law, samples: int, seed: Seed) -> Iterator[Callable[[], Tensor]]:
    """Functions that draw the blocks of a law with its own sampler."""
    rows = block_rows(x.dimension)

    def draw(block: int) -> Tensor:
        generator = torch.Generator().manual_seed(int(generator_of(seed, block).integers(2**62)))
        # whole blocks, so that a shorter sample is the beginning of a longer one
        return x.sample(rows, generator)[: samples - block * rows, 0].flatten(1)

    return (partial(draw, block) for block in range(-(-samples // rows)))


def _tensor(block: Callable[[], Block]) -> Tensor:
    return torch.from_numpy(block())


@torch.no_grad()
def _outputs(forward: Network, push: Push, variates: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    inputs = push(variates)
    outputs = forward(inputs)
    # the sum is much faster to test, but may overflow although all outputs are finite
    return outputs, torch.isfinite(outputs.sum()), inputs


def _run(forward: Network, push: Push, draw: Callable[[], Tensor]) -> Tensor:
    return _checked(*_outputs(forward, push, draw()))


def _checked(outputs: Tensor, finite: Tensor, inputs: Tensor) -> Tensor:
    if not bool(finite) and not bool(torch.isfinite(outputs).all()):
        if not bool(torch.isfinite(inputs).all()):
            raise ValueError(f"the input's law has draws too large for {inputs.dtype}")
        raise ValueError("the network gives non-finite outputs (NaN or infinity)")
    return outputs


def _one_behind(runs: Iterator[tuple[Tensor, Tensor, Tensor]]) -> Iterator[Tensor]:
    """Outputs of runs, each checked after the next one has been submitted to the device."""
    last = next(runs)
    for run in runs:
        yield _checked(*last)
        last = run
    yield _checked(*last)


def _blocks(
    sampler: str, samples: int, dimension: int, seed: Seed, standard: Standard
) -> Iterator[Callable[[], Block]]:
    """Functions that draw the blocks of standard variates."""
    if sampler not in SAMPLERS:
        raise ValueError(f"sampler must be one of {', '.join(SAMPLERS)}, got {sampler!r}")
    if sampler == "sobol":
        return sobol_blocks(samples, dimension, seed, quantile_of(standard))
    return monte_carlo_blocks(variates_of(standard), samples, dimension, seed)


def _positive(name: str, value: object) -> int:
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = 0
    if number < 1 or isinstance(value, bool):
        raise ValueError(f"{name} must be a positive integer, got {value!r}")
    return number


def _check_seed(seed: object) -> None:
    if isinstance(seed, np.random.SeedSequence):
        return
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be a non-negative integer or a SeedSequence, got {seed!r}")


def _device(device: torch.device | str | None, default: torch.device) -> torch.device:
    try:
        target = default if device is None else torch.device(device)
        torch.empty(0, device=target)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {str(device)!r} cannot be used: {str(error).splitlines()[0]}") from None
    return target
