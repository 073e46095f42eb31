"""Noise of every wrong kind: one line and exit code 2, before anything is worked on."""

import numpy as np
import pytest

from tests.attacks.calls import fallen, furnished, idle

NUMBERS = (
    *("", "no-such-thing", "gaussian:1", "stable", "stable:x", "stable:2.1", "stable:nan", "\x1b[31m"),
    *("student_t:", "student_t:0", "student_t:inf", "mixture", "mixture:1*", "mixture:0.9*1+0.2*5"),
    *("mixture:1*-1", "mixture:1*nan", "scales:1/2/3", "scales:1//2", "scales:0/0/0/0", "scales:inf/1/1/1"),
    *("covariance", "residuals:", "x" * 999),
)
"""Texts, for nets of four inputs."""

ARRAYS = {
    "nan": np.full((4, 4), np.nan),
    "zero": np.zeros((4, 4)),
    "asymmetric": np.eye(4) + np.triu(np.ones((4, 4)), 1) / 2,
    "indefinite": np.eye(4) - np.ones((4, 4)),
    "wide": np.eye(5),
    "none": np.zeros((0, 4)),
    "complex": np.eye(4) * 1j,
    "words": np.array([["a"] * 4] * 4),
    "large": np.eye(4) * 1e30,
}
FITTING = ("residuals:asymmetric.npy", "residuals:indefinite.npy")
FILES = (*(f"{name}.npy" for name in (*ARRAYS, "objects", "cut")), "missing", "folder", "several.npz")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with arrays of every wrong kind, in which nothing is worked on."""
    place = furnished(tmp_path_factory.mktemp("noise"))
    for name, array in ARRAYS.items():
        np.save(place / f"{name}.npy", array)
    np.save(place / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.savez(place / "several.npz", np.eye(4), np.eye(4))
    (place / "cut.npy").write_bytes((place / "wide.npy").read_bytes()[:-8])
    with idle(place):
        yield place


def test_bad_noise_is_refused_before_any_work(folder):
    named = [f"{kind}:{name}" for kind in ("scales", "covariance", "residuals") for name in FILES]
    calls = [["run", "iris-tv", f"--noise={text}"] for text in (*NUMBERS, *named) if text not in FITTING]
    together = (
        "run iris-tv --noise stable:1.5 --sampler sobol",
        "run uci --noise laplace",
        "run iris-tv --noise uniform --sigma 1e-400",
        "run iris-tv --noise scales:1e17/1/1/1 --sigma 1e17",
        "validate sdp --no-conformance --noise covariance:wide.npy",
    )
    assert fallen([*calls, *(call.split() for call in together)], codes=(2,)) == []
