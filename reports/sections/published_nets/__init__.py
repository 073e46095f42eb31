"""The section on published nets: for each net and use, whether linearisation is enough, or which rule."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from ....bench.published import PUBLISHED, PublishedNet, install_command, published_nets
from ...results import Results
from ...section import Context, Section
from ...style.names import RuleTraits
from ..overview import published_of

if TYPE_CHECKING:
    from ...recommendation.answers import Recommendation

ACCURATE, INACCURATE, UNDECIDED = "accurate", "inaccurate", "undecided"
"""Outcomes of linearisation: its mean error is compared with the limit of a use."""


@dataclass(frozen=True)
class Answers:
    """The recommendations for one published net, by use and noise level.

    `samples` has, by use and noise level, the number of Monte Carlo samples that are as accurate as
    linearisation, with ``"<"`` or ``">"`` before it if it is outside the measured range. `infinite` has the
    uses and noise levels at which the error of linearisation is infinite, since it predicts no spread for an
    output that varies. `judged` has the rows of the comparison at equal cost, and `inputs` and `oracle` are
    numbers of inputs and of samples.
    """

    net: PublishedNet
    recommendations: Sequence[Recommendation]
    samples: Mapping[tuple[str, float], tuple[str, float]]
    infinite: Collection[tuple[str, float]]
    judged: Sequence[Mapping[str, object]]
    inputs: int
    oracle: int

    @property
    def sigmas(self) -> list[float]:
        return sorted({answer.sigma for answer in self.recommendations})

    def for_use(self, use: str) -> list[Recommendation]:
        return [answer for answer in self.recommendations if answer.use.name == use]


class PublishedNets(Section):
    name = "published-nets"
    title = "Published nets"
    order = 55
    experiments = ("published",)

    def build(self, results: Results) -> Context | None:
        measurements = results.frame[results.frame["experiment"].isin(self.experiments)]
        if measurements.empty:
            return None
        from ...recommendation.answers import USES  # imports torch
        from .comparison import RANKED, equal_compute, transfers

        answers = list(answers_by_net(measurements, results.traits))
        if not answers:
            return None
        # Small results of one run are compared with the committed ones.
        suite = results.committed or results
        uses = [use.name for use in USES if any(answer.for_use(use.name) for answer in answers)]
        compared = transfers(suite, measurements, published_of(results))
        of_linearisation = outcomes(answers)
        outcome_of = of_linearisation.set_index(["net", "use", "sigma"])["outcome"].to_dict()
        judged = pd.DataFrame([row for answer in answers for row in answer.judged])
        return {
            "nets": answers,
            "uses": uses,
            "limits": {use.name: use.limit for use in USES},
            "outcome_of": outcome_of,
            "summary": summary(of_linearisation).to_dict("index"),
            "ties": ties(answers, results.traits),
            "install": install_command(published_nets()),
            "transfers": compared,
            "uncompared": [title for title in RANKED if title not in {row.use.title for row in compared}],
            "equal": equal_compute(suite, judged) if len(judged) else [],
        }


def answers_by_net(frame: pd.DataFrame, traits: RuleTraits) -> Iterator[Answers]:
    """Yield the recommendations for each published net among the measurements."""
    from ...recommendation.answers import LINEAR, recommendations
    from ...recommendation.judging import cost_tables
    from .comparison import judged_settings, samples_needed

    for name, net in published_nets().items():
        measured = frame[frame["network"].astype(str).str.startswith(f"{PUBLISHED}:{name} ")]
        if measured.empty:
            continue
        answers = recommendations(measured, traits, cost_tables(measured, traits))
        needed = list(samples_needed(measured, answers, traits))
        of_linear = measured[measured["rule"] == LINEAR]
        linear_settings = set(zip(of_linear["metric"].astype(str), of_linear["sigma"], strict=True))
        infinite = {
            (answer.use.name, answer.sigma)
            for answer in answers
            if not answer.linear and (answer.error.metric.name, answer.sigma) in linear_settings
        }
        yield Answers(
            net,
            answers,
            {(answer.use.name, answer.sigma): (bound, count) for answer, bound, count, _ in needed},
            infinite,
            list(judged_settings(name, needed)),
            inputs=measured["input"].nunique(),
            oracle=int(measured["samples"].max()),
        )


def outcomes(answers: Sequence[Answers]) -> pd.DataFrame:
    """Whether linearisation is accurate for the measured inputs of each net, at each noise level and use.

    The columns are "use", "net", "sigma" and "outcome": "accurate", "inaccurate" or "undecided".
    """
    words = {True: ACCURATE, False: INACCURATE, None: UNDECIDED}
    rows = [
        {
            "use": answer.use.name,
            "net": of_net.net.name,
            "sigma": answer.sigma,
            "outcome": words[answer.linear.is_small_here] if answer.linear else INACCURATE,
        }
        for of_net in answers
        for answer in of_net.recommendations
        if answer.linear or (answer.use.name, answer.sigma) in of_net.infinite
    ]
    return pd.DataFrame(rows, columns=["use", "net", "sigma", "outcome"])


def summary(outcomes: pd.DataFrame) -> pd.DataFrame:
    """Count settings (a net at a noise level) by use and outcome.

    The index has the uses; the columns are "nets", "settings", the outcomes, and the 95 % interval of the
    accurate share over nets, "low" and "high".
    """
    from .comparison import share_interval

    counts = outcomes.groupby(["use", "outcome"], sort=False).size().unstack(fill_value=0)
    counts = counts.reindex(columns=[ACCURATE, INACCURATE, UNDECIDED], fill_value=0)
    counts.insert(0, "settings", counts.sum(axis=1))
    counts.insert(0, "nets", outcomes.groupby("use")["net"].nunique())
    for use, of_use in outcomes.assign(accurate=outcomes["outcome"] == ACCURATE).groupby("use"):
        counts.loc[use, ["low", "high"]] = share_interval(of_use, "accurate")
    return counts


def ties(answers: Sequence[Answers], traits: RuleTraits) -> list[tuple[str, dict[str, float]]]:
    """Return, for each rule, the share of settings by use in which it is best or tied with the best.

    Rules that do not support a net count as not best there. The most frequent rules come first.
    """
    rows = [
        {"use": answer.use.name, "rule": rule}
        for of_net in answers
        for answer in of_net.recommendations
        for rule in answer.ranking.best
    ]
    table = pd.DataFrame(rows, columns=["use", "rule"])
    settings = pd.Series(
        [answer.use.name for of_net in answers for answer in of_net.recommendations]
    ).value_counts()
    shares = table.groupby(["rule", "use"]).size().unstack(fill_value=0) / settings
    order = shares.mean(axis=1).sort_values(ascending=False).index
    return [(traits.label(str(rule)), dict(shares.loc[rule])) for rule in order]
