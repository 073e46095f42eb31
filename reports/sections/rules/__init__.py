"""The section with a page for each rule: description, strengths, cost, conformance and runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...numbers import slug
from ...results import Results, facts
from ...section import Context, Section
from ...site import SitePage, rule
from ..choice import Block, bands_of, choices


class Rules(Section):
    name = "rules"
    title = "Rules"
    order = 200

    def build(self, results: Results) -> Context | None:
        found = choices(results)
        if not found:
            return None
        traits, runs = results.traits, dict[str, list[tuple[str, int]]]()
        counts = results.frame.groupby(["rule", "run"], observed=True).size().reset_index(name="count")
        for spec, run, count in counts.sort_values("run", ascending=False).itertuples(index=False):
            runs.setdefault(str(spec), []).append((str(run), int(count)))
        rules = []
        for spec in traits.in_order(spec for band in bands_of(found) for spec in band.rules):
            blocks = [(block, nets) for block in found if (nets := _nets(spec, block))]
            rules.append(
                {
                    "rule": spec,
                    "page": rule(slug(spec), traits.label(spec)),
                    "described": facts()["described"].get(spec.partition(":")[0], {}),
                    "kit": facts()["kit"].get(spec),  # None if the conformance kit was not run
                    "blocks": blocks,
                    "places": [
                        place for _, nets in blocks for own in nets for place in own["places"].values()
                    ],
                    "runs": runs.get(spec, []),
                }
            )
        return {
            "rules": rules,
            "finished": results.meta.get("runs", {}),
        }

    def spread(self, context: Context) -> Iterator[tuple[SitePage, Context]]:
        for one in context["rules"]:
            yield one["page"], {**context, "ruled_here": one}

    def navigation(self, context: Context) -> Iterable[tuple[str, str]]:
        one = context["ruled_here"]
        return [(f"rule-{slug(one['rule'])}", one["page"].title)]


def _nets(spec: str, block: Block) -> list[Context]:
    """Cost of a rule on the kinds of nets that it was measured on, and its place at each noise level.

    A place compares the rule with the best deterministic one.
    """
    nets: list[Context] = []
    for band in block.bands:
        places = {}
        for condition in band.conditions:
            if standing := condition.standing(spec):
                best = condition.rankings[-1].deterministic
                places[condition.sigma] = {
                    "standing": standing,
                    "leader": best.leader if best else "",
                    "leads": best is not None and best.leader == spec,
                    "level": best is not None and spec in (best.leader, *best.tied),
                }
        if places:
            nets.append({"band": band, "cost": band.costs.by_rule.get(spec), "places": places})
    return nets
