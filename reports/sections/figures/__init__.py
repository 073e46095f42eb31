"""The section with figures of metrics over input noise, and of accuracy over depth."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterator, Sequence

import pandas as pd

from ....bench.nets.architectures import NETWORKS
from ...results import Results
from ...section import Context, Section
from ...site import CHARTS
from ...style import labels
from ...style.figure import SMALL, Figure, look, panels
from ...style.names import RuleTraits, activation_label, activation_rank
from ...style.theme import GREY, LIGHT, is_plain, styles
from ...tables.over_noise import over_noise
from ...tables.tables import Table, distinct_names, headline

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
    shown = {table.metric.name for table in tables}
    others = [table for table in others if table.metric.name not in shown]
    drawn = (*by_family(tables, traits), _metrics(others, traits), _heat_map(tables, traits))
    return [figure for figure in drawn if figure]


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
    rest = f" {labels.plural(left_out, 'further kind')} of nets: in the tables." if left_out > 0 else ""
    what = f"Mean {tables[0].metric.title}" if is_one_metric else "Means"
    caption = (
        f"{what} over nets and inputs. The band reaches from Monte Carlo with the fewest samples to that "
        f"with the most. Beyond the dashed line a rule cannot be distinguished from one with the exact law "
        f"at these sample counts.{rest}"
    )
    return Figure(anchor, title, caption, drawing)


def _metrics(tables: Sequence[Table], traits: RuleTraits) -> Figure | None:
    kinds: dict[tuple[str, int, str, str], list[Table]] = {}
    for table in sorted(tables, key=lambda table: table.metric.rank):
        kinds.setdefault((table.activation, table.depth, table.noise, table.recipe), []).append(table)
    if not kinds:
        return None
    of_kind = max(kinds.values(), key=lambda tables: len({table.metric.name for table in tables}))
    largest: dict[tuple[str, str], Table] = {}  # of several tables of a metric, the one with most rules
    for table in sorted(of_kind, key=lambda table: len(table.rules)):
        largest[table.metric.name, table.variant] = table
    chosen = sorted(largest.values(), key=lambda table: (table.metric.rank, table.variant))[:_MOST]
    if len(chosen) < 2:
        return None
    named = []
    for table in chosen:
        component = f"{table.metric.component or 'component'} {table.rows[0].component}"
        words = (table.metric.title, table.variant, component if table.has_components else "")
        named.append((textwrap.shorten(", ".join(filter(None, words)), 42, placeholder=" …"), table))
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
    often = counts[counts >= max(1, net_count / 4)].index
    rules = [rule for rule in traits.in_order(often) if not traits.is_reference(rule)]
    plain = [rule for rule in rules if is_plain(rule)]
    return [rule for rule in rules if rule not in plain[:-1]][:_MOST]


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


@look()
def _heat_map(tables: Sequence[Table], traits: RuleTraits) -> Figure | None:
    """A panel for each rule measured on at least a quarter of the nets; one for plain Monte Carlo."""
    import seaborn as sns

    cells = _means_by_net(tables)
    nets = cells[_NET].drop_duplicates().sort_values(_NET)
    rules = _rules_of_heat_map(cells, len(nets), traits)
    if len(nets) < 2 or not rules:
        return None
    sigmas = sorted(cells["sigma"].unique())
    identities = zip(nets["activation"], nets["depth"], nets["distinction"], strict=True)
    names = [_row_label(activation, depth, distinction) for activation, depth, distinction in identities]
    width = max(_COLUMN * len(sigmas), _TITLE_WIDTH)
    margin = _CHARACTER * max(map(len, names)) + 0.1  # for the names of the nets
    fitting = int((_PAGE_WIDTH - margin) / (width + _GAP))
    columns = max(1, min(6, len(rules), fitting))
    drawing, every_axes = panels(
        [traits.label(rule) for rule in rules],
        columns=columns,
        width=width,
        height=_ROW * len(nets),
        left=0,
        right=_GAP,
        above=0.45,
        below=0.1,
        margin=margin,
    )
    families = nets["family"].tolist()
    edges = [row for row, pair in enumerate(itertools.pairwise(families), 1) if pair[0] != pair[1]]
    for panel, (axes, rule) in enumerate(zip(every_axes, rules, strict=True)):
        means = cells[cells["rule"] == rule].pivot_table(index=_NET, columns="sigma", values="value")
        grid = means.reindex(index=pd.MultiIndex.from_frame(nets), columns=sigmas)
        axes.set_title(axes.get_title(loc="left"), pad=14, fontsize=SMALL)
        axes.grid(visible=False)
        sns.heatmap(
            grid.to_numpy(), annot=grid.map(_short).to_numpy(), fmt="", vmin=0, vmax=1, cmap="cividis",
            cbar=False, annot_kws={"fontsize": 5.0}, linewidths=0.3, linecolor=LIGHT, ax=axes,
            xticklabels=[f"{sigma:g}" for sigma in sigmas],
            yticklabels=names if panel % columns == 0 else False,
        )  # fmt: skip
        axes.hlines(edges, 0, len(sigmas), color=GREY, linewidth=1)
        axes.xaxis.tick_top()
        axes.tick_params(labelsize=SMALL - 1.2, length=0, labelrotation=0, pad=2)
    several_nets = cells["activation"].nunique() > 1
    return Figure(
        "figure-depth",
        f"{'Nets' if several_nets else 'Depth'} against input noise",
        "Mean 1 − TV of each rule by net (rows) and noise level σ (columns), from 0 (dark blue) to 1 "
        "(yellow).",
        drawing,
        cells=True,
    )


# Each rule has bins of its own there, so that their curves do not compare.
BINS_OF_THE_RULE = ("joint extremes", "single outputs")


class Figures(Section):
    name = "figures"
    title = "Figures"
    page = CHARTS
    order = 30

    def build(self, results: Results) -> Context | None:
        several = [table for table in results.tables if len({row.sigma for row in table.rows}) > 1]
        fair = [table for table in several if table.metric.convention not in BINS_OF_THE_RULE]
        drawn = figures(headline(results.tables), results.traits, others=fair)
        return {"figures": drawn} if drawn else None
