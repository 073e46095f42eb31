"""How often statements are judged wrongly, where the true median lies exactly on the threshold."""

import numpy as np

from sdp_bench.oracles.estimate.multiplicity import holm
from sdp_bench.reports.replication.page import topics
from sdp_bench.reports.results import committed_results
from sdp_bench.reports.statement import Effect, Evidence
from sdp_bench.reports.statistics.verdicts import LEVEL, p_of_some_part, sign_tests
from tests.calibration.rate import Rate

_AT_ONCE = 100
"""Samples that are drawn together, to limit memory."""


def medians(rng):
    """Single tests and 95 % intervals of the median, under effects with and without skewness."""
    trials = 20_000
    laws = {
        "normal": (rng.standard_normal, 0.0),
        "exponential": (rng.standard_exponential, np.log(2)),
        "lognormal": (lambda shape: rng.lognormal(size=shape), 1.0),
    }
    for name, (draw, median) in laws.items():
        for nets in (6, 10, 30):
            tests = sign_tests(draw((trials, nets)), median)
            missed = int(((tests.low > median) | (tests.high < median)).sum())
            yield Rate("95 % interval of a median", f"{name} effects, {nets} nets", LEVEL, missed, trials)
            for side, p in (("above", tests.above), ("below", tests.below)):
                errors = int((p <= LEVEL).sum())
                yield Rate(f"false “{side}”", f"{name} effects, {nets} nets", LEVEL, errors, trials)


def best_of_several(rng):
    """The best of several alternatives compared with the best of others, all of them equal."""
    trials, runs = 2000, 30
    for own, others in ((1, 7), (7, 1), (7, 7)):
        errors = np.zeros(2, dtype=int)
        for _ in range(trials):
            first = rng.standard_normal((runs, own))
            second = rng.standard_normal((runs, others))
            gap = first[:, first.mean(0).argmax()] - second[:, second.mean(0).argmax()]
            errors += np.array(Effect("gap", gap, choices=own, against=others).p) <= LEVEL
        for side, count in zip(("above", "below"), errors.tolist(), strict=True):
            condition = f"best of {own} against best of {others}, {runs} runs"
            yield Rate(f"false “{side}”", condition, LEVEL, count, trials)


def committed(rng):
    """Verdicts on all statements of a convention, with nets drawn from the committed effects.

    A statement is supported wrongly most often if one part lies on its threshold and the others are far above
    theirs; that part is the most error-prone one. It is refuted wrongly if all parts lie on their thresholds.
    The errors are those of the worst convention.
    """
    families = _families()
    trials = 2400
    for nets in (30, 10, 6):
        worst = np.zeros(2, dtype=int)
        for family in families:
            p = _p(family, nets, trials, rng)
            worst = np.maximum(worst, (holm(p) <= LEVEL).any(-1).sum(-1))
        for verdict, count in zip(("supported", "refuted"), worst.tolist(), strict=True):
            yield Rate(f"any statement wrongly {verdict}", f"{nets} nets", LEVEL, count, trials)


def _families():
    """Parts of each statement by convention, each as the file of its nets and its effects, shape (nets,)."""
    evidence = Evidence(committed_results())
    (topic,) = (topic for topic in topics() if topic.key == "tables")
    answers = [statement.rule(evidence) for statement in topic.statements if statement.rule]
    trials = [trial for answer in answers if answer for trial in answer.trials if trial.effects]
    conventions = {trial.convention for trial in trials if len(trial.convention) > 1}

    def parts(trial):
        finite = [effect for effect in trial.effects if np.isfinite(effect.values).all()]
        return [(effect.sources[0][1].partition("#")[0], effect.values) for effect in finite]

    def family(convention):
        every = [parts(trial) for trial in trials if set(trial.convention) <= set(convention)]
        return [own for own in every if own]

    return [family(convention) for convention in sorted(conventions)]


def _p(family, nets, trials, rng):
    """p-values of "supported" and "refuted", shape (2, trials, statements)."""
    batches = [_tests(family, nets, _AT_ONCE, rng) for _ in range(trials // _AT_ONCE)]
    supported, refuted = [], []
    for place in range(len(family)):
        above = np.concatenate([batch[place][0] for batch in batches], 1)
        below = np.concatenate([batch[place][1] for batch in batches], 1)
        prone = (above <= LEVEL / len(family)).mean(1).argmax()
        supported.append(above[prone])
        refuted.append(p_of_some_part(below.T))
    return np.array([supported, refuted]).transpose(0, 2, 1)


def _tests(family, nets, times, rng):
    """p-values of the parts of each statement, shapes (parts, times), against the population's median."""
    shared = {}
    p_of_statements = []
    for parts in family:
        drawn = []
        for file, effects in parts:
            count = len(effects)
            if (file, count) not in shared:  # effects on the same nets share these
                shared[file, count] = rng.integers(0, count, (times, nets))
            drawn.append(effects[shared[file, count]])
        tests = sign_tests(np.array(drawn), np.array([[np.median(effects)] for _, effects in parts]))
        p_of_statements.append((tests.above, tests.below))
    return p_of_statements


SIMULATIONS = (medians, best_of_several, committed)
