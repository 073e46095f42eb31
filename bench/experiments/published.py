"""The experiment on published nets: trained by others, with noise levels that their users have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import RunFailedError, UserError
from ..lazy import pd
from ..noise import noise_of
from ..results.folder import LeftOut
from ..settings import Settings, Size
from .base import Experiment, Group, Plan
from .laws import COMPARED_RULES, canonical_rules

if TYPE_CHECKING:
    from ..nets.net import Net
    from ..nets.own.net import OwnNet
    from ..published import PublishedNet

NAME = "published"
_MANY_INPUTS = 1000
_SLOW_RULES = ("unscented", "low_rank")
"""Rules that take up to a minute for an input with more components: twice as many passes, or wide factors."""
_WIDE = 6000
_MATRIX_RULES = ("moment_matching",)
"""Rules with matrices above their limit of 4 GiB for a value with more components, often after minutes."""


@dataclass(frozen=True, kw_only=True)
class PublishedExperiment(Experiment):
    """Rules on published nets; each net has those of the metrics that suit its number of outputs."""

    def takes(self, option: str) -> bool:
        """Return whether it has an option: nets, their noise and their levels are fixed."""
        return option in {"rules", "slow_rules", "device", "inputs", "samples"}

    def extent(self, settings: Settings) -> str:
        size = self.size(settings)
        inputs = size.inputs or 1
        counts = f"{inputs} inputs, {_fewer(inputs)} for slow nets"
        return f"{size.nets} nets of installed packages; {counts}; 3 noise levels for each net"

    def check(self, settings: Settings) -> None:
        canonical_rules(settings.rules or self.rules, settings.plugins)

    def plan(self, settings: Settings, nets: Sequence[Net]) -> Plan:  # noqa: ARG002
        """Return the work on all nets that are installed; it lists the others as left out.

        A UserError is raised if none is installed.
        """
        from ..published import NotInstalledError, install_command, published_nets

        parts: list[pd.DataFrame] = []
        groups: dict[str, Group] = {}
        left_out: list[LeftOut] = []
        not_installed: dict[str, PublishedNet] = {}
        for name, published in published_nets().items():
            try:
                plan = self._plan_of(published, settings)
            except NotInstalledError:
                not_installed[name] = published
                continue
            except (UserError, RunFailedError) as error:
                left_out.append(LeftOut(None, f"published:{name}", str(error)))
                continue
            parts.append(plan.rows)
            groups |= plan.groups
            left_out += plan.left_out
        # One line for all of them, with one command.
        reason = f"{', '.join(not_installed)}: packages missing or of another version; "
        reason += install_command(not_installed)
        left_out += [LeftOut(None, f"published:{name}", reason) for name in not_installed]
        if not parts:
            reasons = dict.fromkeys(line.reason for line in left_out)
            raise UserError(f"no published net can be measured: {'; '.join(reasons)}")
        return Plan(pd.concat(parts, ignore_index=True), groups, tuple(left_out))

    def _plan_of(self, published: PublishedNet, settings: Settings) -> Plan:
        from .own_net import own_experiment

        size = self.size(settings)
        net = examined(published, _inputs_of(published, settings, size))
        noise, design = noise_of(published.noise), settings.design
        most = min(settings.sampling.samples, size.samples or published.samples)
        samples = design.samples or min(published.samples, most)
        design = replace(design, noise=noise, sigmas=published.sigmas, samples=samples)
        # A pilot of the default size would take most of the time of a net with few samples.
        pilot_samples = min(settings.sampling.pilot_samples, samples)
        sampling = replace(settings.sampling, pilot_samples=pilot_samples)
        experiment, fitted, _ = own_experiment(net, replace(settings, design=design, sampling=sampling))
        metrics = tuple(metric for metric in experiment.metrics if metric in self.metrics)
        rules = settings.rules or self.rules
        left_out = []
        if not settings.slow_rules:
            skipped = [rule for rule in _slow_rules(net) if rule in rules]
            where = f"published:{published.name}"
            # One line for all rules of a net, which a run prints once.
            reason = f"--slow-rules also runs {', '.join(skipped)} on {where}, slow or too large for memory"
            left_out = [LeftOut(rule, where, reason) for rule in skipped]
            rules = tuple(rule for rule in rules if rule not in skipped)
        plan = replace(experiment, metrics=metrics, rules=rules).plan(fitted, [net])
        rows = plan.rows.assign(experiment=self.name)
        return replace(plan, rows=rows, left_out=(*left_out, *plan.left_out))


def _inputs_of(published: PublishedNet, settings: Settings, size: Size) -> int | None:
    """Return the number of inputs to measure, unless a number is given half as many for slow nets."""
    if published.is_slow and size.inputs and not settings.design.inputs:
        return _fewer(size.inputs)
    return size.inputs


def _fewer(inputs: int) -> int:
    return max(1, inputs // 2)


def _slow_rules(net: OwnNet) -> tuple[str, ...]:
    """Return the rules that only --slow-rules runs on a net."""
    many_inputs = _SLOW_RULES if net.inputs[0].numel() > _MANY_INPUTS else ()
    return many_inputs + (_MATRIX_RULES if net.widest > _WIDE else ())


def examined(published: PublishedNet, rows: int | None = None) -> OwnNet:
    """Return a published net with the first `rows` of its inputs, after a trial."""
    from ..nets.own.net import find

    return find(f"published:{published.name}", {"0": published.inputs()}, rows)


EXPERIMENT = PublishedExperiment(
    name=NAME,
    description="eleven published nets: audio, faces, EEG, aerodynamics, plasma, cosmology, traffic",
    title="Published nets",
    about="Nets that others trained, with realistic inputs and the noise that their users have.",
    rank=250,
    metrics=("tv_headline", "tv_principal", "tv_class", "std_ratio", "tails"),
    rules=(*COMPARED_RULES, "low_rank"),
    paper=Size(nets=11, inputs=10, on_request=True),
    presets={"smoke": Size(nets=11, inputs=1, samples=1000), "quick": Size(nets=11, inputs=2, samples=1000)},
)
