"""Test letters of EMNIST (Cohen et al. 2017), labels 1 to 26 for A to Z in either case.

The archive is verified by the MD5 in torchvision, its members by SHA-256.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdp_bench.bench.datasets.base import ImageClassification, Part
from sdp_bench.bench.datasets.download import DataFile
from sdp_bench.bench.datasets.formats import grey_images

_ARCHIVE = DataFile(
    "emnist/gzip.zip",
    "md5:58c8d27c78d21e728a6bc7b3cc06412e",
    "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
)


def _file(stem: str, suffix: str, known_hash: str) -> DataFile:
    name = f"{stem}-{suffix}"
    return DataFile(
        f"emnist/{name}",
        known_hash,
        archive=_ARCHIVE,
        member=f"gzip/{name}",
        beginnings=f"emnist/{stem}-*-{suffix}",
    )


def _read(
    contents: Sequence[bytes], names: Sequence[str]
) -> tuple[NDArray[np.uint8], NDArray[np.integer[Any]]]:
    images, labels = grey_images(contents, names)
    # The publisher's images are transposed; these are upright, as in MNIST.
    return np.ascontiguousarray(images.swapaxes(2, 3)), labels


def _first_letters(labels: NDArray[np.integer[Any]]) -> str:
    first, last = (chr(64 + int(label)) for label in (labels.min(), labels.max()))
    return f"the first in the publisher's order, {first}-{last} only"


EMNIST_LETTERS = ImageClassification(
    "emnist-letters",
    "EMNIST letters",
    "public domain (NIST)",
    {
        "test": (
            Part(
                (
                    _file(
                        "emnist-letters-test-images",
                        "idx3-ubyte.gz",
                        "50f0e93d75b99b463e9760b8345866f22587fa2c2fba472730a5ba09c693412d",
                    ),
                    _file(
                        "emnist-letters-test-labels",
                        "idx1-ubyte.gz",
                        "924955c31fe7fd809b7303b5c0141282955f4b8390c74cdfd5d80435e0f4b4cb",
                    ),
                ),
                20_800,
            ),
        )
    },
    _read,
    _first_letters,
)
