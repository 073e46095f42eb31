"""MNIST (LeCun, Cortes, Burges): 28x28 grey images of the 10 digits."""

from __future__ import annotations

from sdp_bench.bench.datasets.base import ImageClassification, Part
from sdp_bench.bench.datasets.download import DataFile
from sdp_bench.bench.datasets.formats import grey_images

_MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
"""PyTorch's mirror; the original server has not responded for years."""


def _file(name: str, known_hash: str) -> DataFile:
    return DataFile(f"mnist/{name}", known_hash, _MIRROR + name)


MNIST = ImageClassification(
    "mnist",
    "MNIST",
    "CC BY-SA 3.0",
    {
        "train": (
            Part(
                (
                    _file(
                        "train-images-idx3-ubyte.gz",
                        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                    ),
                    _file(
                        "train-labels-idx1-ubyte.gz",
                        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                    ),
                ),
                60_000,
            ),
        ),
        "test": (
            Part(
                (
                    _file(
                        "t10k-images-idx3-ubyte.gz",
                        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                    ),
                    _file(
                        "t10k-labels-idx1-ubyte.gz",
                        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                    ),
                ),
                10_000,
            ),
        ),
    },
    grey_images,
)
