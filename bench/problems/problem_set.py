"""A set of problems as it stands in its folder, and the groups of work that it makes for some rules.

A folder holds ``problems.json`` (the places), ``oracles.json`` (what is true there, as manifests of oracles),
``inputs.safetensors`` and a file for each net. Its digest is over all of them.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from safetensors.torch import load
from torch import Tensor, nn

from sdp_bench.bench import files, manifests
from sdp_bench.bench.documents import structure
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments.base import Expansion, Experiment
from sdp_bench.bench.experiments.law_group import Asked, LawGroup, Subject
from sdp_bench.bench.experiments.laws import oracle_key
from sdp_bench.bench.experiments.scope import Scope
from sdp_bench.bench.manifests import Manifest
from sdp_bench.bench.metrics.oracle import Oracle, independent_blocks
from sdp_bench.bench.nets.net import Net, net_from_bytes
from sdp_bench.bench.noise import noise_of
from sdp_bench.bench.sampling import Sampler, Sampling
from sdp_bench.bench.settings import Settings, Size
from sdp_bench.oracles.estimate.tails import heavy_tailed
from sdp_bench.oracles.moments.moments import Moments

NAME = "sdp-bench-1"
"""The set that rules are entered for."""

DIGESTS: Mapping[str, str] = {NAME: "f87a74f44e17deb1dd69bcadc4d2ef31ce3ba2e0758601b27af7c60b5c18a546"}
"""Of each set, over all its files: a set with another is not the one of that name."""

PROBLEMS, ORACLES, INPUTS, NETS = "problems.json", "oracles.json", "inputs.safetensors", "nets"
_TRIMMED = 0.01
"""Share on either side that statistics of heavy tails leave out: outputs are clipped at these quantiles."""


@dataclass(frozen=True)
class Floor:
    """What an exact law shows by sampling alone: the mean, and 95 % of what is seen."""

    mean: float
    p95: float


@dataclass(frozen=True)
class Place:
    """One net under one noise, with its inputs.

    Attributes
    ----------
    name : str
        ``iris-relu-4/gaussian-1``.
    net : str
        File of the net, without its end.
    noise : str
        As :func:`sdp_bench.bench.noise.noise_of` takes it.
    scale : float
    sampler : {"mc", "sobol"}
    samples, pilot_samples : int
        Of an oracle, and of the draw that its cells are frozen from.
    rows : tuple of int
        Of the inputs, in their data set.
    metrics : tuple of str
        What is asked.
    keys : tuple of str
        Of the oracles, in the order of the inputs.
    floors : tuple of Floor
        Of total variation in the cells of the oracle's manifest, in that order.
    """

    name: str
    net: str
    noise: str
    scale: float
    sampler: Sampler
    samples: int
    pilot_samples: int
    rows: tuple[int, ...]
    metrics: tuple[str, ...]
    keys: tuple[str, ...] = ()
    floors: tuple[Floor, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """Names of its problems: one an input."""
        return tuple(f"{self.name}/{row}" for row in self.rows)

    @property
    def heavy(self) -> bool:
        """Whether its noise has no variance."""
        return heavy_tailed(noise_of(self.noise).example)


@dataclass(frozen=True)
class _Written:
    """What ``problems.json`` says."""

    name: str
    cells: int
    places: tuple[Place, ...]


@dataclass(frozen=True, eq=False)
class ProblemSet:
    """A set of problems.

    Attributes
    ----------
    name : str
    cells : int
        In which oracles are compared.
    places : tuple of Place
    nets : mapping of str to Net
    inputs : mapping of str to Tensor
        By place, float32, batch of its inputs.
    digest : str
        Over all files of its folder, 64 hexadecimal digits; empty while it is made.
    truths : mapping of str to Manifest
        What was found of each oracle, by its key.
    """

    name: str
    cells: int
    places: tuple[Place, ...]
    nets: Mapping[str, Net] = field(repr=False)
    inputs: Mapping[str, Tensor] = field(repr=False)
    digest: str = ""
    truths: Mapping[str, Manifest] = field(default_factory=dict, repr=False)

    @functools.cached_property
    def problems(self) -> Mapping[str, str]:
        """Names of all problems by the keys of their oracles."""
        return {key: name for each in self.places for key, name in zip(each.keys, each.problems, strict=True)}

    def place_of(self, problem: str) -> Place:
        """Place of a problem."""
        return self._places[problem]

    def asks(self, metric: str, at: str) -> bool:
        """Whether a metric, by name, is measured at any problem whose name fits a pattern."""
        return any(
            each.partition(":")[0] == metric
            for problem, place in self._places.items()
            if fnmatchcase(problem, at)
            for each in place.metrics
        )

    @functools.cached_property
    def _places(self) -> Mapping[str, Place]:
        return {name: each for each in self.places for name in each.problems}

    def groups(self, settings: Settings, rules: Sequence[str]) -> list[LawGroup]:
        """Groups of work of some rules, one a place.

        Parameters
        ----------
        settings : Settings
            With the plug-ins among the rules; how oracles are drawn is the set's own.
        rules : sequence of str
            As records have them.

        Returns
        -------
        list of LawGroup
            In the order of :attr:`places`.
        """
        return [self._group(each, settings, tuple(rules)) for each in self.places]

    def _group(self, place: Place, settings: Settings, rules: tuple[str, ...]) -> LawGroup:
        net, noise, inputs = self.nets[place.net], noise_of(place.noise), self.inputs[place.name]
        sampling = Sampling(place.samples, place.pilot_samples, place.sampler)
        asked = (Asked(self.name, place.metrics, rules),)
        label = noise.label(place.scale)
        subjects = tuple(
            Subject(oracle_key(net, x, label, place.sampler, place.samples), row, asked)
            for row, x in zip(place.rows, inputs, strict=True)
        )
        own = replace(settings, sampling=sampling, metrics={"cells": self.cells})
        return LawGroup(net, place.scale, subjects, inputs, own, noise)


def digest_of(folder: Path) -> str:
    """Hash of the names and contents of all files in a folder, 64 hexadecimal digits."""
    sha = hashlib.sha256()
    names = [PROBLEMS, ORACLES, INPUTS, *sorted(f"{NETS}/{each.name}" for each in (folder / NETS).iterdir())]
    for name in names:
        content = (folder / name).read_bytes()
        sha.update(f"{name} {len(content)}\n".encode() + content)
    return sha.hexdigest()


def folder_of(name: str) -> Path:
    """Folder of a set in the package."""
    return Path(__file__).with_name(name.replace("-", "_"))


@functools.cache
def problem_set(name: str = NAME) -> ProblemSet:
    """Set of that name, as it comes with the package.

    Parameters
    ----------
    name : str

    Returns
    -------
    ProblemSet

    Raises
    ------
    UserError
        If there is none, or a file of it is missing or was changed.
    """
    if name not in DIGESTS:
        raise UserError(f"unknown problem set '{name}'; choose from {', '.join(DIGESTS)}")
    return read(folder_of(name), DIGESTS[name])


def read(folder: Path, digest: str | None = None) -> ProblemSet:
    """Set in a folder.

    Parameters
    ----------
    folder : Path
    digest : str, optional
        That it must have.

    Returns
    -------
    ProblemSet

    Raises
    ------
    UserError
        If a file is missing or damaged, or it has another digest.
    """
    try:
        found = digest_of(folder)
        if digest not in (None, found):
            raise UserError(
                f"the problem set in {folder} is not the one of its name: its digest is {found[:16]}, not "
                f"{str(digest)[:16]}; install the package again"
            )
        written = structure(files.read_json(folder / PROBLEMS), _Written)
        nets = {
            path.stem: net_from_bytes(path.read_bytes(), "committed")
            for path in sorted((folder / NETS).iterdir())
        }
        inputs = load((folder / INPUTS).read_bytes())
    except OSError as error:
        raise UserError(f"the problem set in {folder} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"the problem set in {folder} is damaged: {error}") from error
    truths = {truth.key: truth for truth in manifests.load(folder / ORACLES)}
    return ProblemSet(written.name, written.cells, written.places, nets, inputs, found, truths)


class Clipped(Oracle):
    """An oracle whose samples are clipped at quantiles of its pilot, so that heavy tails have moments.

    What is kept of a law without a variance is kept of this one: a change of the law between the quantiles,
    or of how much of it is beyond them, shows as it does elsewhere.
    """

    @functools.cached_property
    def bounds(self) -> tuple[Tensor, Tensor]:
        """Where each output is clipped, below and above; of shape (m,)."""
        seed = self.key.seed("bounds")
        values = super()._draw(min(2**16, self.sampling.pilot_samples), seed, "mc").double()
        low, high = torch.quantile(values, torch.tensor([_TRIMMED, 1 - _TRIMMED], dtype=values.dtype), dim=0)
        return low, high

    def _draw(self, samples: int, seed: int, sampler: Sampler) -> Tensor:
        drawn = super()._draw(samples, seed, sampler)
        low, high = (bound.to(drawn.dtype) for bound in self.bounds)
        return drawn.clamp(low, high)

    @functools.cached_property
    def moments(self) -> Moments:
        """See `Oracle`: of the clipped samples."""
        return Moments.from_samples(self.samples, independent_blocks(self.sampler))


def oracle_of(group: LawGroup, place: int, net: nn.Module | None = None) -> Oracle:
    """Oracle of a group's input, whose statistics are what a set keeps."""
    kind = Clipped if heavy_tailed(group.noise.example) else Oracle
    subject = group.subjects[place]
    return kind(net or group.net.build(), group.law[place], subject.key, group.settings.sampling)


@dataclass(frozen=True, kw_only=True)
class ProblemExperiment(Experiment):
    """Rules on the problems of a set.

    Attributes
    ----------
    problems : ProblemSet
    """

    problems: ProblemSet = field(repr=False)

    @classmethod
    def of(cls, problems: ProblemSet, rules: Sequence[str]) -> ProblemExperiment:
        """The experiment of a set, for some rules as records have them."""
        metrics = dict.fromkeys(each for place in problems.places for each in place.metrics)
        return cls(
            name=problems.name,
            description=f"the problems of {problems.name}",
            metrics=tuple(metrics),
            rules=tuple(rules),
            paper=Size(),
            problems=problems,
        )

    def takes(self, option: str) -> bool:
        """See `Experiment`: rules and a device; all else is frozen."""
        return option in {"rules", "device"}

    @property
    def has_oracle(self) -> bool:
        """See `Experiment`."""
        return True

    def extent(self, settings: Settings) -> str:  # noqa: ARG002
        """See `Experiment`."""
        return f"{len(self.problems.problems)} problems at {len(self.problems.places)} places"

    def expand(self, scope: Scope) -> Expansion:
        """See `Experiment`: what a rule refuses it refuses when it is asked."""
        return Expansion(self.problems.groups(scope.settings, scope.settings.rules or self.rules))
