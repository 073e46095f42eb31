"""CIFAR-10 (Krizhevsky 2009): 32x32 colour images of 10 classes.

``data_batch_3`` to ``data_batch_5`` are verified by the MD5 in torchvision, the other files by SHA-256.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sdp_bench.bench.datasets import formats
from sdp_bench.bench.datasets.base import ImageClassification, Part
from sdp_bench.bench.datasets.download import DataFile

_ARCHIVE = DataFile(
    "cifar10/cifar-10-python.tar.gz",
    "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
)


def _batch(name: str, known_hash: str) -> Part:
    member = f"cifar-10-batches-py/{name}"
    return Part((DataFile(f"cifar10/{name}", known_hash, archive=_ARCHIVE, member=member),), 10_000)


def _read(contents: Sequence[bytes], names: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    return formats.cifar_batch(contents[0], names[0])


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
    _read,
    training={"augmentation": "crop_flip"},
)
