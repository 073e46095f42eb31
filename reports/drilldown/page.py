"""Pages that show at which layer of a net the error of a rule enters."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sdp_ref.errors import UnsupportedError

from ...bench import identity
from ...bench.errors import UserError
from ...bench.metrics import primary, recorded_metric
from ...bench.metrics.total_variation import CellTotalVariation
from ...bench.results.columns import keys as keys_of
from ...bench.results.folder import Stored
from ...bench.results.joined import rules
from ..folder import inside, write, written
from ..style.labels import listed, number
from ..style.names import NetKind, RuleTraits, noise_symbol, noise_words
from ..tables.tables import displayed
from ..writing import rendered

if TYPE_CHECKING:
    from ...bench.plugins.plugin import Plugin
    from ...bench.progress import Meter
    from ...bench.replay.drilldown import Drilldown
    from ...bench.replay.error_by_layer import OutputErrors
    from ..style.figure import Figure

_BY = {
    "formula": "by the rule’s own approximation of a layer",
    "dropped": "by covariances that the rule drops",
    "closure": "by closure, the law there being no longer Gaussian",
}
_BY_SAMPLES = "by the draw of the rule’s samples"
_NEARLY_ALL, _MOST = 0.9, 0.6
_NAMED = 0.75  # layers are named until they explain this share
_WHOLE = 0.995
_MUCH_ROUNDING = 0.1  # of the error, above which it is mentioned

CONSTANT = (
    "The outputs are constant but for rounding: there is no spread to propagate, and what the figures show "
    "of the output is rounding."
)
"""Verdict if the output is constant."""


def verdict(output: OutputErrors, names: Sequence[str], *, sampling: bool = False) -> str:
    """Return one to three sentences on the sources of the error and the layers at which it enters.

    Shares are of the sum of all errors. No layer is named if the error is within the oracle's floor or its
    rounding. If the rule is `sampling`, its own error is that of few samples.
    """
    total = output.total
    if total.value <= output.rounding:
        return (
            f"The error in mean and covariance of the output (distance {number(total.value)}) is within what "
            f"rounding does to the oracle, in the precision in which it was drawn (about "
            f"{number(output.rounding)}): it tells of no layer. What error there is beyond is in the law’s "
            "shape."
        )
    if total.indistinguishable:
        return (
            f"Mean and covariance of the output cannot be told from the exact ones (distance "
            f"{number(total.value)}, 95 % point of the floor {number(total.floor95)}): what error there is "
            "is in the law’s shape."
        )
    by = _BY | ({"formula": _BY_SAMPLES} if sampling else {})
    entered = output.sum_of_parts
    shares = {kind: [v / entered for v in getattr(output, kind)] for kind in _BY}
    kinds = sorted(_BY, key=lambda kind: -sum(shares[kind]))
    first, share = kinds[0], sum(shares[kinds[0]])
    all_by_layer = [sum(shares[kind][k] for kind in _BY) for k in range(len(names))]
    if share >= _MOST:
        word = "Nearly all" if share >= _NEARLY_ALL else "Most"
        by_layer, statement = shares[first], f"{word} of the error enters {by[first]} ({share:.0%})"
    else:
        parts = " and ".join(f"{sum(shares[k]):.0%} {by[k]}" for k in kinds if sum(shares[k]) >= 0.1)
        by_layer, statement = all_by_layer, f"The error enters in more than one way: {parts}"
    text = f"{statement}, {_layers(by_layer, names)}."
    share = output.rounding / total.value
    if share >= _MUCH_ROUNDING:
        text += (
            " But rounding in the oracle, in the precision in which it was drawn, may be about "
            f"{share:.0%} of this error."
        )
    return text.replace("%", " %")


def _layers(shares: Sequence[float], names: Sequence[str]) -> str:
    whole = sum(shares)
    order = np.argsort(-np.array(shares), kind="stable").tolist()
    explained = np.cumsum(np.array(shares)[order]) / whole
    count = 1 + int((explained[:-1] < _NAMED).sum())
    chosen, covered = order[:count], float(explained[count - 1])
    if count > max(3, len(names) // 3):
        return "spread over many layers"
    if covered >= _WHOLE and len(chosen) == 1:
        return f"at {names[chosen[0]]}"
    text = listed([f"{names[k]} ({shares[k] / whole:.0%} of that)" for k in sorted(chosen)])
    return f"{'at' if covered >= _NEARLY_ALL else 'above all at'} {text}"


FOLDER = "drill-down"
MOST_PAGES = 100
"""Largest number of pages that one command makes; a page takes some 0.1 MB."""
DATABASE, REPORT = Path("results"), Path("reports/html")
"""Default paths of the commands."""

_TEMPLATE = Path(__file__).with_name("template.html")

_PERCENT = "\u00a0%"
_SUBJECT = r"[0-9a-f]{16}(?:/|$|,)"  # start of a key


def chosen(text: str, frame: pd.DataFrame) -> list[str]:
    """Return the keys of the measurements that an option selects: ``none``, ``worst:n`` or keys and commas.

    Keys contain commas too, but not before a unit. Raises UserError for anything else, and for more than
    :data:`MOST_PAGES` pages.
    """
    text = text.strip()
    if text == "none":
        return []
    if text.startswith("worst"):
        number = re.fullmatch(r"worst:([0-9]{1,9})", text)
        if number is None or not 1 <= int(number[1]) <= MOST_PAGES:
            raise UserError(f"'{text}': write worst:n, n from 1 to {MOST_PAGES}")
        return worst(frame, int(number[1]))
    keys_given = re.split(rf",(?={_SUBJECT})", text)
    if not all(re.match(r"[0-9a-f]{4,16}(/|$)", key) for key in keys_given):
        raise UserError(
            f"'{text}' is neither none, worst:n nor keys of measurements "
            "(unit/rule/metric, as in results.csv)"
        )
    if len(keys_given) > MOST_PAGES:
        raise UserError(f"{len(keys_given)} keys, but no more than {MOST_PAGES} drill-down pages are made")
    return list(dict.fromkeys(keys_given))


def worst(frame: pd.DataFrame, count: int) -> list[str]:
    """Return keys of the measurements farthest above their floor's 95 % point, spread over rules and noise.

    The worst measurement of each rule comes first, then the worst of each rule at its next noise level, and
    so on. Total variations are compared, since they share the scale from 0 to 1. References are skipped, and
    so are estimates from samples: their error depends on the number of samples.
    """
    measured = (name for name in primary() if (frame["metric"] == name).any())
    metric = next((name for name in measured if isinstance(recorded_metric(name), CellTotalVariation)), None)
    rows = frame[frame["metric"] == metric]
    rows = rows[~rows["reference"] & rows["sampling"].isna()]
    if metric is None or rows.empty:
        raise UserError(
            "worst:n compares total variations of rules, and none was measured; name keys instead"
        )
    rows = rows.assign(key=keys_of(rows), excess=rows["value"] - rows["floor95"]).drop_duplicates("key")
    rows = rows.sort_values(["excess", "key"], ascending=[False, True])
    rows["rank_at_noise"] = rows.groupby(["rule", "sigma"]).cumcount()
    rows["rank_over_noise"] = rows.groupby(["rule", "rank_at_noise"]).cumcount()
    rows = rows.sort_values(["rank_at_noise", "rank_over_noise"], kind="stable")
    return [str(key) for key in rows["key"].head(count)]


def make(
    store: Stored,
    requested: Sequence[str],
    folder: Path,
    progress: Meter,
    plugins: Sequence[Plugin] = (),
    nets: Sequence[str] = (),
) -> list[Path]:
    """Write pages of measurements into a report's folder and return their paths; notes give failures.

    `requested` are keys, or prefixes that identify a single key. `plugins` are rules of users, and `nets`
    addresses of their nets. Raises UserError, before any page is made, if a key is unknown, ambiguous, or of
    a measurement that has no drill-down.
    """
    from ...bench.replay.drilldown import check, drill

    folder = inside(folder, FOLDER)
    made: list[Path] = []
    traits = RuleTraits(rules(store))
    keys = sorted(set(requested))  # all rules of a unit in a row
    for key in keys:
        try:
            check(store, key, plugins, nets)
        except UserError as error:
            raise UserError(f"no drill-down of {key}: {error}") from error
    drilldown: Drilldown | None = None
    for done, key in enumerate(keys):
        progress.done(done, len(keys), key)
        try:
            drilldown = drill(store, key, plugins, nets, previous=drilldown)
            text = page(drilldown, traits, store.runs[str(drilldown.record["run"])].folder)
        except (UserError, ValueError, UnsupportedError, RuntimeError, ArithmeticError) as error:
            line = str(error).splitlines()[0] if str(error) else type(error).__name__
            progress.note(f"no drill-down of {key}: {line}")
        else:
            made.append(
                write(
                    folder
                    / file_name(drilldown.key, ((c["component"], c["value"]) for c in drilldown.components)),
                    text,
                )
            )
        progress.done(done + 1, len(keys), key)
    return made


def file_name(key: str, values: Iterable[tuple[Any, Any]]) -> str:
    """Name of the page of a measurement, by its key and its components and values."""
    unit, rule, metric = key.split("/", 2)
    words = re.sub(r"[^\w.-]+", "-", f"{rule}-{metric.partition(':')[0]}")
    results = sorted({(name or "", repr(float(value))) for name, value in values})
    return f"{unit}-{words}-{identity.digest([key, results])[:8]}.html"


def current_pages(folder: Path, frame: pd.DataFrame) -> dict[str, str]:
    """Return the existing pages of the measurements in a frame, as file names by key.

    Pages of measurements with another result are not among them, and stay in the folder.
    """
    existing = {name for name in written(folder) if (folder / name).is_file()}
    if not existing:
        return {}
    rows = frame[frame["unit"].isin({name.partition("-")[0] for name in existing})]
    pages = {
        str(key): file_name(str(key), zip(part["component"], part["value"], strict=True))
        for key, part in rows.groupby(keys_of(rows))
    }
    return {key: name for key, name in pages.items() if name in existing}


def page(drilldown: Drilldown, traits: RuleTraits, database: Path = DATABASE) -> str:
    """HTML text of one measurement's page; `database` is in the command that makes the page again."""
    from . import figures as drawings

    rule = str(drilldown.record["rule"])
    kind = NetKind(drilldown.net.architecture.activation, drilldown.net.architecture.depth)
    metric = displayed(str(drilldown.record["metric_spec"]).partition(":")[0], kind)
    options = [] if database == DATABASE else ["--database", str(database)]
    errors = drilldown.errors
    oracle, prediction = drilldown.oracle, drilldown.prediction
    names: list[str] = []
    output, scale, said = None, "", ""
    drawn: list[Figure | None] = []
    if errors is not None:
        names = drawings.layer_names(errors)
        # Total spread is dominated by the widest directions; metrics of equal-mass cells weight all equally.
        output, scale = errors.spread, "in units of the outputs’ total spread"
        if metric.whitens:
            output, scale = errors.whitened, "every principal direction of the outputs counting alike"
        said = verdict(output, names, sampling=traits.is_sampling(rule)).replace(" %", _PERCENT)
        said = CONSTANT if errors.layers[-1].constant else said
        drawn.append(drawings.by_layer(errors, output, scale))
    moments = None
    with contextlib.suppress(ValueError):  # heavy tails have none
        moments = prediction.gaussian, oracle.moments
    if moments:
        drawn.append(drawings.projections(oracle, prediction, rule, traits))
    drawn.append(drawings.quantile_differences(oracle, prediction))
    if moments:
        drawn.append(drawings.covariances(oracle, prediction))
    variables = {
        "drilldown": drilldown,
        "kind": kind,
        "metric": metric,
        "symbol": noise_symbol(drilldown.noise),
        "under": noise_words(drilldown.noise),
        "verdict": said,
        "errors": errors,
        "names": names,
        "output": output,
        "scale": scale,
        "command": shlex.join(["sdp-bench", "replay", drilldown.key, *options, *drilldown.options]),
        "figures": [figure for figure in drawn if figure is not None],
    }
    return rendered(_TEMPLATE, traits, variables)


def command(key: str, database: Path, folder: Path) -> str:
    """Command that makes a drill-down for the report in a folder; options with default values are omitted."""
    options = [] if database == DATABASE else ["--database", str(database)]
    options += [] if folder == REPORT else ["--output", str(folder)]
    return shlex.join(["sdp-bench", "report", "--drill-down", key, *options])
