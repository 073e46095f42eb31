"""The formats in which publishers give their sets: IDX, CIFAR's Python pickles, columns of numbers."""

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
"""Code of unsigned bytes, the only element type of the sets here."""


def idx(content: bytes, name: str) -> np.ndarray:
    """Array of a gzipped IDX file (LeCun).

    Parameters
    ----------
    content : bytes
    name : str
        For messages.

    Returns
    -------
    ndarray of uint8
        Of the shape that the header gives.

    Raises
    ------
    RunFailedError
        If `content` is something else.
    """
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
    """Images and labels of two IDX files; a file of images that ends early takes the first of the labels.

    Parameters
    ----------
    contents : sequence of bytes
        Of the images, then of the labels.
    names : sequence of str
        For messages.

    Raises
    ------
    RunFailedError
        If they are something else, or do not belong together.
    """
    images, labels = (idx(content, name) for content, name in zip(contents, names, strict=True))
    if images.ndim != 3 or labels.ndim != 1 or len(labels) < len(images):
        raise RunFailedError(f"{names[0]} and its labels do not belong together")
    return images[:, None].copy(), labels[: len(images)].copy()


def cifar_batch(content: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of a CIFAR-10 batch in its Python version.

    Raises
    ------
    RunFailedError
        If `content` is something else, or asks for code to be run; `name` is for the message.
    """
    try:
        return _images_and_labels(_ArrayUnpickler(io.BytesIO(content), encoding="bytes").load())
    except Exception as error:  # unpickling what is no pickle raises almost anything
        raise RunFailedError(f"{name} is not a batch of CIFAR-10 ({error})") from error


def _images_and_labels(batch: Any) -> tuple[np.ndarray, np.ndarray]:
    pixels, labels = np.asarray(batch[b"data"]), np.asarray(batch[b"labels"])
    if pixels.dtype != np.uint8 or labels.shape != (len(pixels),) or labels.dtype.kind != "i":
        raise ValueError("data must be bytes, with a whole number as label of each row")
    return pixels.reshape(-1, 3, 32, 32), labels.astype(np.int64)


def columns(content: bytes, name: str) -> np.ndarray:
    """Table of numbers separated by white space.

    Parameters
    ----------
    content : bytes
    name : str
        For messages.

    Raises
    ------
    RunFailedError
        If `content` is something else.
    """
    try:
        table = np.array([line.split() for line in content.decode("ascii").splitlines() if line.strip()])
        table = table.astype(np.float64)
    except ValueError as error:
        raise RunFailedError(f"{name} is not a table of numbers ({error})") from error
    if table.ndim != 2 or not np.isfinite(table).all():
        raise RunFailedError(f"{name} is not a table of finite numbers")
    return table


def _encode(text: str, encoding: str) -> bytes:
    """What pickles of protocol 2 call to make bytes."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"encoding {encoding}")
    return text.encode("latin1")


class _ArrayUnpickler(pickle.Unpickler):  # noqa: S301  this is what makes it safe
    """Reads arrays, texts, numbers, lists and dictionaries, and refuses all else.

    A pickle can name any function to be called; this knows the ones that arrays are made by.
    """

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.zeros(0).__reduce__()[0]
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):
            return _encode
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")
