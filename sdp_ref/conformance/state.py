"""Isolation of checks from global state."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def seed_globally(seed: int) -> None:
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002  the legacy global state is what a rule might read
    random.seed(seed)


def generators() -> tuple[Any, ...]:
    """State of the global generators, in a comparable form."""
    _, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
    numpy_state = (np.asarray(keys).tobytes(), *rest)
    return bytes(torch.default_generator.get_state().numpy()), numpy_state, random.getstate()


@contextmanager
def preserved() -> Iterator[None]:
    """Restore generators, default dtype, grad mode and thread count; silence warnings.

    Warnings of a rule, such as about dropped covariances, are not test results.
    """
    torch_state = torch.default_generator.get_state()
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002
    dtype, threads, grad = torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled()
    try:
        with warnings.catch_warnings(), torch.inference_mode(False), torch.enable_grad():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.default_generator.set_state(torch_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
