"""The nets that results speak of: from their weights, or by their recipe where that gives the same again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, as_completed

from sdp_bench.bench.experiments.costs import training_seconds
from sdp_bench.bench.nets.architectures import NETWORKS, Architecture
from sdp_bench.bench.nets.fully_connected import TrainedNet, committed, get_nets, missing
from sdp_bench.bench.nets.net import Net, kept_classifiers, net_from_bytes
from sdp_bench.bench.nets.own.net import OwnNet
from sdp_bench.bench.nets.recipes import Recipe
from sdp_bench.bench.results.record import StoredNet
from sdp_bench.bench.runs.driver import Progress

_OWN = "it is a net of a user's, whose code is not stored as trusted; `sdp-bench validate --net` measures it"
_OTHER = "trained again by its recipe it comes out otherwise here (the processor's kernels differ)"
_NO_RECIPE = "its weights are not stored, and its recipe is for none of today's nets"
_CLASSIFIER = "its weights are not stored, and no such net is in the cache (training one takes hours)"


def nets_again(
    stored: Iterable[StoredNet], make_executor: Callable[[], Executor], progress: Progress
) -> tuple[dict[str, Net], dict[str, str]]:
    """Nets by their digests.

    One whose weights are not stored is taken from those committed with the package or from the cache, or is
    trained by its recipe, all seeds of a kind together. It counts only if its digest is the same.

    Parameters
    ----------
    stored : iterable of StoredNet
    make_executor : callable
        Called if nets have to be trained.
    progress : Progress

    Returns
    -------
    nets : dict of str to Net
    reasons : dict of str to str
        Why the others are not to be had.
    """
    found: dict[str, Net] = {}
    reasons: dict[str, str] = {}
    kinds: dict[tuple[Architecture, Recipe], list[StoredNet]] = {}
    for each in stored:
        if each.weights is None and (kind := _kind(each)):
            kinds.setdefault(kind, []).append(each)
            continue
        net = _from_weights(each.weights) if each.weights is not None else _classifier(each)
        if isinstance(net, str):
            reasons[each.digest] = net
        else:
            found[each.digest] = net
    for kind, those in kinds.items():
        digests = {each.digest for each in those}
        nets = committed(*kind, 1 + max(each.seed for each in those))
        found |= {net.digest: net for net in nets if net.digest in digests}
    absent = {kind: [each for each in those if each.digest not in found] for kind, those in kinds.items()}
    seeds = {kind: sorted({each.seed for each in those}) for kind, those in absent.items() if those}
    trained = {net.digest: net for net in _trained(seeds, make_executor, progress)}
    for each in (each for those in absent.values() for each in those):
        if each.digest in trained:
            found[each.digest] = trained[each.digest]
        else:
            reasons[each.digest] = _OTHER
    return found, reasons


def _from_weights(weights: bytes) -> Net | str:
    """A net from its weights, or why not."""
    try:
        net = net_from_bytes(weights, "stored")
    except ValueError as error:
        return f"its stored weights are damaged: {error}"
    return _OWN if isinstance(net, OwnNet) else net


def _kind(stored: StoredNet) -> tuple[Architecture, Recipe] | None:
    """Architecture and recipe of a fully connected net; None of any other."""
    try:
        widths = [int(width) for width in stored.network.split("-")]
        architecture = Architecture(stored.depth, stored.activation, widths[1], widths[0], widths[-1])
        recipe = Recipe(**stored.recipe)
    except (ValueError, TypeError, IndexError):
        return None
    return (architecture, recipe) if architecture.label == stored.network else None


def _classifier(stored: StoredNet) -> Net | str:
    """A classifier of the package or from the cache, or why not."""
    if stored.activation not in NETWORKS:
        return _NO_RECIPE
    for source in ("committed", "cache"):
        for net in kept_classifiers(stored.activation, source):
            if net.digest == stored.digest:
                return net
    return _CLASSIFIER


def _trained(
    wanted: Mapping[tuple[Architecture, Recipe], list[int]],
    make_executor: Callable[[], Executor],
    progress: Progress,
) -> list[TrainedNet]:
    """Nets of some seeds, from the cache or trained."""
    absent = {kind: missing(*kind, seeds) for kind, seeds in wanted.items()}
    costs = {(a, r): training_seconds(a, r.epochs, len(absent[a, r])) for (a, r) in wanted if absent[a, r]}
    nets: list[TrainedNet] = []
    for kind, seeds in wanted.items():
        if kind not in costs:
            nets += get_nets(*kind, seeds)
    if not costs:
        return nets
    progress.say(f"training {sum(map(len, absent.values()))} nets of {len(costs)} kinds by their recipes")
    executor = make_executor()
    try:
        with progress.meter("kinds of net") as meter:
            queue = sorted(costs, key=lambda kind: -costs[kind])
            futures = {executor.submit(get_nets, *kind, wanted[kind]): kind for kind in queue}
            spent = 0.0
            for count, future in enumerate(as_completed(futures), 1):
                architecture, recipe = futures[future]
                nets += future.result()
                spent += costs[architecture, recipe]
                label = f"{architecture.activation} {architecture.label}, {recipe.label}"
                meter.done(count, len(futures), label, spent / sum(costs.values()))
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
    return nets
