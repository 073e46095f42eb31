"""The section with figures of metrics over input noise, and of accuracy over depth."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

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
from ...tables.tables import Table, headline, told_apart

_MOST = 12
"""Largest number of panels in a figure."""
_FAMILIES = ("ReLU nets", "Other nets", "Images and sequences")
_ROW, _COLUMN = 0.115, 0.17  # in, of a heat map


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
    for name, table in zip(told_apart(tables), tables, strict=True):
        if len({row.sigma for row in table.rows}) > 1:
            families.setdefault(_family(table.activation), []).append((name, table))
    for family, own in families.items():
        anchor, title = "figure-sigma", "Over input noise"
        if len(families) > 1:
            anchor += f"-{family.split()[0].lower()}"
            title += f": {family if family.startswith('ReLU') else family[0].lower() + family[1:]}"
        yield _over_sigma(anchor, title, own[:_MOST], traits, len(own) - _MOST)


@look()
def _over_sigma(
    anchor: str, title: str, own: Sequence[tuple[str, Table]], traits: RuleTraits, left_out: int = 0
) -> Figure:
    styled = styles((rule for _, table in own for rule in table.rules), traits)
    drawing = over_noise(own, styled)
    metric = own[0][1].metric
    one = all(table.metric.name == metric.name for _, table in own)
    rest = f" {labels.plural(left_out, 'further kind')} of nets: in the tables." if left_out > 0 else ""
    what = f"Mean {metric.title}" if one else "Means"
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
    own = max(kinds.values(), key=lambda own: len({table.metric.name for table in own}))
    # Of several tables of a metric, the one with most rules.
    first = {
        (table.metric.name, table.variant): table for table in sorted(own, key=lambda table: len(table.rules))
    }
    chosen = sorted(first.values(), key=lambda table: (table.metric.rank, table.variant))[:_MOST]
    if len(chosen) < 2:
        return None
    named = []
    for table in chosen:
        component = f"{table.metric.component or 'component'} {table.rows[0].component}"
        words = (table.metric.title, table.variant, component if table.has_components else "")
        named.append((textwrap.shorten(", ".join(filter(None, words)), 42, placeholder=" …"), table))
    return _over_sigma("figure-metrics", f"Other metrics: {chosen[0].kind.label}", named, traits)


@look()
def _heat_map(tables: Sequence[Table], traits: RuleTraits) -> Figure | None:
    """A panel for each rule measured on at least a quarter of the nets; one for plain Monte Carlo."""
    import seaborn as sns

    nets = ["family", "rank", "activation", "depth", "beside"]
    means = []
    for name, table in zip(told_apart(tables), tables, strict=True):
        beside = name.removeprefix(table.kind.label).removeprefix(", ")
        family, rank = _FAMILIES.index(_family(table.activation)), activation_rank(table.activation)
        net = (family, rank, table.activation, table.depth, beside)
        for row in table.rows:
            means += [(*net, row.sigma, cell.rule, cell.mean) for cell in row.cells if cell]
    cells = pd.DataFrame(means, columns=[*nets, "sigma", "rule", "value"])
    rows = cells[nets].drop_duplicates().sort_values(nets)
    several = cells[["rule", *nets]].drop_duplicates()["rule"].value_counts()
    often = several[several >= max(1, len(rows) / 4)].index
    rules = [rule for rule in traits.in_order(often) if not traits.is_reference(rule)]
    plain = [rule for rule in rules if is_plain(rule)]
    rules = [rule for rule in rules if rule not in plain[:-1]][:_MOST]
    if len(rows) < 2 or not rules:
        return None
    sigmas = sorted(cells["sigma"].unique())
    names = []
    for _, _, activation, depth, beside in rows.itertuples(index=False):
        label = activation_label(activation) + ("" if activation in NETWORKS else f" {depth:g}")
        shape = beside.partition(" to ")[0]  # of the inputs; all classifiers have ten classes
        names.append(", ".join(filter(None, (label, shape))))
    height, width = _ROW * len(rows), max(_COLUMN * len(sigmas), 1.45)
    left = 0.055 * max(map(len, names)) + 0.1
    columns = max(1, min(6, len(rules), int((10.2 - left) / (width + 0.12))))
    size: Any = {"width": width, "height": height, "left": 0, "right": 0.12, "below": 0.1, "above": 0.45}
    drawing, every = panels([traits.label(rule) for rule in rules], columns=columns, margin=left, **size)
    families = rows["family"].tolist()
    edges = [place for place in range(1, len(families)) if families[place] != families[place - 1]]
    for place, (axes, rule) in enumerate(zip(every, rules, strict=True)):
        own = cells[cells["rule"] == rule].pivot_table(index=nets, columns="sigma", values="value")
        grid = own.reindex(index=pd.MultiIndex.from_frame(rows), columns=sigmas)
        text = grid.map(
            lambda value: "" if math.isnan(value) else f"{value:.2f}".lstrip("0") if value < 1 else "1"
        )
        axes.set_title(axes.get_title(loc="left"), pad=14, fontsize=SMALL)
        axes.grid(visible=False)
        sns.heatmap(
            grid.to_numpy(), annot=text.to_numpy(), fmt="", vmin=0, vmax=1, cmap="cividis", cbar=False,
            annot_kws={"fontsize": 5.0}, linewidths=0.3, linecolor=LIGHT, ax=axes,
            xticklabels=[f"{sigma:g}" for sigma in sigmas],
            yticklabels=names if place % columns == 0 else False,
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
