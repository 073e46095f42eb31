"""The command ``sdp-bench validate``: a new rule checked, measured and put on a scorecard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sdp_bench.commands.options import (
    BAD_VERDICT,
    FAILED,
    Rules,
    at_most,
    at_most_cores,
    command,
    config,
    count,
    depths_,
    file_,
    folder_,
    jobs,
    noise,
    seconds,
    sigmas_,
    word,
)
from sdp_bench.commands.screen import echo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sdp_bench.bench.experiments import Experiment
    from sdp_bench.bench.nets.own.net import OwnNet
    from sdp_bench.bench.plugins.plugin import Plugin
    from sdp_bench.bench.results.store import Store
    from sdp_bench.bench.settings import Settings
    from sdp_bench.reports.results import Results
    from sdp_bench.reports.scorecard.candidate import Candidate

SCORECARD = Path("reports/html/scorecard")
DATABASE = Path("validate.sqlite")
KIT_LIMIT = 600.0  # s
GROUP_LIMIT = 1800.0  # s


@command()
@click.argument("rules", type=word, nargs=-1, metavar="RULE...")
@click.option(
    "--net",
    "net_address",
    type=word,
    metavar="FILE.py:build",
    help="Measure on this net of yours instead; or a file: .pt2 (torch.export), .pt (TorchScript), .onnx.",
)
@click.option(
    "--inputs", "inputs_file", type=file_, help="Its inputs: x.npy, shape (B, *event), or several in x.npz."
)
@click.option("--net-input", type=word, metavar="NAME", help="Name or place (0, 1 ...) of the noisy input.")
@click.option(
    "--net-output", type=word, metavar="NAME", help="Key, field or place of the output to take: logits, 0 ..."
)
@click.option("--rows", type=count, help="Take the first so many inputs only.")
@click.option("--sigma", "sigmas", type=sigmas_, help="Noise levels: 0.1,1 (needed with --net).")
@noise
@click.option(
    "--experiment",
    "experiments",
    type=word,
    multiple=True,
    help="Experiments to run instead of the default cells.",
)
@click.option("--preset", type=word, default="quick", show_default=True, help="smoke, quick or paper.")
@click.option("--depth", "depths", type=depths_, help="Hidden layers of the nets [default: 1,2,4].")
@click.option("--activation", type=word, help="Activation of the nets: relu, gelu, tanh ...")
@click.option("--nets", type=click.IntRange(1, 10_000), help="Nets of each depth [default: 3; smoke: 1].")
@click.option("--rules", "beside", type=Rules(), help="Rules to stand beside, instead of all built-in ones.")
@click.option("--samples", type=at_most(10**8), help="Samples of each oracle and of each prediction.")
@click.option("--w1-points", type=at_most(20_000), help="Points a side of W1.")
@click.option("--conformance/--no-conformance", default=True, help="Run the conformance kit first.")
@click.option("--kit-limit", type=seconds, default=KIT_LIMIT, show_default=True, help="Seconds it may take.")
@click.option(
    "--group-limit", type=seconds, default=GROUP_LIMIT, show_default=True, help="Seconds a group may take."
)
@jobs
@click.option("--database", type=file_, default=DATABASE, show_default=True, help="Results file.")
@click.option(
    "--output",
    type=folder_,
    default=SCORECARD,
    show_default=True,
    help="Folder of the page.",
)
@config()
def validate(
    rules: tuple[str, ...],
    net_address: str | None,
    inputs_file: Path | None,
    rows: int | None,
    net_input: str | None,
    net_output: str | None,
    conformance: bool,
    kit_limit: float,
    jobs: int | None,
    group_limit: float,
    database: Path,
    output: Path,
    **chosen: Any,
) -> None:
    """Check RULE... and compare it with the built-in rules, in one command and on one page.

    RULE is path/to/my_rule.py:MyRule, package.module:MyRule, an installed entry point, or a built-in rule.
    The conformance kit runs first, then the rule on small nets beside all built-in rules (Iris nets of 1, 2
    and 4 ReLU layers, 10^6 samples), or on a net of yours (--net). Without RULE, --net compares the built-in
    rules on that net.

    A rule on which the kit hangs or dies is not measured; the others are.

    What was found stands on standard output, a line for each thing and the verdict of each rule, or of the
    net, last; the page has the same words beside all numbers. Progress goes to standard error.

    Exit code: 2 for bad input; else 1 if the rule fails a check that it does not declare as a known fault, or
    the kit ran and had no check that could run on it, whatever else there was; else 3 if it, or anything,
    failed to run, or nothing was measured of it; else 0.
    """
    from dataclasses import replace

    from sdp_bench.bench.environment import cores
    from sdp_bench.bench.errors import UserError
    from sdp_bench.bench.executors.local import Limits, LocalProcesses
    from sdp_bench.bench.experiments.laws import canonical_rules
    from sdp_bench.bench.files import check_writable
    from sdp_bench.bench.plugins.asking import limited
    from sdp_bench.bench.results.store import Store
    from sdp_bench.bench.runs.driver import Request, nets_of, run
    from sdp_bench.commands.progress import Screen, command_line
    from sdp_bench.reports.folder import check
    from sdp_bench.reports.parts import PAGE
    from sdp_bench.reports.results import results_of
    from sdp_bench.reports.scorecard.page import FILES, Scorecard, build

    if not rules and not net_address:
        raise UserError("name a rule, path/to/my_rule.py:MyRule, or a net, --net path/to/net.py:build")
    check(output, FILES)
    click.get_current_context().with_resource(limited(Limits(min(kit_limit, group_limit))))
    net, experiments, settings, notes = _plan(
        rules, net_address, inputs_file, (rows, net_input, net_output), chosen
    )
    plugins = settings.plugins
    tested = canonical_rules((settings.rules or ())[: len(_named(rules))], plugins)
    candidates = [_candidate(name, plugins) for name in tested]
    # What cannot be measured, or written, is told before the kit takes its time.
    check_writable(output / PAGE)
    jobs = at_most_cores(jobs)
    screen, workers = Screen(), jobs or cores()
    nets = nets_of(experiments, settings, workers, screen) if net is None else [net]
    if conformance:
        candidates = [_conformed(each, plugins, kit_limit) for each in candidates]
    # What hangs or dies in the kit would do so in the driver too.
    stuck = {each.name for each in candidates if each.trouble}
    request = Request(experiments, _without(settings, stuck), nets, command_line(), str(chosen["preset"]))
    failures = 0
    with Store(database, writing=True) as store:
        if not stuck or set(tested) - stuck:
            failures = run(store, request, jobs, lambda n, k: LocalProcesses(n, k, group_limit), screen)
            results = results_of(store)
        else:
            results = _before(store, candidates, plugins)
    measured = set(results.frame["rule"]) if len(results.frame) else set()
    candidates = [replace(each, unmeasured=each.name not in measured | stuck) for each in candidates]
    card = Scorecard.of(results, candidates, notes, own_net=net is not None)
    for verdict in card.verdicts:
        echo(verdict.details)
    echo(f"scorecard: {build(card, output)}")
    for verdict in card.verdicts:
        echo(verdict.last)
    _end(candidates, is_whole=not (failures or stuck))


def _end(candidates: list[Candidate], *, is_whole: bool) -> None:
    """Leave with the exit code that the verdicts make."""
    if any(each.is_wrong for each in candidates):
        raise SystemExit(BAD_VERDICT)
    if not is_whole or any(each.unmeasured for each in candidates):
        raise SystemExit(FAILED)


def _plan(
    rules: tuple[str, ...],
    net_address: str | None,
    inputs_file: Path | None,
    taken: tuple[int | None, str | None, str | None],
    chosen: dict[str, Any],
) -> tuple[OwnNet | None, list[Experiment], Settings, list[str]]:
    """What is to be measured, all of it checked."""
    from sdp_bench.bench.errors import UserError
    from sdp_bench.bench.experiments import chosen as chosen_experiments
    from sdp_bench.bench.experiments import own_net as cells
    from sdp_bench.bench.experiments.presets import preset
    from sdp_bench.bench.nets.own import net as own

    given = {
        k: v for k, v in chosen.items() if v is not None and k not in ("experiments", "preset", "beside")
    }
    smoke = chosen["preset"] == "smoke"
    if net_address is None:
        if inputs_file is not None or any(each is not None for each in taken):
            raise UserError("--inputs, --rows, --net-input and --net-output go with --net")
        if not chosen["experiments"]:
            given = {"depths": cells.DEPTHS} | ({} if smoke else {"nets": cells.NETS}) | given
    elif inputs_file is None:
        raise UserError("--net needs --inputs: x.npy, an array of shape (B, *event)")
    elif chosen["experiments"] or {"depths", "activation", "nets"} & set(given):
        raise UserError(
            "--experiment, --depth, --activation and --nets are for the experiments' own nets, not --net"
        )
    beside = chosen["beside"] or cells.BESIDE
    settings = preset(chosen["preset"], given | {"rules": (*_named(rules), *beside)})
    if net_address is None or inputs_file is None:
        experiments = chosen_experiments(chosen["experiments"] or cells.EXPERIMENTS)
        for each in experiments:
            each.check(settings)
        return None, experiments, settings, _on_noise(experiments, settings)
    net = own.find(net_address, inputs_file, *taken)
    experiment, settings, notes = cells.own_experiment(net, settings)
    for note in notes:
        echo(note, err=True)
    experiment.check(settings)
    return net, [experiment], settings, [*notes, *_on_noise([experiment], settings)]


def _on_noise(experiments: Sequence[Experiment], settings: Settings) -> list[str]:
    """What there is to say of the noise, for the page: the driver of the run says it too."""
    from sdp_bench.bench.experiments.laws import LawExperiment

    laws = [each for each in experiments if isinstance(each, LawExperiment)]
    families = dict.fromkeys(noise for each in laws for noise in each.families(settings))
    return [noise.note for noise in families if noise.note]


def _named(rules: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(rules))


def _candidate(name: str, plugins: tuple[Plugin, ...]) -> Candidate:
    from sdp_bench.bench.plugins.plugin import plugin_of
    from sdp_bench.reports.scorecard.candidate import Candidate

    plugin = plugin_of(name, plugins)
    if plugin is None:
        return Candidate(name)
    return Candidate(name, plugin.address, plugin.code.source, plugin.mark)


def _conformed(candidate: Candidate, plugins: tuple[Plugin, ...], limit: float) -> Candidate:
    """The rule with the conformance kit's report, or why there is none."""
    from dataclasses import replace

    from sdp_bench.bench.errors import one_line
    from sdp_bench.bench.executors.local import Limits
    from sdp_bench.bench.runs.conformance import conformance

    echo(f"conformance kit on {candidate.name}", err=True)
    try:
        report = conformance(candidate.name, plugins, Limits(limit))
    except Exception as error:  # noqa: BLE001  a rule may raise anything, and the kit's process may die of it
        return replace(candidate, trouble=one_line(error))
    echo(f"{candidate.name}: {report.summary}", err=True)
    return replace(candidate, report=report)


def _without(settings: Settings, stuck: set[str]) -> Settings:
    """Settings without some plug-in rules."""
    from dataclasses import replace

    if not stuck:
        return settings
    rules = tuple(rule for rule in settings.rules or () if rule not in stuck)
    return replace(settings, rules=rules, plugins=tuple(p for p in settings.plugins if p.name not in stuck))


def _before(store: Store, candidates: list[Candidate], plugins: tuple[Plugin, ...]) -> Results:
    """What was measured before, as the newest run shows it, if these rules were measured as they are now."""
    from dataclasses import replace

    import pandas as pd

    from sdp_bench.bench.experiments.fingerprints import are_current
    from sdp_bench.commands.progress import command_line
    from sdp_bench.reports.results import Results, results_of

    names = {each.name for each in candidates}
    if store.runs():
        results = results_of(store)
        frame = results.frame[are_current(results.frame, names, plugins)]
        if names & set(frame["rule"]):
            return replace(results, frame=frame)
    return Results(pd.DataFrame(), {"command": command_line()})
