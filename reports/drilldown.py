"""Drill-down pages: the layers of a net in which the error of one measurement arises."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sdp_ref.errors import UnsupportedError

from ..bench import identity
from ..bench.errors import RunFailedError, UserError
from ..bench.metrics import primary, recorded_metric
from ..bench.metrics.total_variation import CellTotalVariation
from ..bench.results.columns import keys as keys_of
from .folder import inside, write, written
from .style.figure import Figure, look, panels
from .style.labels import listed, number
from .style.names import NetKind, RuleTraits, noise_symbol, noise_words
from .style.theme import LIGHT, shade
from .tables.tables import displayed
from .writing import rendered

if TYPE_CHECKING:
    from ..bench.progress import Meter
    from ..bench.replay.replay import StoredMeasurement

FOLDER = "drill-down"
MOST_PAGES = 100
"""Largest number of pages that one command makes; a page takes some 0.05 MB."""
DATABASE, REPORT = Path("results"), Path("reports/html")
"""Default paths of the commands."""

_KEY_START = r"[0-9a-f]{16}(?:/|$|,)"
_CAUSES = {
    "formula_at_output": ("rule error", "the rule’s own approximation", "#0072b2"),
    "dropped_at_output": ("dropped covariances", "covariances that the rule drops", shade("#e69f00", LIGHT)),
    "closure_at_output": ("closure error", "closure, because the law there is not Gaussian", "#d55e00"),
}
"""Label, description and colour of contributions to the error of the output."""
_NAMED = 0.75  # layers are named until they explain this share of the error
_NEARLY_ALL = 0.9
_SMALLEST_CAUSE = 0.1  # share from which a cause is named
_MUCH_ROUNDING = 0.1  # share of the error above which rounding is mentioned
_DRAWN = 1e-4  # share from which a cause is in the figure
_LABELS = 24  # largest number of layers with a label in the figure


def selected_keys(text: str, frame: pd.DataFrame) -> list[str]:
    """Return the keys of the measurements that an option selects: ``none``, ``worst:n`` or keys and commas.

    Keys contain commas too, but not before a unit. Raises UserError for anything else, and for more than
    :data:`MOST_PAGES` pages.
    """
    text = text.strip()
    if text == "none":
        return []
    if text.startswith("worst"):
        count = re.fullmatch(r"worst:([0-9]{1,9})", text)
        if count is None or not 1 <= int(count[1]) <= MOST_PAGES:
            raise UserError(f"'{text}': write worst:n, n from 1 to {MOST_PAGES}")
        return worst_keys(frame, int(count[1]))
    keys = re.split(rf",(?={_KEY_START})", text)
    if not all(re.match(r"[0-9a-f]{4,16}(/|$)", key) for key in keys):
        raise UserError(
            f"'{text}' is neither none, worst:n nor keys of measurements "
            "(unit/rule/metric, as in results.csv)"
        )
    if len(keys) > MOST_PAGES:
        raise UserError(f"{len(keys)} keys, but no more than {MOST_PAGES} drill-down pages are made")
    return list(dict.fromkeys(keys))


def worst_keys(frame: pd.DataFrame, count: int) -> list[str]:
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
    measurement_of: Callable[[str], StoredMeasurement],
    keys: Iterable[str],
    folder: Path,
    progress: Meter,
    traits: RuleTraits,
) -> list[Path]:
    """Write pages of measurements into a report's folder and return their paths; notes give failures.

    `measurement_of` finds a stored measurement by its key, or by a prefix that identifies a single key.
    Raises UserError, before any page is made, if a key is unknown, ambiguous, or of a measurement that has no
    drill-down.
    """
    from ..bench.replay.drilldown import rule_of

    folder = inside(folder, FOLDER)
    keys = sorted(set(keys))
    for key in keys:
        try:
            rule_of(measurement_of(key))
        except (RunFailedError, ValueError):
            pass  # reported when the page is made
        except UserError as error:
            raise UserError(f"no drill-down of {key}: {error}") from error
    paths = []
    for done, key in enumerate(keys):
        progress.done(done, len(keys), key)
        try:
            measurement = measurement_of(key)
            name = file_name(
                _key(measurement), ((row["component"], row["value"]) for row in measurement.rows)
            )
            paths.append(write(folder / name, page(measurement, traits, measurement.run.folder)))
        except (UserError, ValueError, UnsupportedError, RuntimeError, ArithmeticError) as error:
            progress.note(f"no drill-down of {key}: {_first_line(error)}")
        progress.done(done + 1, len(keys), key)
    return paths


def page(measurement: StoredMeasurement, traits: RuleTraits, database: Path = DATABASE) -> str:
    """Return the HTML page of a measurement.

    If no errors by layer exist, for example under noise without moments, the page gives the reason.
    """
    from ..bench.replay.drilldown import drilldown

    layers, reason = None, ""
    try:
        layers = drilldown(measurement)
    except (ValueError, UnsupportedError) as error:
        reason = _first_line(error)
    record, net = measurement.first, measurement.net
    rule = str(record["rule"])
    kind = NetKind(net.architecture.activation, net.architecture.depth)
    options = [] if database == DATABASE else ["--database", str(database)]
    noise = f"{noise_words(record['noise']) or 'Gaussian noise'} at {noise_symbol(record['noise'])}"
    setting = f"{traits.label(rule)}; {kind.label}; input {record['input']}; {noise} = {record['sigma']:g}"
    variables = {
        "record": record,
        "components": measurement.rows,
        "net": net,
        "kind": kind,
        "metric": displayed(str(record["metric_spec"]).partition(":")[0], kind),
        "symbol": noise_symbol(record["noise"]),
        "under": noise_words(record["noise"]),
        "key": _key(measurement),
        "command": shlex.join(["sdp-bench", "replay", _key(measurement), *options, *measurement.options]),
        "reason": reason,
        "verdict": "" if layers is None else verdict(layers, sampling=traits.is_sampling(rule)),
        "layers": [] if layers is None else layers.to_dict("records"),
        "output": {} if layers is None else layers.attrs,
        "figure": None if layers is None else _figure(layers, setting),
    }
    return rendered("drilldown.html", traits, variables)


def verdict(layers: pd.DataFrame, *, sampling: bool = False) -> str:
    """Return one or two sentences on the layers in which the error arises, and its causes.

    `layers` is from :func:`sdp_bench.bench.replay.drilldown.drilldown`. Shares are of the sum of all errors.
    No layer is named if the error is within the oracle's floor or its rounding. `sampling` says whether the
    rule's own error is that of its samples.
    """
    output = layers.attrs
    total, rounding = output["total"], output["rounding"]
    if layers["constant"].iloc[-1]:
        return "The outputs are constant up to rounding, so all errors of the output are rounding errors."
    shape = "Any other error is in the shape of the law."
    if total <= rounding:
        return (
            f"The error in mean and covariance of the output (distance {number(total)}) is within the "
            f"rounding error of the oracle (about {number(rounding)}), so no layer can be named. {shape}"
        )
    if total <= output["floor95"]:
        return (
            f"Mean and covariance of the output are indistinguishable from the exact ones (distance "
            f"{number(total)}, 95 % point of the floor {number(output['floor95'])}). {shape}"
        )
    shares = (layers[list(_CAUSES)].sum() / layers["at_output"].sum()).sort_values(ascending=False)
    causes = []
    for cause, share in shares[shares >= _SMALLEST_CAUSE].items():
        description = _CAUSES[str(cause)][1]
        if sampling and cause == "formula_at_output":
            description = "the sampling error of the rule"
        causes.append(f"{description} ({share:.0%})")
    text = f"The error arises {_layers_with_error(layers)}, by {listed(causes)}."
    if rounding >= _MUCH_ROUNDING * total:
        text += f" Rounding in the oracle may cause about {rounding / total:.0%} of it."
    return text.replace("%", "\u00a0%")


def _layers_with_error(layers: pd.DataFrame) -> str:
    largest = layers.sort_values("share", ascending=False, kind="stable")
    explained = largest["share"].cumsum()
    count = 1 + int((explained.iloc[:-1] < _NAMED).sum())
    if count > max(3, len(layers) // 3):
        return "in many layers"
    named = largest.head(count).sort_index()
    names = [f"{name} ({share:.0%})" for name, share in zip(named["layer"], named["share"], strict=True)]
    return f"{'in' if explained.iloc[count - 1] >= _NEARLY_ALL else 'mainly in'} {listed(names)}"


@look()
def _figure(layers: pd.DataFrame, setting: str) -> Figure:
    """Return stacked bars with the share of each layer and cause of the error of the output."""
    from matplotlib.patches import Patch

    names = list(layers["layer"])
    shares = layers[list(_CAUSES)] / layers["at_output"].sum()
    drawn = [cause for cause in _CAUSES if shares[cause].sum() > _DRAWN]
    legend = [Patch(facecolor=_CAUSES[cause][2], label=_CAUSES[cause][0]) for cause in drawn]
    drawing, (axes,) = panels([""], legend, width=4.6, height=2.2, below=0.3 + 0.05 * max(map(len, names)))
    bottom = np.zeros(len(names))
    for cause in drawn:
        axes.bar(range(len(names)), shares[cause], 0.7, bottom=bottom, color=_CAUSES[cause][2])
        bottom += shares[cause].to_numpy()
    step = math.ceil(len(names) / _LABELS)
    axes.set_xticks(
        range(0, len(names), step), names[::step], rotation=55, ha="right", rotation_mode="anchor"
    )
    axes.set(xlim=(-0.6, len(names) - 0.4), ylim=(0, None), ylabel="share of the error")
    axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
    axes.grid(visible=False, axis="x")
    return Figure(
        "figure-layers",
        "Error by layer",
        "Share of each layer in the error in mean and covariance of the output, by cause.",
        drawing,
        setting=setting,
    )


def file_name(key: str, values: Iterable[tuple[Any, Any]]) -> str:
    """Return the name of a measurement's page, from its key and its components and values."""
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


def command(key: str, database: Path, folder: Path) -> str:
    """Return the command that makes a drill-down for a report, without options that have their default."""
    options = [] if database == DATABASE else ["--database", str(database)]
    options += [] if folder == REPORT else ["--output", str(folder)]
    return shlex.join(["sdp-bench", "report", "--drill-down", key, *options])


def _key(measurement: StoredMeasurement) -> str:
    record = measurement.first
    return f"{record['unit']}/{record['rule']}/{record['metric_spec']}"


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
