"""The section with figures of metrics over input noise, and of accuracy over depth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ....bench.nets.architectures import NETWORKS
from ...results import Results
from ...section import Context, Section
from ...site import CHARTS
from ...style import labels
from ...style.figure import SIDE, SMALL, Figure, log_scale, look, panels
from ...style.names import RuleTraits, activation_label, activation_rank
from ...style.theme import GREY, LIGHT, is_plain, marked, styles
from ...tables.over_noise import over_noise
from ...tables.tables import Table, distinct_names, headline, setting_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST = 12
"""Largest number of panels in a figure."""
_FAMILIES = ("ReLU nets", "Other nets", "Images and sequences")
_NET = ["family", "rank", "activation", "depth", "distinction"]
"""Columns that identify a row of the heat map, in the order of sorting."""

# Inches of the heat map.
_ROW, _COLUMN, _GAP = 0.115, 0.17, 0.12
_TITLE_WIDTH = 1.45  # of the longest label of a rule
_CHARACTER = 0.055  # of the names of nets
_PAGE_WIDTH = 10.2


def figures(tables: Sequence[Table], traits: RuleTraits, others: Sequence[Table] = ()) -> list[Figure]:
    """Every figure for which the tables have data.

    `tables` have one metric for which higher is better (the headline 1 - TV), one table for each kind of
    net. `others` are tables of other metrics, which are drawn for the kind of net that has most of them.
    """
    main_metrics = {table.metric.name for table in tables}
    others = [table for table in others if table.metric.name not in main_metrics]
    drawn = [_summary(tables, traits), *by_family(tables, traits), _metrics(others, traits)]
    drawn.append(_heat_map(tables, traits))
    return [figure for figure in drawn if figure]


def relative_scores(tables: Sequence[Table]) -> pd.DataFrame:
    """Return the columns rule and relative: scores by setting, as multiples of the best one."""
    rows = []
    for table in tables:
        for row in table.rows:
            ranked = row.ranked()
            if len(ranked) > 1 and ranked[0].score > 0:
                rows += [(cell.rule, cell.score / ranked[0].score) for cell in ranked]
    return pd.DataFrame(rows, columns=["rule", "relative"])


@look()
def _summary(tables: Sequence[Table], traits: RuleTraits) -> Figure | None:
    """Boxes of the relative scores of rules measured in at least a quarter of the settings."""
    scores = relative_scores(tables)
    settings = sum(len(table.rows) for table in tables)
    counts = scores["rule"].value_counts()
    by_rule = {
        rule: scores["relative"][scores["rule"] == rule].to_numpy()
        for rule in counts[counts >= max(3, settings / 4)].index
    }
    if len(by_rule) < 2:
        return None
    rules = sorted(by_rule, key=lambda rule: float(np.median(by_rule[rule])))
    styled = styles(rules, traits)
    names = [f"{styled[rule].label} ({counts[rule]})" for rule in rules]
    drawing, (axes,) = panels(
        [""],
        width=2.9,
        height=0.22 * len(rules),
        left=_CHARACTER * max(map(len, names)) + 0.1,
        right=0.2,
        above=0.05,
    )
    for position, rule in enumerate(rules):
        style = styled[rule]
        boxes = axes.boxplot(
            by_rule[rule], positions=[position], widths=0.55, orientation="horizontal", whis=(5, 95),
            showfliers=False, manage_ticks=False, patch_artist=True,
            boxprops={"facecolor": "none", "edgecolor": style.colour},
            medianprops={"color": style.colour, "linewidth": 2.2},
            whiskerprops={"color": style.colour}, capprops={"color": style.colour},
        )  # fmt: skip
        quartiles = np.quantile(by_rule[rule], [0.25, 0.5, 0.75])
        low, middle, high = map(labels.number, quartiles)
        tip = f": {middle} times the error of the best ({low} to {high})"
        mark = {"gid": marked(style.label, [tip]), "markersize": 3}
        axes.plot([quartiles[1]], [position], **style.line | mark)
        for artists in boxes.values():
            for artist in artists:
                artist.set_gid(style.series)
    axes.set_yticks(range(len(rules)), names, fontsize=SMALL)
    axes.set(ylim=(len(rules) - 0.5, -0.5), xlabel="error relative to the best rule of the setting")
    axes.grid(visible=False, axis="y")
    log_scale(axes.xaxis)
    caption = (
        f"Error in {tables[0].metric.title} of each rule, divided by that of the best rule in the same "
        "setting (a kind of net at one noise level). Boxes: quartiles over settings, with the median; "
        f"whiskers: 5 % to 95 %. In parentheses: number of the {settings} settings; rules measured in fewer "
        "than a quarter of them are omitted."
    )
    return Figure("figure-summary", "All settings at a glance", caption, drawing)


def _family(activation: str) -> str:
    """Nets that are drawn together: of ReLU, of other activations, and classifiers."""
    relu, others, classifiers = _FAMILIES
    if activation in NETWORKS:
        return classifiers
    return relu if activation == "relu" else others


def by_family(tables: Sequence[Table], traits: RuleTraits) -> Iterator[Figure]:
    """A figure over noise for each family of nets, from tables of one metric."""
    families: dict[str, list[tuple[str, Table]]] = {}
    for name, table in zip(distinct_names(tables), tables, strict=True):
        if len({row.sigma for row in table.rows}) > 1:
            families.setdefault(_family(table.activation), []).append((name, table))
    for family, named in families.items():
        anchor, title = "figure-sigma", "Over input noise"
        if len(families) > 1:
            anchor += f"-{family.split()[0].lower()}"
            title += f": {family if family.startswith('ReLU') else family[0].lower() + family[1:]}"
        yield _over_sigma(anchor, title, named[:_MOST], traits, len(named) - _MOST)


@look()
def _over_sigma(
    anchor: str, title: str, named: Sequence[tuple[str, Table]], traits: RuleTraits, left_out: int = 0
) -> Figure:
    tables = [table for _, table in named]
    styled = styles((rule for table in tables for rule in table.rules), traits)
    drawing = over_noise(named, styled)
    is_one_metric = len({table.metric.name for table in tables}) == 1
    remainder = f" {labels.plural(left_out, 'further kind')} of nets: in the tables." if left_out > 0 else ""
    subject = f"Mean {tables[0].metric.title}" if is_one_metric else "Means"
    caption = (
        f"{subject} over nets and inputs. The band reaches from Monte Carlo with the fewest samples to that "
        f"with the most. Beyond the dashed line a rule cannot be distinguished from one with the exact law "
        f"at these sample counts.{remainder}"
    )
    return Figure(anchor, title, caption, drawing, setting=setting_of(tables))


def _metrics(tables: Sequence[Table], traits: RuleTraits) -> Figure | None:
    """A panel for each metric, for the kind of net with most metrics; None with fewer than two."""
    by_kind: dict[tuple[str, int, str, str], list[Table]] = {}
    for table in sorted(tables, key=lambda table: table.metric.rank):
        by_kind.setdefault((table.activation, table.depth, table.noise, table.recipe), []).append(table)
    if not by_kind:
        return None
    tables = max(by_kind.values(), key=lambda tables: len({table.metric.name for table in tables}))
    by_metric: dict[tuple[str, str], Table] = {}
    for table in sorted(tables, key=lambda table: len(table.rules)):  # the last one has most rules
        by_metric[table.metric.name, table.variant] = table
    chosen = sorted(by_metric.values(), key=lambda table: (table.metric.rank, table.variant))[:_MOST]
    if len(chosen) < 2:
        return None
    named = []
    for table in chosen:
        words = [table.metric.title, table.variant]
        if table.has_components:
            words.append(f"{table.metric.component or 'component'} {table.rows[0].component}")
        named.append((", ".join(filter(None, words)), table))
    return _over_sigma("figure-metrics", f"Other metrics: {chosen[0].kind.label}", named, traits)


def _means_by_net(tables: Sequence[Table]) -> pd.DataFrame:
    """Return the columns of `_NET`, sigma, rule and value (the mean) of all cells."""
    means = []
    for name, table in zip(distinct_names(tables), tables, strict=True):
        distinction = name.removeprefix(table.kind.label).removeprefix(", ")
        family = _FAMILIES.index(_family(table.activation))
        net = (family, activation_rank(table.activation), table.activation, table.depth, distinction)
        for row in table.rows:
            means += [(*net, row.sigma, cell.rule, cell.mean) for cell in row.cells if cell]
    return pd.DataFrame(means, columns=[*_NET, "sigma", "rule", "value"])


def _rules_of_heat_map(cells: pd.DataFrame, net_count: int, traits: RuleTraits) -> list[str]:
    """Return the rules measured on a quarter of the nets; of plain Monte Carlo, the one with most samples."""
    counts = cells[["rule", *_NET]].drop_duplicates()["rule"].value_counts()
    frequent = counts[counts >= max(1, net_count / 4)].index
    rules = [rule for rule in traits.in_order(frequent) if not traits.is_reference(rule)]
    fewer_samples = [rule for rule in rules if is_plain(rule)][:-1]
    return [rule for rule in rules if rule not in fewer_samples][:_MOST]


def _row_label(activation: str, depth: float, distinction: str) -> str:
    label = activation_label(activation)
    if activation not in NETWORKS:
        label += f" {depth:g}"
    shape = distinction.partition(" to ")[0]  # of the inputs; all classifiers have ten classes
    return f"{label}, {shape}" if shape else label


def _short(value: float) -> str:
    """``.25`` for 0.25, ``1`` for one, and nothing if it is unknown."""
    if math.isnan(value):
        return ""
    return f"{value:.2f}".lstrip("0") if value < 1 else "1"


def _level(sigma: float) -> str:
    """A noise level as the head of a narrow column: ``.01``, ``100``, ``1e3``."""
    if sigma >= 1000:
        return f"{sigma:.0e}".replace("e+0", "e")
    return f"{sigma:g}".removeprefix("0") or "0"


@look()
def _heat_map(tables: Sequence[Table], traits: RuleTraits) -> Figure | None:
    """A panel for each rule measured on at least a quarter of the nets; one for plain Monte Carlo."""
    cells = _means_by_net(tables)
    nets = cells[_NET].drop_duplicates().sort_values(_NET)
    rules = _rules_of_heat_map(cells, len(nets), traits)
    if len(nets) < 2 or not rules:
        return None
    names = []
    for activation, depth, distinction in nets[["activation", "depth", "distinction"]].itertuples(
        index=False
    ):
        names.append(_row_label(activation, depth, distinction))
    sigmas = sorted(cells["sigma"].unique())
    width = max(_COLUMN * len(sigmas), _TITLE_WIDTH)
    margin = _CHARACTER * max(map(len, names)) + 0.1  # for the names of the nets
    fitting = int((_PAGE_WIDTH - margin) / (width + _GAP))
    columns = max(1, min(6, len(rules), fitting))
    drawing, axes_of_panels = panels(
        [traits.label(rule) for rule in rules],
        columns=columns,
        width=width,
        height=_ROW * len(nets),
        left=0,
        right=_GAP,
        above=0.45,
        below=0.1,
        margin=margin,
        title_size=SMALL,
    )
    for panel, (axes, rule) in enumerate(zip(axes_of_panels, rules, strict=True)):
        means = cells[cells["rule"] == rule].pivot_table(index=_NET, columns="sigma", values="value")
        means = means.reindex(index=pd.MultiIndex.from_frame(nets), columns=sigmas)
        _draw_means(axes, means, names if panel % columns == 0 else [])
    has_activations = cells["activation"].nunique() > 1
    return Figure(
        "figure-depth",
        f"{'Nets' if has_activations else 'Depth'} against input noise",
        "Mean 1 − TV of each rule by net (rows) and noise level σ (columns; .1 is 0.1 and 1e3 is 1000), from "
        "0 (dark blue) to 1 (yellow).",
        drawing,
        cells=True,
        setting=setting_of(tables),
    )


def _draw_means(axes: Axes, means: pd.DataFrame, names: Sequence[str]) -> None:
    """Draw the means of a rule by net (rows) and noise level, with lines between families of nets."""
    import seaborn as sns

    axes.set_title(axes.get_title(loc="left"), pad=14, fontsize=SMALL)
    axes.grid(visible=False)
    sns.heatmap(
        means.to_numpy(), annot=means.map(_short).to_numpy(), fmt="", vmin=0, vmax=1, cmap="cividis",
        cbar=False, annot_kws={"fontsize": 5.0}, linewidths=0.3, linecolor=LIGHT, ax=axes,
        xticklabels=[_level(float(sigma)) for sigma in means.columns], yticklabels=names or False,
    )  # fmt: skip
    for label in axes.get_yticklabels():
        label.set_gid(SIDE)
    families = means.index.get_level_values("family")
    last_rows = [row for row in range(1, len(families)) if families[row] != families[row - 1]]
    axes.hlines(last_rows, 0, len(means.columns), color=GREY, linewidth=1)
    axes.xaxis.tick_top()
    axes.tick_params(labelsize=SMALL - 1.2, length=0, labelrotation=0, pad=2)


# Each rule has bins of its own there, so that their curves do not compare.
BINS_OF_THE_RULE = ("joint extremes", "single outputs")


class Figures(Section):
    name = "figures"
    title = "Figures"
    page = CHARTS
    order = 30

    def build(self, results: Results) -> Context | None:
        others = [
            table
            for table in results.tables
            if len({row.sigma for row in table.rows}) > 1 and table.metric.convention not in BINS_OF_THE_RULE
        ]
        drawn = figures(headline(results.tables), results.traits, others=others)
        return {"figures": drawn} if drawn else None
