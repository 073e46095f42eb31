"""Statements of the paper on selective prediction with digits and letters."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import pandas as pd

from sdp_bench.bench.studies.selective import EXPERIMENT, OTHER_SCALES
from sdp_bench.reports.replication.statement import (
    Effect,
    Evidence,
    Rule,
    Tried,
    finite,
)
from sdp_bench.reports.sections.selective.areas import at_scale
from sdp_bench.reports.sections.selective.words import MODELS, READINGS, SCORE_STYLES
from sdp_bench.reports.style import labels

_BORROWED = "sd_"
"""Prefix of readings of Cauchy pairs that use the scales of a propagated Gaussian."""
_PAIRWISE = ("pairwise_gaussian", "pairwise_cauchy")


class _Line(NamedTuple):
    """Training objective and score, and the scale of the noise if it is not the objective's own."""

    objective: str
    score: str
    scale: float | None = None


def _words(line: _Line) -> str:
    at = f" at σ = {line.scale:g}" if line.scale else ""
    return f"{SCORE_STYLES[line.score].label} on the {MODELS[line.objective].label} model{at}"


def _areas(frame: pd.DataFrame, line: _Line, reading: str) -> pd.Series:
    frame = at_scale(frame, line.scale)
    own = frame[
        (frame["objective"] == line.objective)
        & (frame["rule"] == line.score)
        & (frame["metric"] == "rcauc")
        & (frame["component"] == reading)
    ]
    return own.set_index("seed")["value"]


def _readings(lines: Iterable[_Line]) -> Iterator[Mapping[str, str]]:
    """All combinations of readings of some scores; the scores of pairs share their reading."""
    scores = list(dict.fromkeys(line.score for line in lines))
    for chosen in itertools.product(*(READINGS[score] for score in scores)):
        reading = dict(zip(scores, chosen, strict=True))
        pairs = {each.removeprefix(_BORROWED) for score, each in reading.items() if score in _PAIRWISE}
        if len(pairs) < len(_PAIRWISE):
            yield reading


def _smaller(*pairs: tuple[_Line, _Line]) -> Rule:
    """Areas of some lines are below those of others, under every reading of the scores."""

    def rule(evidence: Evidence) -> Tried | None:
        frame = evidence.of(EXPERIMENT.name)
        if frame.empty:
            return None
        tried = {}
        for reading in _readings(line for pair in pairs for line in pair):
            convention = tuple(
                f"{SCORE_STYLES[score].label} {each}" for score, each in reading.items() if each
            )
            tried[convention] = [
                Effect(
                    f"RCAUC of {_words(worse)} less that of {_words(better)}, in points",
                    finite(
                        100
                        * (
                            _areas(frame, worse, reading[worse.score])
                            - _areas(frame, better, reading[better.score])
                        )
                    ),
                )
                for better, worse in pairs
            ]
        seeds = labels.plural(int(frame["seed"].nunique()), "seed")
        fidelity = f"{seeds}, fewer images and epochs than the paper’s 10 runs"
        return Tried.of(tried, "seed", fidelity, "#selective")

    return rule


_SOFTMAX = _Line("softmax", "softmax_entropy")
_CERTIFICATES = _Line("softmax", "orthonormal_certificates")
_UNSUITED = _Line("softmax", "dirichlet")
_GAUSS = _Line("softmax", "pairwise_gaussian")
_CAUCHY = _Line("softmax", "pairwise_cauchy")
_MATCHED = _Line("dirichlet", "dirichlet")
_MATCHED_GAUSS = _Line("dirichlet", "pairwise_gaussian")
_MATCHED_CAUCHY = _Line("dirichlet", "pairwise_cauchy")
_PAIRS = _Line("pairwise_gaussian", "pairwise_gaussian")
_BEST = _Line("pairwise_gaussian", "pairwise_cauchy")
_CAUCHY_PAIRS = _Line("pairwise_cauchy", "pairwise_cauchy")

RULES: Mapping[str, Rule] = {
    "selective-training": _smaller((_PAIRS, _GAUSS), (_CAUCHY_PAIRS, _CAUCHY), (_MATCHED, _UNSUITED)),
    "selective-cauchy": _smaller(
        *((_CAUCHY, other) for other in (_SOFTMAX, _CERTIFICATES, _UNSUITED, _GAUSS))
    ),
    "selective-certificates": _smaller((_SOFTMAX, _CERTIFICATES)),
    "selective-dirichlet": _smaller((_SOFTMAX, _UNSUITED)),
    "selective-pairwise": _smaller((_MATCHED_GAUSS, _MATCHED), (_MATCHED_CAUCHY, _MATCHED)),
    "selective-best": _smaller(*((_BEST, other) for other in (_PAIRS, _MATCHED_GAUSS, _MATCHED, _CAUCHY))),
    "selective-scale": _smaller(*((_MATCHED, _MATCHED._replace(scale=scale)) for scale in OTHER_SCALES)),
}
