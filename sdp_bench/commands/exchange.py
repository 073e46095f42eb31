"""The commands on results files: merge, export, import, compare, and measure one number again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sdp_bench.commands.options import FAILED, database, file_, folder_

if TYPE_CHECKING:
    from sdp_bench.bench.results.record import Record


@click.command()
@click.argument("sources", nargs=-1, required=True, type=file_, metavar="FILE...")
@click.option("-o", "--output", type=file_, required=True, help="New results file.")
def merge(sources: tuple[Path, ...], output: Path) -> None:
    """Put the results FILE... into a new one, unless they differ in a measurement."""
    from sdp_bench.bench.results.exchange import merge as merge_files

    click.echo(f"{merge_files(sources, output)} measurements in {output}")


@click.command("export")
@database
@click.option("-o", "--output", type=folder_, required=True, help="Folder of the tables.")
@click.option("--format", "fmt", default="csv", show_default=True, help="csv, csv.xz or parquet.")
@click.option("--weights/--no-weights", default=True, show_default=True, help="Keep the nets' weights.")
def export_(database: Path, output: Path, fmt: str, weights: bool) -> None:
    """Write a results file as plain tables with a manifest."""
    from sdp_bench.bench.results.exchange import export
    from sdp_bench.bench.results.store import Store

    with Store(database) as store:
        files = export(store, output, fmt, weights=weights)
    click.echo(f"{len(files)} files in {output}, {sum(f.stat().st_size for f in files) / 1e6:.1f} MB")


@click.command("import")
@click.argument("folder", type=folder_)
@database
def import_(folder: Path, database: Path) -> None:
    """Put the exported tables in FOLDER into a results file."""
    from sdp_bench.bench.results.exchange import import_ as import_tables
    from sdp_bench.bench.results.store import Store

    with Store(database, writing=True) as store:
        click.echo(f"{import_tables(folder, store)} new measurements in {database}")


@click.command()
@click.argument("a", type=file_)
@click.argument("b", type=file_)
def diff(a: Path, b: Path) -> None:
    """Compare two results files measurement by measurement."""
    from sdp_bench.bench.results.comparison import compare
    from sdp_bench.bench.results.store import Store

    with Store(a) as first, Store(b) as second:
        found = compare(first, second)
    click.echo(
        f"{found.equal} equal, {len(found.different)} different, {found.only_a} only in {a}, "
        f"{found.only_b} only in {b}"
    )
    if len(found.different):
        click.echo(found.different.head(20).to_string(index=False))


@click.command()
@click.argument("key")
@click.option("--trust-code", is_flag=True, help="Run the code of a plug-in rule stored with the results.")
@database
def replay(key: str, trust_code: bool, database: Path) -> None:
    """Make the measurement KEY (unit/rule/metric, see results.csv) again and compare."""
    import torch

    from sdp_bench.bench.replay.replay import identical
    from sdp_bench.bench.replay.replay import replay as replay_measurement
    from sdp_bench.bench.results.store import Store

    with Store(database) as store:
        torch.set_num_threads(store.threads_of(key))
        pairs = replay_measurement(store, key, click.echo, trusted=trust_code)
    equal = True
    for stored, again in pairs:
        equal &= identical(stored, again)
        name = f"{again.metric} {again.component or ''}".strip()
        click.echo(f"{name}\n  stored {_estimate(stored)}\n  again  {_estimate(again)}")
    click.echo("identical to the last bit" if equal else "DIFFERENT from what was stored")
    if not equal:
        raise SystemExit(FAILED)


def _estimate(record: Record) -> str:
    stderr, floor, floor95 = (
        "unknown" if number is None else f"{number:.4g}"
        for number in (record.stderr, record.floor, record.floor95)
    )
    return f"{record.value:.10g} +- {stderr}, floor {floor}, 95 % {floor95} [{record.unit_of_measure}]"
