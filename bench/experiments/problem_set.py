"""The frozen problem set sdp-bench-1 as an experiment: nets, inputs and noise never change.

Its folder holds ``problems.json`` (nets, noise and metrics), ``oracles.json`` (statistics of the truth, with
the checks that admitted them), ``inputs.safetensors`` and a file for each net. An error in the set is
corrected in a new set, sdp-bench-2.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from ..identity import Sampler, Sampling, digest_of_files
from ..lazy import pd
from ..noise import noise_of
from ..settings import Settings, Size, tuples
from .base import Experiment, Group, Plan
from .laws import FULL_RULES, MARGINAL_RULES, canonical_rules, rows_of

if TYPE_CHECKING:
    from torch import Tensor

    from ..nets.net import Net

NAME = "sdp-bench-1"
FOLDER = Path(__file__).parents[1] / "problems/sdp_bench_1"
DIGEST = "f87a74f44e17deb1dd69bcadc4d2ef31ce3ba2e0758601b27af7c60b5c18a546"
"""Hash over all files of the set; a folder with another hash is refused."""

PROBLEMS, ORACLES, INPUTS, NETS = "problems.json", "oracles.json", "inputs.safetensors", "nets"
METRICS = (
    "tv_class",
    "coverage",
    "std_ratio",
    "tv_headline:cells=128,pilot_samples=131072",
    "crps",
    "tails:pilot_samples=131072",
    "tv_joint:cells=128,pilot_samples=131072",
    "quantile_mean",
    "tv_principal:cells=64,pilot_samples=8192",
)


@dataclass(frozen=True)
class Setting:
    """One net under one noise, with its inputs (rows of its data set) and the keys of their oracles."""

    name: str
    net: str
    noise: str
    scale: float
    sampler: Sampler
    samples: int
    pilot_samples: int
    rows: tuple[int, ...]
    metrics: tuple[str, ...]
    keys: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class ProblemSet:
    """The settings of a set, its nets by name, and the inputs of each setting, shape (inputs, *event)."""

    settings: tuple[Setting, ...]
    nets: Mapping[str, Net]
    inputs: Mapping[str, Tensor]


def digest_of(folder: Path) -> str:
    """Return the SHA-256 over names and contents of all files of a set."""
    files = [folder / PROBLEMS, folder / ORACLES, folder / INPUTS, *sorted((folder / NETS).iterdir())]
    return digest_of_files((folder, path) for path in files)


@functools.cache
def problem_set(folder: Path = FOLDER) -> ProblemSet:
    """Read the set; a UserError is raised if a file is missing or differs from the published set."""
    from safetensors.torch import load

    from ..nets.net import net_from_bytes

    try:
        digest = digest_of(folder)
        if digest != DIGEST:
            raise UserError(
                f"the problem set in {folder} differs from {NAME}: its digest is {digest[:16]}, not "
                f"{DIGEST[:16]}; reinstall sdp-bench"
            )
        written = json.loads((folder / PROBLEMS).read_text(encoding="utf-8"))
        nets = {
            path.stem: net_from_bytes(path.read_bytes(), "committed")
            for path in sorted((folder / NETS).iterdir())
        }
        inputs = load((folder / INPUTS).read_bytes())
    except OSError as error:
        raise UserError(
            f"the problem set in {folder} cannot be read: {error.strerror}; reinstall sdp-bench"
        ) from error
    names = [item.name for item in fields(Setting)]
    parts = [{name: values[name] for name in names} for values in written["places"]]
    return ProblemSet(tuple(Setting(**tuples(values)) for values in parts), nets, inputs)


@dataclass(frozen=True, kw_only=True)
class ProblemExperiment(Experiment):
    """Rules on the frozen problems."""

    def takes(self, option: str) -> bool:
        """Return whether it has an option: rules and a device; everything else is frozen."""
        return option in {"rules", "slow_rules", "device"}

    def size(self, settings: Settings) -> Size:  # noqa: ARG002
        """Return its only size; presets and options do not change it."""
        return self.paper

    def extent(self, settings: Settings) -> str:  # noqa: ARG002
        return "6 frozen nets, 22 settings (a net under Gaussian, Laplace or Cauchy noise), 66 problems"

    def check(self, settings: Settings) -> None:
        canonical_rules(settings.rules or self.rules, settings.plugins)

    def plan(self, settings: Settings, nets: Sequence[Net]) -> Plan:  # noqa: ARG002
        """Return a group for each setting; an entry is measured in full, with its slow rules."""
        from .law_group import LawGroup

        frozen = problem_set()
        rules = canonical_rules(settings.rules or self.rules, settings.plugins)
        parts: list[pd.DataFrame] = []
        groups: dict[str, Group] = {}
        for setting in frozen.settings:
            net, noise = frozen.nets[setting.net], noise_of(setting.noise)
            device = settings.sampling.device
            sampling = Sampling(setting.samples, setting.pilot_samples, setting.sampler, device)
            group = LawGroup.of(
                net,
                noise,
                setting.scale,
                setting.rows,
                frozen.inputs[setting.name],
                setting.samples,
                replace(settings, sampling=sampling),
            )
            groups[group.name] = group
            parts.append(rows_of(self.name, [group], setting.metrics, rules, settings.plugins))
        return Plan(pd.concat(parts, ignore_index=True), groups)


EXPERIMENT = ProblemExperiment(
    name=NAME,
    description="the frozen problem set of the leaderboard: nets, inputs and noise never change",
    title="The frozen problems of the leaderboard",
    about="Six nets under Gaussian, Laplace and Cauchy noise, with three inputs each; see docs/benchmark.md.",
    rank=300,
    metrics=METRICS,
    rules=(*FULL_RULES, *MARGINAL_RULES, "monte_carlo:samples=10", "monte_carlo:samples=100"),
    paper=Size(nets=6, inputs=3, on_request=True),
)
