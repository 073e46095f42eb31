"""Noise of every wrong kind: one line and exit code 2, before anything is worked on."""

import shlex

import numpy as np
import pytest

from tests.attacks.calls import BEGUN, called, complaint, furnished, idle

NUMBERS = (
    *("", "no-such-thing", "gaussian:1", "laplace:2", "stable", "stable:x", "stable:2.1", "stable:nan"),
    *("student_t:", "student_t:0", "student_t:inf", "mixture", "mixture:1*", "mixture:0.9*1+0.2*5"),
    *("mixture:1*-1", "mixture:1*nan", "scales:1/2/3", "scales:1//2", "scales:0/0/0/0", "scales:inf/1/1/1"),
    *("covariance", "residuals:", "\x1b[31m", "\udcff", "x" * 999),
)
"""Texts, for nets of four inputs."""

ARRAYS = {
    "nan": np.full((4, 4), np.nan),
    "zero": np.zeros((4, 4)),
    "asymmetric": np.eye(4) + np.triu(np.ones((4, 4)), 1) / 2,
    "indefinite": np.eye(4) - np.ones((4, 4)),
    "wide": np.eye(5),
    "small": np.eye(3),
    "none": np.zeros((0, 4)),
    "complex": np.eye(4) * 1j,
    "words": np.array([["a"] * 4] * 4),
    "large": np.eye(4) * 1e30,
}
FOREIGN = ("missing", "folder", "random.bin", "empty", "text.csv", "objects.npy", "several.npz", "cut.npy")
FITTING = {("residuals", "asymmetric"), ("residuals", "indefinite")}
"""Arrays of the right shape that a family has nothing to say against."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with arrays of every wrong kind, in which nothing is worked on."""
    place = furnished(tmp_path_factory.mktemp("noise"))
    for name, array in ARRAYS.items():
        np.save(place / f"{name}.npy", array)
    np.save(place / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.savez(place / "several.npz", np.eye(4))
    (place / "cut.npy").write_bytes((place / "small.npy").read_bytes()[:-8])
    with idle(place):
        yield place


def texts():
    """All that is refused."""
    yield from NUMBERS
    for kind in ("scales", "covariance", "residuals"):
        for name in ARRAYS:
            if (kind, name) not in FITTING:
                yield f"{kind}:{name}.npy"
        for name in FOREIGN:
            yield f"{kind}:{name}"


def refused(attack, calls):
    with attack("bad noise") as tried:
        for words in calls:
            code, out, err = called(words)
            found = complaint(code, out, err, codes=(2,)) or (BEGUN in err and BEGUN)
            tried.tried(f"{shlex.join(words)[:150]!r}: {found}", held=not found)


def calls(text):
    return ["run", "iris-tv", f"--noise={text}"], ["validate", "sdp", "--no-conformance", f"--noise={text}"]


def test_bad_noise_is_refused_before_any_work(folder, attack):
    refused(attack, [calls(text)[place % 2] for place, text in enumerate(texts())])


def test_noise_that_does_not_go_with_the_rest_is_refused_before_any_work(folder, attack):
    calls = (
        "run iris-tv --noise stable:1.5 --sampler sobol",
        "run uci --noise laplace",
        "run iris-tv --noise uniform --sigma 1e-400",
        "run iris-tv --noise scales:1e17/1/1/1 --sigma 1e17",
        "validate sdp --no-conformance --noise wide.npy",
    )
    refused(attack, [call.split() for call in calls])


def test_good_noise_goes_to_work(folder):
    for text in (
        "laplace",
        "student_t:0.5",
        "scales:1/0/0.5/2",
        "residuals:asymmetric.npy",
    ):
        assert BEGUN in called(["run", "iris-tv", f"--noise={text}"])[2]
