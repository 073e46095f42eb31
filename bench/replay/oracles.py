"""The manifest of any oracle of a results file, from what the file keeps already.

A results file keeps of an oracle its key, the net's weights, and the run's settings and versions. Seeds come
from the key alone, so that nothing more needs to be stored to say how it was made, or to make it again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.identity.keys import SeedRoot, digest
from sdp_bench.bench.manifests import METHODS, Manifest, record
from sdp_bench.bench.metrics.oracle import Oracle
from sdp_bench.bench.metrics.references import ORACLE_AGAIN
from sdp_bench.bench.nets.net import net_from_bytes
from sdp_bench.bench.replay.stored import group_of, settings_of
from sdp_bench.bench.results.queries import Queries


def description(store: Queries, prefix: str) -> dict[str, Any]:
    """How an oracle of a results file was made, without drawing it again.

    Parameters
    ----------
    store : Queries
    prefix : str
        Key of the oracle (the first part of a measurement's key), or the beginning of one.

    Returns
    -------
    dict
        Key, net, input, sigma, method, sampler, samples, precision (where it was recorded) and seed; the
        metrics measured against it; what a second, independent oracle showed, where the run had one in the
        place of a rule; the run's versions; and a hash of all that.

    Raises
    ------
    UserError
        If no oracle or several have such a key.
    """
    rows = _rows(store, prefix)
    first = rows[0]
    key, run = str(first["unit"]), store.run(first["run"])
    again = [row for row in rows if row["rule"] == ORACLE_AGAIN.name]
    content = {
        "key": key,
        "net": first["net"],
        "input": first["input"],
        "sigma": first["sigma"],
        "method": METHODS[first["sampler"]],
        "sampler": first["sampler"],
        "samples": first["samples"],
        "precision": sorted({row["precision"] for row in rows if row["precision"]}),
        "seed": SeedRoot(key).seed("oracle"),
        "metrics": sorted({row["metric"] for row in rows}),
        "second draw": [
            {name: row[name] for name in ("metric", "component", "value", "floor95", "stderr")}
            for row in again
        ],
        "run": run.id,
        "versions": run.environment,
    }
    return {**content, "hash": digest(content)[:16]}


def drawn_again(store: Queries, prefix: str) -> Manifest:
    """Full manifest of an oracle of a results file: drawn again, with its checks.

    Parameters
    ----------
    store : Queries
    prefix : str
        As of :func:`description`.

    Returns
    -------
    Manifest

    Raises
    ------
    UserError
        If no oracle or several have such a key, or its noise has no moments.
    RunFailedError
        If the key cannot be met again, the weights are not kept, or a check fails.
    """
    first = _rows(store, prefix)[0]
    if first["weights"] is None:
        raise RunFailedError("these results were exported without the nets' weights; nothing to draw from")
    run = store.run(first["run"])
    # Rules change no oracle, and the code of a plug-in is not to be run for one.
    settings = replace(settings_of(run), rules=("sdp",))
    net = net_from_bytes(first["weights"], "stored")
    group, place = group_of(first["unit"], run, settings, net)
    oracle = Oracle(net.build(), group.law[place], group.subjects[place].key, group.settings.sampling)
    try:
        return record(group, place, oracle)
    except ValueError as error:
        raise UserError(f"oracle {oracle.key.hex}: {error}") from error


def _rows(store: Queries, prefix: str) -> list[dict[str, Any]]:
    rows = [row for row in store.find(prefix) if row["net"]]
    found = sorted({str(row["unit"]) for row in rows})
    if not found or not prefix:
        raise UserError(f"no oracle has a key that begins with '{prefix}'; results.csv lists them")
    if len(found) > 1:
        raise UserError(f"'{prefix}' begins the keys of {len(found)} oracles: {', '.join(found[:5])} ...")
    return rows
