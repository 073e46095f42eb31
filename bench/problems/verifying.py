"""Oracles of a problem set drawn again, and held against what is frozen."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sdp_bench.bench.gate.check import of_oracles
from sdp_bench.bench.gate.verdict import Verdict
from sdp_bench.bench.manifests import Source
from sdp_bench.bench.problems.problem_set import NAME, ORACLES, ProblemSet, folder_of, oracle_of, problem_set
from sdp_bench.bench.settings import Settings


def sources(problems: ProblemSet) -> Iterator[Source]:
    """Oracles of a set as today's code makes them; nothing is drawn yet."""
    for group in problems.groups(Settings(), ("sdp",)):
        net = group.net.build()
        for place in range(len(group.subjects)):
            yield group, place, oracle_of(group, place, net)


def verify(
    shard: tuple[int, int], report: Callable[[int, int, str], object] = lambda *_: None, name: str = NAME
) -> Verdict:
    """Draw a part of a set's oracles again.

    Parameters
    ----------
    shard : (int, int)
        Part i of n, counted from 1.
    report : callable
        Is told after each oracle how many are done, of how many, and its title.
    name : str
        Of the set.

    Returns
    -------
    Verdict
        As :func:`sdp_bench.bench.gate.check.of_oracles` gives it: on another platform statistics may
        differ by its stated rounding.
    """
    found = list(sources(problem_set(name)))
    return of_oracles(folder_of(name) / ORACLES, shard, sources=found, step=report)
