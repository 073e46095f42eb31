"""Commands about trained nets: train a classifier, try recipes, list and clear the cache."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sdp_bench import values
from sdp_bench.commands import echo, options
from sdp_bench.commands.options import option

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sdp_bench.bench.nets.architectures import Architecture, ClassifierArchitecture
    from sdp_bench.bench.nets.classifiers import ImageRecipe
    from sdp_bench.bench.nets.recipes import Recipe


@options.command(example="sdp-bench train resnet8 --dataset mnist --short")
@options.argument("network", values.WORD)
@option("--dataset", "Data set: cifar10, mnist, ...", default="cifar10")
@option("--short", "Use the short recipe (minutes on a CPU) instead of the full one.", values.FLAG)
@option("--epochs", "Number of epochs, instead of the recipe's.", values.COUNT)
@option("--batch-size", "Batch size, instead of the recipe's.", values.COUNT)
@option("--learning-rate", "Learning rate, instead of the recipe's.", values.POSITIVE)
@option("--precision", "Precision, instead of the recipe's.", values.Choice(("float32", "bfloat16")))
@option("--seed", "Random seed of weights and batches.", values.SEED, default=0)
@option("--parts", "Files of the training set, separated by commas (default: all available ones).")
@options.device
@option("--threads", "Number of CPU threads (default: chosen by torch).", values.WORKERS)
@option("--minutes", "Time budget in minutes; the same command resumes the training.", values.Real(0, 1e8))
def train(
    network: str,
    dataset: str,
    short: bool,
    seed: int,
    parts: str | None,
    device: str,
    threads: int | None,
    minutes: float | None,
    **changes: int | float | str | None,
) -> None:
    """Train a classifier of images or sequences and store it in the cache.

    The state is saved after every epoch and every two minutes; the same command resumes an interrupted
    training. Images are read from the folder SDP_BENCH_DATA, or downloaded. If only some files of a set are
    available, they are used, and the result names them.
    """
    import math

    import torch

    from sdp_bench.bench.environment import check_device
    from sdp_bench.bench.nets import classifiers, storage
    from sdp_bench.progress import Screen

    if threads is not None:
        torch.set_num_threads(threads)
    check_device(device)
    overrides = {name: value for name, value in changes.items() if value is not None}
    architecture, recipe, description = _training(
        network, dataset, parts.split(",") if parts else None, seed, overrides, short=short
    )
    echo(f"{architecture.label}: {recipe.label}", err=True)
    echo(f"on {description}", err=True)
    echo(f"checkpoint {classifiers.checkpoint_path(architecture, recipe)}", err=True)
    with Screen().meter("steps") as progress:
        net = classifiers.get_classifier(
            architecture,
            recipe,
            device=device,
            budget=math.inf if minutes is None else 60 * minutes,
            report=progress.done,
        )
    echo(f"accuracy {net.accuracy:.4f} on {net.tested_on}")
    echo(f"trained in {net.seconds:.0f} s on {net.trained_on}")
    echo(f"{storage.cache_folder() / classifiers.file_name(architecture, recipe)} ({net.source})")


def _training(
    network: str,
    dataset: str,
    parts: Sequence[str] | None,
    seed: int,
    overrides: Mapping[str, int | float | str],
    *,
    short: bool,
) -> tuple[ClassifierArchitecture, ImageRecipe, str]:
    """Architecture and recipe of a training, and the description of its data."""
    from dataclasses import replace

    from sdp_bench.bench import datasets
    from sdp_bench.bench.datasets.base import SplitClassification
    from sdp_bench.bench.errors import UserError
    from sdp_bench.bench.nets import classifiers
    from sdp_bench.bench.nets.architectures import architecture_of, network_of

    try:
        network_of(network)  # before its data are read
        examples = datasets.dataset(dataset, SplitClassification)
        data = examples.load("train", tuple(parts) if parts else None)
        architecture = architecture_of(network, data.shape)
        recipe = classifiers.default_recipe(network, dataset, data.parts, short=short)
        recipe = replace(recipe, seed=seed, **overrides)  # type: ignore[arg-type]
    except ValueError as error:
        raise UserError(str(error)) from error
    return architecture, recipe, data.description


@options.command(example="sdp-bench recipes --output recipes.csv --seeds 3")
@option("-o", "CSV table of the trials.", values.FILE, "--output", required=True)
@option("--seeds", "Seeds per architecture.", values.Whole(1, 1000), default=10)
def recipes(output: Path, seeds: int) -> None:
    """Try the training recipes on every architecture of the experiments, until one trains it."""
    import pandas as pd

    from sdp_bench.bench import files
    from sdp_bench.bench.experiments import PRESETS, experiments
    from sdp_bench.bench.nets.fully_connected import get_nets
    from sdp_bench.bench.nets.recipes import attempt
    from sdp_bench.bench.text import table
    from sdp_bench.progress import Screen

    files.check_writable(output)
    paper = PRESETS["paper"]
    architectures: dict[Architecture, None] = {}
    for experiment in experiments().values():
        architectures.update((architecture, None) for architecture, _ in experiment.kinds(paper))
    trials = []
    with Screen().meter("recipes") as progress:
        for count, architecture in enumerate(architectures, 1):

            def accuracies(recipe: Recipe, architecture: Architecture = architecture) -> list[float]:
                return [net.accuracy for net in get_nets(architecture, recipe, range(seeds))]

            trials += attempt(architecture, accuracies)
            text = f"{architecture.activation} {architecture.label}: {trials[-1].recipe.label}"
            progress.done(count, len(architectures), text)
    files.write(output, table(pd.DataFrame(trials)).to_csv(index=False))
    echo(f"{len(trials)} trials in {output}")


@click.group(cls=options.CommandGroup)
def cache() -> None:
    """List or clear the cache: trained nets, checkpoints, and pages of the committed results."""


@cache.command("list", example="sdp-bench cache list")
def cache_list() -> None:
    """List the cached nets, checkpoints and pages with their sizes."""
    from sdp_bench.bench.nets import storage
    from sdp_bench.reports.folder import kept_pages

    nets, pages = storage.cached_files(), kept_pages()
    for path in (*nets, *pages):
        echo(f"{path.stat().st_size / 1e3:8.0f} kB  {path.name}")
    echo(f"{_counted(nets, pages)} in {storage.cache_folder().parent}")


@cache.command("clear", example="sdp-bench cache clear")
def cache_clear() -> None:
    """Remove the cached nets, checkpoints and pages; later commands train or write them again.

    Files that sdp-bench did not write are kept.
    """
    from sdp_bench.bench.files import writing
    from sdp_bench.bench.nets import storage
    from sdp_bench.reports.folder import kept_pages

    nets, pages = storage.cached_files(), kept_pages()
    with writing(storage.cache_folder().parent):
        for path in (*nets, *pages):
            path.unlink(missing_ok=True)
    echo(f"removed {_counted(nets, pages)} from {storage.cache_folder().parent}")


def _counted(nets: list[Path], pages: list[Path]) -> str:
    from sdp_bench.reports.style.labels import plural

    return f"{plural(len(nets), 'net file')} and {plural(len(pages), 'page')}"
