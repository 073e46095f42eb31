"""The section with a page for each rule: description, strengths, cost, conformance and runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sdp_bench.reports.numbers.number import slug
from sdp_bench.reports.results import Results
from sdp_bench.reports.rule_facts import Described, Kit, facts
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.sections.choice import choices
from sdp_bench.reports.sections.choice.choice import Band, Block, Choice, Condition, Standing
from sdp_bench.reports.site import SitePage, rule
from sdp_bench.reports.statistics.costs import Cost


@dataclass(frozen=True)
class Place:
    """A rule at one noise level of one kind of nets, among deterministic rules."""

    sigma: float
    standing: Standing
    leader: str
    level: bool

    @property
    def leads(self) -> bool:
        return self.leader == self.standing.rule


@dataclass(frozen=True, eq=False)
class OnNets:
    """A rule on one kind of nets: its cost, and its results by noise level."""

    band: Band
    cost: Cost | None
    places: tuple[Place, ...]

    def at(self, sigma: float) -> Place | None:
        return next((place for place in self.places if place.sigma == sigma), None)


@dataclass(frozen=True, eq=False)
class Ruled:
    """Content of a rule's page.

    `kit` is None if the conformance kit was not run. `blocks` has the nets by metric, with the rule on each.
    `runs` are numbers of its measurements by run, newest first.
    """

    rule: str
    page: SitePage
    described: Described
    kit: Kit | None
    blocks: tuple[tuple[Block, tuple[OnNets, ...]], ...]
    runs: tuple[tuple[int, int], ...]

    @property
    def places(self) -> list[Place]:
        return [place for _, nets in self.blocks for each in nets for place in each.places]


class Rules(Section):
    """One page per rule."""

    name = "rules"
    title = "Rules"
    order = 200

    def build(self, results: Results) -> Context | None:
        found = choices(results)
        if found is None:
            return None
        traits = results.traits
        specs = traits.in_order(each for band in found.bands for each in band.rules)
        counts = _runs(results)
        return {
            "rules": [
                Ruled(
                    spec,
                    rule(slug(spec), traits.label(spec)),
                    *facts().of(spec),
                    tuple(_blocks(spec, found)),
                    tuple(counts.get(spec, ())),
                )
                for spec in specs
            ],
            "styles": results.styles,
            "finished": results.meta.get("runs", {}),
        }

    def spread(self, context: Context) -> Iterator[tuple[SitePage, Context]]:
        for one in context["rules"]:
            yield one.page, {**context, "ruled_here": one}

    def navigation(self, context: Context) -> Iterable[tuple[str, str]]:
        one = context["ruled_here"]
        return [(f"rule-{slug(one.rule)}", one.page.title)]


def _blocks(spec: str, found: Choice) -> Iterator[tuple[Block, tuple[OnNets, ...]]]:
    for block in found.blocks:
        nets = [_on_nets(spec, band) for band in block.bands]
        if own := tuple(each for each in nets if each.places):
            yield block, own


def _on_nets(spec: str, band: Band) -> OnNets:
    places = (_place(spec, condition) for condition in band.conditions)
    return OnNets(band, band.costs.by_rule.get(spec), tuple(filter(None, places)))


def _place(spec: str, condition: Condition) -> Place | None:
    standing = condition.standing(spec)
    if standing is None:
        return None
    contest = condition.answers[-1].deterministic
    level = contest is not None and spec in (contest.leader, *contest.tied)
    return Place(condition.sigma, standing, contest.leader if contest else "", level)


def _runs(results: Results) -> dict[str, list[tuple[int, int]]]:
    """Measurements by rule and run, newest run first."""
    if "run" not in results.frame:
        return {}
    counts = results.frame.groupby(["rule", "run"], observed=True).size().reset_index(name="count")
    found: dict[str, list[tuple[int, int]]] = {}
    for spec, run, count in counts.sort_values("run", ascending=False).itertuples(index=False):
        found.setdefault(str(spec), []).append((int(run), int(count)))
    return found
