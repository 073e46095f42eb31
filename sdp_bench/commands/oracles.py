"""The commands about manifests of oracles: record them, derive them again, show one."""

from __future__ import annotations

from pathlib import Path

import click

from sdp_bench.commands.options import Shard

_file = click.Path(dir_okay=False, path_type=Path)
_manifests = click.option(
    "--manifests", type=_file, help="File of manifests (default: the committed one of the CI cells)."
)


@click.group()
def oracles() -> None:
    """Manifests of oracles: method, seed, statistics, checks made, versions, hash."""


@oracles.command()
@_manifests
@click.option("--shard", type=Shard(), help="Part i of n, written i/n; by default each in its turn.")
def verify(manifests: Path | None, shard: tuple[int, int] | None) -> None:
    """Derive a part of the recorded oracles again; exit code 1 if one disagrees.

    Without --shard it is one of four parts, by GITHUB_RUN_NUMBER or the day of the year. On the platform
    that an oracle was recorded on its samples must be equal to the last bit, elsewhere up to
    rounding. Hashes are checked of all manifests, and that each CI cell has one.
    """
    from sdp_bench.bench.gate.oracles.manifest import MANIFESTS
    from sdp_bench.bench.gate.oracles.verify import verify as verify_oracles
    from sdp_bench.bench.gate.verdict import exit_code
    from sdp_bench.commands.progress import meter

    with meter("oracles") as bar:
        verdict = verify_oracles(manifests or MANIFESTS, shard, report=bar.done)
    for finding in verdict.findings:
        if finding.stops:
            click.echo(str(finding))
    click.echo(f"{verdict.summary}; {verdict.note}")
    raise SystemExit(exit_code([verdict]))


@oracles.command("record")
@_manifests
def record_(manifests: Path | None) -> None:
    """Record manifests of the oracles of all CI cells; an oracle that fails a check is refused."""
    from sdp_bench.bench.gate.oracles import manifest as oracle_manifest
    from sdp_bench.commands.progress import meter

    path = manifests or oracle_manifest.MANIFESTS
    made = []
    sources = oracle_manifest.ci_oracles()
    with meter("oracles") as bar:
        for done, source in enumerate(sources, 1):
            made.append(oracle_manifest.record(*source))
            bar.done(done, len(sources), made[-1].title)
    oracle_manifest.save(made, path)
    click.echo(f"{len(made)} manifests, all checks passed: {path}")


@oracles.command()
@click.argument("key")
@click.option("--database", type=_file, help="Results file, for an oracle of an ordinary run.")
@_manifests
@click.option(
    "--derive", is_flag=True, help="Draw an oracle of --database again, with statistics and checks."
)
def show(key: str, database: Path | None, manifests: Path | None, derive: bool) -> None:
    """Show the manifest of the oracle KEY, or of the one whose key begins so, as JSON.

    KEY is the first part of a measurement's key. Without --database it is one of the recorded oracles. The
    manifest of an ordinary run's oracle comes from what the results file keeps: key, sampler, samples,
    the seed that the key gives, and the run's versions.
    """
    from sdp_bench.bench.errors import UserError
    from sdp_bench.bench.gate.documents import as_text
    from sdp_bench.bench.gate.oracles import manifest as oracle_manifest
    from sdp_bench.bench.replay import oracles as stored_oracles
    from sdp_bench.bench.results.store import Store

    if database is None:
        if derive:
            raise click.UsageError(
                "--derive needs --database; `sdp-bench oracles verify` derives recorded ones"
            )
        stored = oracle_manifest.load(manifests or oracle_manifest.MANIFESTS)
        found = [manifest.as_dict() for manifest, _ in stored if manifest.key.startswith(key)]
        if len(found) != 1:
            raise UserError(f"{len(found) or 'no'} recorded oracles have a key that begins with '{key}'")
        shown = found[0]
    else:
        with Store(database) as store:
            shown = (
                stored_oracles.drawn_again(store, key).as_dict()
                if derive
                else stored_oracles.description(store, key)
            )
    click.echo(as_text(shown, lists_apart=True))
