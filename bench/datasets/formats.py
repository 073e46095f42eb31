"""Readers of the publishers' formats: IDX, CIFAR's Python pickles, and columns of numbers."""

from __future__ import annotations

import gzip
import io
import math
import pickle
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdp_bench.bench.errors import RunFailedError

IDX_UINT8 = 8
"""IDX code of unsigned bytes, the only element type in these sets."""


def idx(content: bytes, name: str) -> np.ndarray:
    """Return the uint8 array of a gzipped IDX file (LeCun); `name` is for error messages."""
    try:
        raw = gzip.decompress(content)
        zero, kind, dimensions = int.from_bytes(raw[:2], "big"), raw[2], raw[3]
        shape = np.frombuffer(raw, ">i4", count=dimensions, offset=4).tolist()
        data = np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions)
    except (OSError, EOFError, IndexError, ValueError, zlib.error) as error:
        raise RunFailedError(f"{name} is not a gzipped IDX file ({error})") from error
    if zero or kind != IDX_UINT8 or len(data) != math.prod(shape):
        raise RunFailedError(f"{name} is not an IDX file of unsigned bytes")
    return data.reshape(shape)


def grey_images(
    contents: Sequence[bytes], names: Sequence[str]
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return images, uint8, shape (N, 1, H, W), and labels, uint8, shape (N,), of two IDX files.

    If the file of images ends early, its images have the first labels. `names` are for error messages. Other
    content, or files that do not match, raise a RunFailedError.
    """
    images, labels = (idx(content, name) for content, name in zip(contents, names, strict=True))
    if images.ndim != 3 or labels.ndim != 1 or len(labels) < len(images):
        raise RunFailedError(f"{names[0]} and its labels do not belong together")
    return images[:, None].copy(), labels[: len(images)].copy()


def cifar_batch(content: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return images, uint8, shape (N, 3, 32, 32), and labels, int64, shape (N,), of a Python CIFAR-10 batch.

    Other content, and a pickle that would run code, raise a RunFailedError.
    """
    try:
        return _images_and_labels(_ArrayUnpickler(io.BytesIO(content), encoding="bytes").load())
    except Exception as error:  # unpickling arbitrary bytes can raise almost any error
        raise RunFailedError(f"{name} is not a batch of CIFAR-10 ({error})") from error


def _images_and_labels(batch: Any) -> tuple[np.ndarray, np.ndarray]:
    pixels, labels = np.asarray(batch[b"data"]), np.asarray(batch[b"labels"])
    if pixels.dtype != np.uint8 or labels.shape != (len(pixels),) or labels.dtype.kind != "i":
        raise ValueError("data must be bytes, with a whole number as label of each row")
    return pixels.reshape(-1, 3, 32, 32), labels.astype(np.int64)


def columns(content: bytes, name: str) -> np.ndarray:
    """Return a table of numbers separated by white space, float64, shape (rows, columns)."""
    try:
        table = np.array([line.split() for line in content.decode("ascii").splitlines() if line.strip()])
        table = table.astype(np.float64)
    except ValueError as error:
        raise RunFailedError(f"{name} is not a table of numbers ({error})") from error
    if table.ndim != 2 or not np.isfinite(table).all():
        raise RunFailedError(f"{name} is not a table of finite numbers")
    return table


def _encode(text: str, encoding: str) -> bytes:
    """Replace the function that pickles of protocol 2 call to create bytes."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"encoding {encoding}")
    return text.encode("latin1")


class _ArrayUnpickler(pickle.Unpickler):
    """Unpickle arrays and plain values only, since a pickle can call any function by name."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.zeros(0).__reduce__()[0]
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):
            return _encode
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")
