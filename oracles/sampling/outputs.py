"""Samples of f(x + eps), the Monte Carlo oracle: seeded, on any device, memory flat in their number."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from sdp_bench.oracles.sampling.forward import Chain, Network, chunked_forward, in_threads
from sdp_bench.oracles.sampling.noise import (
    SAMPLERS,
    Block,
    Seed,
    Variates,
    cauchy_quantile,
    cauchys,
    monte_carlo_blocks,
    normal_quantile,
    normals,
    sobol_blocks,
    stables,
)
from sdp_ref.laws import Cauchy, DiagonalGaussian, Gaussian, Law, SymmetricStable

Sampler = Literal["mc", "sobol"]


def standard_normals(samples: int, dimension: int, *, seed: Seed, sampler: Sampler = "mc") -> Tensor:
    """Independent standard normal variates, on the CPU.

    Parameters
    ----------
    samples, dimension : int
        Number of rows and columns, positive.
    seed : int or SeedSequence
        Same seed, same numbers: with any number of threads, and a shorter draw of the "mc"
        sampler is the beginning of a longer one.
    sampler : {"mc", "sobol"}
        Plain Monte Carlo, or scrambled Sobol points: 16 independent scrambles of samples / 16
        points, one after the other (the first ones one longer where 16 does not divide).

    Returns
    -------
    Tensor, shape (samples, dimension), float32

    Raises
    ------
    ValueError
        If a number is not a positive integer, or the seed or the sampler is not one.
    """
    samples, dimension = _positive("samples", samples), _positive("dimension", dimension)
    _check_seed(seed)
    blocks = _blocks(sampler, samples, dimension, seed)
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
    """Outputs of a network whose input has law `x`.

    Parameters
    ----------
    net : Module or callable
        Maps (rows, *event) to (rows, m). Used as it is: in the mode (train or eval), the
        precision and on the device that it is in.
    x : Gaussian, DiagonalGaussian, Cauchy or SymmetricStable, batch 1
        Law of the input.
    samples : int
        Number of samples, positive.
    seed : int or SeedSequence
        The outputs depend on it and not on chunks, threads, workers or device, beyond rounding.
    device : device, optional
        Where the network runs; where the law is if not given.
    sampler : {"mc", "sobol"}
        As in :func:`standard_normals`; "sobol" for Gaussian and Cauchy laws only.

    Returns
    -------
    Tensor, shape (samples, m)
        In the network's dtype, or the law's where the network has no parameters; on `device`.

    Notes
    -----
    The largest of N Cauchy draws is about N times the scale, far from the end of float32; of
    alpha-stable ones N^(1 / alpha) times, which may be beyond it for alpha under 0.2: an error. An output
    that large is known to seven digits of itself, so in float32 its thin directions are not known;
    that concerns the share of samples beyond 10^4 scales, 10^-4 of a Cauchy law.

    Raises
    ------
    ValueError
        If an argument is not as above, or the network gives NaN, infinity or a wrong shape.
    """
    # joined at the end: a copy for each block would wake torch's threads beside those at work
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
    """Outputs of :func:`sample_outputs` in consecutive blocks, without keeping them.

    Returns
    -------
    iterator of Tensor, shape (rows, m)
        Blocks of up to 2^18 / n rows, n the input's dimension; the memory used does not grow
        with `samples`.

    Raises
    ------
    ValueError
        As :func:`sample_outputs`; for the arguments at the call, not at the first block.
    """
    if not isinstance(x, Law):
        raise ValueError(f"x must be a law such as DiagonalGaussian, got {type(x).__name__}")
    if x.batch != 1:
        raise ValueError(f"x must hold one law (batch 1), got a batch of {x.batch}; take x[i]")
    samples = _positive("samples", samples)
    _check_seed(seed)
    place = _device(device, x.location.device)
    dtype = x.location.dtype
    if isinstance(net, nn.Module) and (weights := next(net.parameters(), None)) is not None:
        if weights.device.type != place.type:
            raise ValueError(f"the network is on {weights.device} and is to run on {place}; move one of them")
        dtype = weights.dtype if weights.is_floating_point() else dtype
    blocks = _blocks(sampler, samples, x.dimension, seed, x)
    shift = _shift(x, place, dtype)
    forward = chunked_forward(net, x.event_shape)
    if isinstance(forward, Chain) and place.type == "cpu":
        return in_threads(partial(_outputs, forward, shift, block) for block in blocks)
    return (_outputs(forward, shift, block) for block in blocks)


def _tensor(block: Callable[[], Block]) -> Tensor:
    return torch.from_numpy(block())


@torch.no_grad()
def _outputs(forward: Network, shift: Callable[[Tensor], Tensor], block: Callable[[], Block]) -> Tensor:
    inputs = shift(_tensor(block))
    outputs = forward(inputs)
    # the sum is much faster to test, but may overflow where no output does
    if not bool(torch.isfinite(outputs.sum())) and not bool(torch.isfinite(outputs).all()):
        if not bool(torch.isfinite(inputs).all()):
            raise ValueError(f"the input's law has draws too large for {inputs.dtype}")
        raise ValueError("the network gives non-finite outputs (NaN or infinity)")
    return outputs


def _shift(x: Law, device: torch.device, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """Map standard variates, shape (rows, n), to draws of `x`."""
    location = x.location.detach().reshape(-1).to(device, dtype)
    if isinstance(x, Gaussian):
        factor = x.factor()[0].detach().T.to(device, dtype)
        return lambda noise: torch.addmm(location, noise.to(device, dtype), factor)
    if isinstance(x, DiagonalGaussian):
        spread = x.variance.detach().double().sqrt()
    elif isinstance(x, Cauchy | SymmetricStable):
        spread = x.scale.detach()
    else:
        raise ValueError(f"cannot draw from a {type(x).__name__}")
    scale = spread.reshape(-1).to(device, dtype)
    return lambda noise: torch.addcmul(location, noise.to(device, dtype), scale)


def _blocks(
    sampler: str, samples: int, dimension: int, seed: Seed, x: Law | None = None
) -> Iterator[Callable[[], Block]]:
    if sampler not in SAMPLERS:
        raise ValueError(f"sampler must be one of {', '.join(SAMPLERS)}, got {sampler!r}")
    if sampler == "sobol":
        if isinstance(x, SymmetricStable):
            raise ValueError("sampler 'sobol' draws Gaussian and Cauchy laws only, not SymmetricStable")
        quantile = cauchy_quantile if isinstance(x, Cauchy) else normal_quantile
        return sobol_blocks(samples, dimension, seed, quantile)
    variates: Variates = normals
    if isinstance(x, Cauchy):
        variates = cauchys
    elif isinstance(x, SymmetricStable):
        variates = stables(x.alpha)
    return monte_carlo_blocks(variates, samples, dimension, seed)


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
        place = default if device is None else torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {str(device)!r} cannot be used: {str(error).splitlines()[0]}") from None
    return place
