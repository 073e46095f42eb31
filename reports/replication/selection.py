"""What the paper says of selective prediction on digits and letters."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping

import pandas as pd

from sdp_bench.bench.experiments.selective.experiment import EXPERIMENT
from sdp_bench.bench.methods.selective import READINGS
from sdp_bench.reports.replication.statement import (
    Effect,
    Evidence,
    Rule,
    Trial,
    Tried,
    finite,
)
from sdp_bench.reports.style import labels

_NAMES = {
    "softmax_entropy": "softmax entropy",
    "orthonormal_certificates": "orthonormal certificates",
    "dirichlet": "Dirichlet",
    "pairwise_gaussian": "PD Gauss",
    "pairwise_cauchy": "PD Cauchy",
}
_MODELS = {"softmax": "softmax", "dirichlet": "Dirichlet", "pairwise_gaussian": "PD loss Gauss"}

_BORROWED = "sd_"
"""Before a reading of Cauchy pairs that takes its scales from a propagated Gaussian law."""
_PAIRWISE = ("pairwise_gaussian", "pairwise_cauchy")

_Line = tuple[str, str]
"""Training objective, and score."""


def _words(line: _Line) -> str:
    return f"{_NAMES[line[1]]} on the {_MODELS[line[0]]} model"


def _areas(frame: pd.DataFrame, line: _Line, reading: str) -> pd.Series:
    objective, score = line
    own = frame[
        (frame["objective"] == objective)
        & (frame["rule"] == score)
        & (frame["metric"] == "rcauc")
        & (frame["component"] == reading)
    ]
    return own.set_index("seed")["value"]


def _readings(lines: Iterable[_Line]) -> Iterator[Mapping[str, str]]:
    """Readings of some scores, crossed; those of pairs are combined in one way."""
    scores = list(dict.fromkeys(score for _, score in lines))
    for chosen in itertools.product(*(READINGS[score] for score in scores)):
        reading = dict(zip(scores, chosen, strict=True))
        pairs = {each.removeprefix(_BORROWED) for score, each in reading.items() if score in _PAIRWISE}
        if len(pairs) < len(_PAIRWISE):
            yield reading


def _smaller(*pairs: tuple[_Line, _Line]) -> Rule:
    """Ruling that areas of some lines are below those of others, under every reading of the scores."""

    def rule(evidence: Evidence) -> Tried | None:
        frame = evidence.of(EXPERIMENT.name)
        if frame.empty:
            return None
        trials = {}
        for reading in _readings(line for pair in pairs for line in pair):
            convention = tuple(f"{_NAMES[score]} {each}" for score, each in reading.items() if each)
            effects = tuple(
                Effect(
                    f"RCAUC of {_words(worse)} less that of {_words(better)}, in points",
                    finite(
                        100
                        * (
                            _areas(frame, worse, reading[worse[1]])
                            - _areas(frame, better, reading[better[1]])
                        )
                    ),
                )
                for better, worse in pairs
            )
            if all(len(effect.values) for effect in effects):
                trials[convention] = Trial(effects, "seed")
        seeds = labels.plural(int(frame["seed"].nunique()), "seed")
        fidelity = f"{seeds}, fewer images and epochs than the paper’s 10 runs"
        return Tried(trials, fidelity, "#selective") if trials else None

    return rule


_SOFTMAX = ("softmax", "softmax_entropy")
_CAUCHY = ("softmax", "pairwise_cauchy")
_CERTIFICATES = ("softmax", "orthonormal_certificates")
_BEST = ("pairwise_gaussian", "pairwise_cauchy")

RULES: Mapping[str, Rule] = {
    "selective-training": _smaller(
        (("pairwise_gaussian", "pairwise_gaussian"), ("softmax", "pairwise_gaussian")),
        (("dirichlet", "dirichlet"), ("softmax", "dirichlet")),
    ),
    "selective-cauchy": _smaller(
        (_CAUCHY, _SOFTMAX),
        (_CAUCHY, _CERTIFICATES),
        (_CAUCHY, ("softmax", "dirichlet")),
        (_CAUCHY, ("softmax", "pairwise_gaussian")),
    ),
    "selective-certificates": _smaller((_SOFTMAX, _CERTIFICATES)),
    "selective-dirichlet": _smaller((_SOFTMAX, ("softmax", "dirichlet"))),
    "selective-pairwise": _smaller((("dirichlet", "pairwise_gaussian"), ("dirichlet", "dirichlet"))),
    "selective-best": _smaller(
        (_BEST, ("pairwise_gaussian", "pairwise_gaussian")),
        (_BEST, ("dirichlet", "pairwise_gaussian")),
        (_BEST, ("dirichlet", "dirichlet")),
        (_BEST, _CAUCHY),
    ),
}
