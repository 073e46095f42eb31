"""The command that trains an image classifier, with progress, and goes on where it was interrupted."""

from __future__ import annotations

import click


@click.command()
@click.argument("network", type=click.Choice(["resnet18", "cnn3"]))
@click.option("--dataset", type=click.Choice(["cifar10", "mnist"]), default="cifar10", show_default=True)
@click.option("--short", is_flag=True, help="The recipe for a CPU and minutes instead of the full one.")
@click.option("--epochs", type=int, help="Instead of the recipe's.")
@click.option("--batch-size", type=int, help="Instead of the recipe's.")
@click.option("--learning-rate", type=float, help="Instead of the recipe's.")
@click.option("--precision", type=click.Choice(["float32", "bfloat16"]), help="Instead of the recipe's.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--parts", help="Files of the training set, by commas; all that are there by default.")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, cuda:1 ...")
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads; torch's own choice by default.")
@click.option(
    "--minutes", type=click.FloatRange(min=0), help="Stop after so long; the same command goes on from there."
)
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
    """Train an image classifier and keep it in the cache.

    Its state is saved after every epoch and every two minutes; an interrupted training goes on from
    there. The images are downloaded, or taken from the folder that SDP_BENCH_DATA names; of a set
    that is there in part, that part is used, and the result says so.
    """
    import math
    from dataclasses import replace

    import torch

    from bench import classifiers, datasets, image_training
    from bench.errors import UserError
    from bench.networks import ImageArchitecture
    from sdp_bench.progress import meter

    if threads is not None:
        torch.set_num_threads(threads)
    try:
        torch.zeros(1, device=device)
        data = datasets.IMAGE_SETS[dataset]("train", tuple(parts.split(",")) if parts else None)
        recipe = classifiers.default_recipe(network, dataset, data.parts, short=short)
        given = {name: value for name, value in changes.items() if value is not None}
        recipe = replace(recipe, seed=seed, **given)  # type: ignore[arg-type]
    except (ValueError, RuntimeError, AssertionError) as error:  # torch has no error of its own for devices
        raise UserError(str(error).partition("\n")[0]) from error
    channels, size, _ = data.shape
    architecture = ImageArchitecture(network, channels, size)
    click.echo(f"{architecture.label}: {recipe.label}", err=True)
    click.echo(f"on {data.description}", err=True)
    click.echo(f"checkpoint {image_training.checkpoint_path(architecture, recipe)}", err=True)
    with meter("steps") as bar:
        net = image_training.get_classifier(
            architecture,
            recipe,
            device=device,
            budget=math.inf if minutes is None else 60 * minutes,
            report=bar.done,
        )
    click.echo(f"accuracy {net.accuracy:.4f} on {net.tested_on}")
    click.echo(f"trained in {net.seconds:.0f} s on {net.trained_on}")
    click.echo(
        f"{image_training.cache_folder() / classifiers.file_name(architecture, recipe)} ({net.source})"
    )
