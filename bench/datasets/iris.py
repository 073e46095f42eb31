"""Fisher's Iris as in scikit-learn: 150 flowers, 4 lengths in cm, 3 classes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from sdp_bench.bench.datasets.base import TabularClassification


def _read(_contents: Mapping[str, bytes]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    from sklearn.datasets import load_iris

    features, labels = load_iris(return_X_y=True)
    return features, labels


IRIS = TabularClassification("iris", "Iris", "CC BY 4.0 (UCI)", _read)
