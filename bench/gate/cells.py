"""The cases in which the gate compares rules: cells with an oracle, and probes without one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import nn

from sdp_bench.bench.experiments import ci
from sdp_bench.bench.experiments.law_group import LawGroup
from sdp_bench.bench.gate import probes
from sdp_bench.bench.gate.probes import Probe
from sdp_bench.bench.identity import OracleKey
from sdp_bench.bench.metrics.oracle import Oracle, independent_blocks
from sdp_bench.bench.metrics.references import ORACLE_MOMENTS
from sdp_bench.oracles.moments.moments import Moments
from sdp_ref.laws import Law


@dataclass(frozen=True, eq=False)
class Cell:
    """One input of a net under one noise."""

    group: LawGroup
    index: int  # of the input in the group

    @property
    def root(self) -> OracleKey:
        """Key of the oracle, from which the seeds of sampling rules are derived."""
        return self.group.subjects[self.index].key

    @property
    def key(self) -> str:
        return self.root.hex

    @property
    def name(self) -> str:
        """Display name: ``4-100-3 seed 0 sigma 0.1, row 42``."""
        return f"{self.group.title}, row {self.group.subjects[self.index].row}"

    @property
    def law(self) -> Law:
        """Law of the input, batch 1, float32."""
        return self.group.law[self.index]

    def build(self) -> nn.Module:
        """Return the net in float64, as in the experiments."""
        return self.group.net.build().double()

    def fresh_moments(self, draw: int) -> Moments:
        """Return the moments of fresh samples of its oracle, seeded by `draw`."""
        oracle = Oracle(self.group.net.build(), self.law, self.root, self.group.settings.sampling)
        return Moments.from_samples(oracle.redrawn(f"gate {draw}"), independent_blocks(oracle.sampler))


Case = Cell | Probe


@dataclass(frozen=True, eq=False)
class Scope:
    """The rules that are checked by default, and the cells and probes in which they are compared."""

    rules: tuple[str, ...]
    groups: tuple[LawGroup, ...]
    probes: tuple[Probe, ...]

    @classmethod
    def of_ci(cls) -> Scope:
        """Return the cells of continuous integration, and all probes."""
        # The cells do not depend on the rules, and a broken rule must not prevent their construction.
        return cls(ci.RULES, tuple(ci.groups([ORACLE_MOMENTS.name])), probes.probes())

    @cached_property
    def cells(self) -> dict[str, Cell]:
        cells = [Cell(group, index) for group in self.groups for index in range(len(group.subjects))]
        return {cell.key: cell for cell in cells}

    @cached_property
    def cases(self) -> dict[str, Case]:
        return {**self.cells, **{probe.key: probe for probe in self.probes}}

    @cached_property
    def nets(self) -> dict[str, LawGroup]:
        """The first group of each net, on which rules are timed, by display name: ``4-100-3 seed 0``."""
        found: dict[str, LawGroup] = {}
        for group in self.groups:
            found.setdefault(f"{group.net.architecture.label} seed {group.net.seed}", group)
        return found
