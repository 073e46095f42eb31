"""Drill-down pages: one measurement each, made on demand and kept beside the report."""

from __future__ import annotations

import functools
import hashlib
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape, unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pandas as pd

from sdp_bench.bench import errors
from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.identity import keys
from sdp_bench.bench.metrics import primary, recorded_metric
from sdp_bench.bench.metrics.total_variation import CellTotalVariation
from sdp_bench.bench.results.queries import keys as keys_of
from sdp_bench.bench.results.store import Store
from sdp_bench.bench.rules import is_address
from sdp_bench.reports.drilldown.words import CONSTANT, errors_as_seen, verdict
from sdp_bench.reports.folder import tags, write
from sdp_bench.reports.style import labels, noise
from sdp_bench.reports.style.nets import NetKind
from sdp_bench.reports.style.rules import RuleTraits
from sdp_bench.reports.tables.display import displayed
from sdp_bench.reports.writing import TEMPLATES, environment
from sdp_ref.errors import UnsupportedError

if TYPE_CHECKING:
    from sdp_bench.bench.replay.drilldown import Drilldown, Truth
    from sdp_bench.bench.replay.error_by_layer import ErrorByLayer, OutputErrors

FOLDER = "drill-down"
MOST_PAGES = 100
"""Pages kept in a folder; with :data:`MOST_BYTES` each, what they take at most is 18 MB."""
MOST_BYTES = 180_000
DATABASE, REPORT = Path("sdp-bench.sqlite"), Path("reports/html")
"""Where the commands look and write unless they are told."""

_TEMPLATE = Path(__file__).with_name("template.html")

_PERCENT = "\u00a0%"
_SUBJECT = r"[0-9a-f]{16}(?:/|$|,)"  # what a key begins with


class Progress(Protocol):
    """What making pages reports to; see :mod:`sdp_bench.commands.progress`."""

    def done(self, count: int, total: int, text: str, share: float | None = None) -> None:
        """Say that `count` of `total` pages are made, the last one for `text`."""

    def note(self, text: str) -> None:
        """Say something that stays on the screen."""


def chosen(text: str, frame: pd.DataFrame) -> list[str]:
    """Keys of the measurements that an option names.

    Parameters
    ----------
    text : str
        ``none``, ``worst:n`` or keys separated by commas (which keys have too, but not before a unit).
    frame : DataFrame
        Measurements, as the store gives them.

    Returns
    -------
    list of str
        Each once, in the order of the option, or the worst first.

    Raises
    ------
    UserError
        If it is none of these, or more than :data:`MOST_PAGES`.
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
    """Keys of the measurements farthest above the 95 % point of their floor, spread over rules and noise.

    Of each rule first the worst measurement of all, then the worst at its next noise level, and so on:
    every rule is seen before one is seen twice. Compared are total variations, which have one
    scale from 0 to 1. References and estimates from samples, whose error is their number of samples, are
    left out.

    Parameters
    ----------
    frame : DataFrame
        Measurements, as the store gives them.
    count : int
        How many at most; fewer where fewer were made.

    Returns
    -------
    list of str
        Keys, in the order in which they are to be seen.

    Raises
    ------
    UserError
        If there is no total variation among the measurements.
    """
    measured = (name for name in primary() if (frame["metric"] == name).any())
    metric = next((name for name in measured if isinstance(recorded_metric(name), CellTotalVariation)), None)
    rows = frame[frame["metric"] == metric]
    rows = rows[~rows["reference"] & rows["sampling"].isna()]
    if metric is None or rows.empty:
        raise UserError(
            "worst:n compares total variations of rules, and none was measured; name keys instead"
        )
    rows = (
        rows.assign(key=keys_of(rows))
        .drop_duplicates("key")
        .assign(excess=lambda f: f["value"] - f["floor95"])
    )
    rows = rows.sort_values(["excess", "key"], ascending=[False, True])
    rows["rank_at_noise"] = rows.groupby(["rule", "sigma"]).cumcount()
    rows = rows.sort_values(["rank_at_noise", "excess", "key"], ascending=[True, False, True])
    rows["rank_over_noise"] = rows.groupby(["rule", "rank_at_noise"]).cumcount()
    rows = rows.sort_values(
        ["rank_at_noise", "rank_over_noise", "excess", "key"], ascending=[True, True, False, True]
    )
    return [str(key) for key in rows["key"].head(count)]


def make(
    store: Store,
    requested: Sequence[str],
    folder: Path,
    progress: Progress,
    *,
    trusted: bool = False,
) -> list[Path]:
    """Write the pages of some measurements; how long that takes is a note before, one that fails is another.

    Parameters
    ----------
    store : Store
    requested : sequence of str
        Keys, or beginnings of keys that are one measurement's.
    folder : Path
        Made if need be. The oldest pages beyond :data:`MOST_PAGES` are taken away; other files stay.
    progress : Progress
    trusted : bool
        Whether the stored code of plug-in rules may be run.

    Returns
    -------
    list of Path
        Pages that were written, in the order of their keys; those of failures are not among them.

    Raises
    ------
    UserError
        As :func:`efforts`, before any page is made.
    RunFailedError
        If the folder cannot be written.
    """
    from sdp_bench.bench.replay.drilldown import drill

    made: list[Path] = []
    traits = RuleTraits(store.rules())
    ordered = efforts(store, requested, trusted=trusted)
    finished, whole = 0.0, sum(ordered.values()) or 1.0
    about = labels.duration(max(1, round(whole))).replace("\u00a0", " ")
    progress.note(
        f"{labels.plural(len(ordered), 'drill-down page')}: about {about} in all, on two free cores"
    )

    def advance(seconds: float) -> None:
        progress.done(number, len(ordered), key, (finished + seconds) / whole)

    known: dict[str, Truth] = {}
    for number, (key, seconds) in enumerate(ordered.items()):  # rules of one unit after each other
        advance(0.0)
        try:
            drilldown = drill(store, key, trusted=trusted, known=known, advance=advance)
            text = page(drilldown, traits, store.path)
        except (UserError, ValueError, UnsupportedError, RuntimeError, ArithmeticError) as error:
            line = str(error).splitlines()[0] if str(error) else type(error).__name__
            progress.note(f"no drill-down of {key}: {line}")
        else:
            made.append(write(folder / file_name(drilldown.key), text))
        finished += seconds
        progress.done(number + 1, len(ordered), key, finished / whole)
    pages = sorted(_pages(folder), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in pages[MOST_PAGES:]:
        progress.note(f"more than {MOST_PAGES} drill-downs: {path.name} is taken away")
        path.unlink(missing_ok=True)
    return made


def efforts(store: Store, requested: Iterable[str], *, trusted: bool = False) -> dict[str, float]:
    """Time (s) that each of some pages takes, about, in the order in which they are made.

    What is true of a net, an input and their noise is drawn once for all its rules: it counts for the first.

    Parameters
    ----------
    store : Store
    requested : iterable of str
        As :func:`make` takes them.
    trusted : bool
        Whether the stored code of plug-in rules may be run.

    Returns
    -------
    dict of str to float
        By key, of two quiet cores; 0 where no page can be made.

    Raises
    ------
    UserError
        If a key is unknown or stands for several measurements, or is of something that is never drilled into.
    """
    from sdp_bench.bench.replay.drilldown import effort

    found, unit = {}, ""
    for key in sorted(set(requested)):
        found[key], last, unit = 0.0, unit, key.partition("/")[0]
        try:
            work = effort(store, key, trusted=trusted)
            found[key] = work.rule + work.page + (work.truth if unit != last else 0.0)
        except (RunFailedError, ValueError):
            continue  # told when its page is not made
        except UserError as error:
            raise UserError(f"no drill-down of {key}: {error}") from error
    return found


def file_name(key: str) -> str:
    """Name of the page of a measurement, from its key."""
    unit, rule, metric = key.split("/", 2)
    words = re.sub(r"[^\w.-]+", "-", f"{rule}-{metric.partition(':')[0]}")
    return f"{unit}-{words}-{keys.digest(key)[:6]}.html"


def current_pages(folder: Path, frame: pd.DataFrame) -> dict[str, str]:
    """Pages there are of the measurements in a frame: file names by key.

    A page of a measurement that has been made anew since, with another result, is taken away, and so is any
    page that other code made. Files that are no such pages are left alone.

    Parameters
    ----------
    folder : Path
        Of the pages; it need not be there.
    frame : DataFrame
        Measurements, as the store gives them; without keys there are no pages of them.

    Returns
    -------
    dict of str to str
        Only of pages that show what the frame has.
    """
    if not folder.is_dir() or "unit" not in frame:
        return {}
    pages = {}
    for path, own in _pages(folder).items():
        if own.get("code") != code():
            path.unlink(missing_ok=True)
        else:
            pages[unescape(own["key"])] = (path, own.get("mark", ""))
    rows = frame[frame["unit"].isin({key.partition("/")[0] for key in pages})]
    rows = rows.assign(key=keys_of(rows))
    current = {}
    for key, part in rows[rows["key"].isin(pages.keys())].groupby("key"):
        path, mark = pages[str(key)]
        if mark == _results_hash(zip(part["component"], part["value"], strict=True)):
            current[str(key)] = path.name
        else:
            path.unlink(missing_ok=True)
    return current


def _pages(folder: Path) -> dict[Path, dict[str, str]]:
    """Files of a folder that are drill-down pages, and their tags."""
    tagged = {path: tags(path) for path in sorted(folder.glob("*.html"))}
    return {path: own for path, own in tagged.items() if "key" in own}


def page(drilldown: Drilldown, traits: RuleTraits, database: Path = DATABASE) -> str:
    """HTML text of one measurement's page.

    Figures beyond what :data:`MOST_BYTES` holds are left out, the largest first, and the page says which.

    Parameters
    ----------
    drilldown : Drilldown
    traits : RuleTraits
        Of the rules of its results.
    database : Path
        Where the measurement is, for the command that makes it again.

    Returns
    -------
    str
        Of at most :data:`MOST_BYTES` in UTF-8.

    Raises
    ------
    ValueError
        If the page is too large without any figure.
    """
    from sdp_bench.reports.drilldown import figures as drawings

    rule = str(drilldown.record["rule"])
    kind = NetKind(drilldown.net["activation"], drilldown.net["depth"])
    metric = displayed(str(drilldown.record["metric"]).partition(":")[0], kind)
    context: dict[str, Any] = {
        "drilldown": drilldown,
        "kind": kind,
        "metric": metric,
        "symbol": noise.symbol(drilldown.noise),
        "under": noise.words(drilldown.noise),
        "mark": _results_hash((c["component"], c["value"]) for c in drilldown.components),
        "code": code(),
        "verdict": "",
        "errors": drilldown.errors,
        "names": [],
        "figures": [],
        "dropped": [],
        "output": None,
        "scale": "",
        "command": _replay(drilldown, database),
    }
    drawn: list[Callable[[], Any]] = []
    if (errors := drilldown.errors) is not None:
        output, scale = errors_as_seen(metric, errors)
        context |= _by_layer(errors, output, scale, sampling=traits.is_sampling(rule))
        drawn.append(lambda: drawings.by_layer(errors, output, scale))
    oracle, prediction = drilldown.oracle, drilldown.prediction
    if _has_moments(drilldown):
        style = drawings.style_beside_oracle(rule, traits)
        drawn.append(lambda: drawings.projections(oracle, prediction, style))
    drawn.append(lambda: drawings.quantile_differences(oracle, prediction))
    if _has_moments(drilldown):
        drawn.append(lambda: drawings.covariances(oracle.moments, prediction))
    context["figures"] = [figure for draw in drawn if (figure := draw()) is not None]
    return _bounded(context, traits)


def _by_layer(errors: ErrorByLayer, output: OutputErrors, scale: str, *, sampling: bool) -> dict[str, Any]:
    """What the page says of the layers: their names, the error at the output, and a verdict."""
    from sdp_bench.reports.drilldown.figures import layer_names

    names = layer_names(errors)
    if errors.layers[-1].constant:
        said = CONSTANT
    else:
        said = verdict(output, names, sampling=sampling).replace(" %", _PERCENT)
    return {"names": names, "output": output, "scale": scale, "verdict": said}


def _bounded(context: dict[str, Any], traits: RuleTraits) -> str:
    template = environment(traits).get_template(str(_TEMPLATE))
    while len((text := template.render(context)).encode()) > MOST_BYTES:
        figures = context["figures"]
        if not figures:
            raise ValueError(f"its page would take {len(text.encode()):,} bytes, more than {MOST_BYTES:,}")
        # The first one comes with the numbers by layer: it goes last.
        largest = max(figures[1:] or figures, key=lambda f: sum(len(panel.svg) for panel in f.panels))
        context |= {
            "figures": [figure for figure in figures if figure is not largest],
            "dropped": [*context["dropped"], largest.title],
        }
    return text


def _has_moments(drilldown: Drilldown) -> bool:
    try:
        drilldown.prediction.gaussian  # noqa: B018
        drilldown.oracle.moments  # noqa: B018
    except ValueError:
        return False
    return True


def command(key: str, database: Path, folder: Path) -> str:
    """Line that makes a drill-down for the report in a folder.

    Parameters
    ----------
    key : str
    database : Path
        Results file that the report shows.
    folder : Path
        The report's.

    Returns
    -------
    str
        Quoted for a shell; options at their default are left out.
    """
    options = [*_option("--database", database, DATABASE), *_option("--output", folder, REPORT)]
    return shlex.join(["sdp-bench", "report", "--drill-down", key, *options])


def _replay(drilldown: Drilldown, database: Path) -> str:
    trust = ["--trust-code"] if is_address(str(drilldown.record["rule"])) else []
    return shlex.join(
        ["sdp-bench", "replay", drilldown.key, *_option("--database", database, DATABASE), *trust]
    )


def _option(name: str, path: Path, default: Path) -> list[str]:
    return [] if path == default else [name, str(path)]


@functools.cache
def code() -> str:
    """Hash of the code and templates that pages are made by."""
    here, bench = Path(__file__).parent, Path(errors.__file__).parent
    folders = (here, here.parent / "style", bench / "replay", bench / "metrics")
    # The code of rules and oracles is left out: it shows in the measurement's value.
    files = [path for folder in folders for path in sorted(folder.glob("*.py"))]
    files += [_TEMPLATE, *(TEMPLATES / name for name in ("base.html", "parts.html", "style.css"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


def _results_hash(components: Iterable[tuple[Any, Any]]) -> str:
    """Hash of a measurement's results, by which a page of it is known to be up to date."""
    return keys.digest(sorted({(name or "", repr(float(value))) for name, value in components}))[:16]


def hrefs(pages: Mapping[str, str], up: str = "") -> dict[str, str]:
    """Addresses of pages by key, from a folder that is `up` below the report's."""
    return {key: escape(f"{up}{FOLDER}/{name}") for key, name in pages.items()}
