"""The section on rules: their names, and a page for each with strengths, cost, conformance and runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...numbers import slug
from ...results import Results, facts
from ...section import Context, Section
from ...site import SitePage, rule
from ..choice import Block, bands_of, choices

ALL_RULES = SitePage(6, "Rules", "rules.html", "All rules")


class Rules(Section):
    name = "rules"
    title = "Rules"
    order = 200

    def build(self, results: Results) -> Context | None:
        traits = results.traits
        measured = [rule for rule in traits.in_order(results.styles) if not traits.is_reference(rule)]
        if not measured:
            return None
        all_blocks = choices(results)
        runs: dict[str, list[tuple[str, int]]] = {}
        counts = results.frame.groupby(["rule", "run"], observed=True).size().reset_index(name="count")
        for spec, run, count in counts.sort_values("run", ascending=False).itertuples(index=False):
            runs.setdefault(str(spec), []).append((str(run), int(count)))
        rules = []
        for spec in traits.in_order(spec for band in bands_of(all_blocks) for spec in band.rules):
            blocks = []
            settings: list[Context] = []
            for block in all_blocks:
                nets = _nets(spec, block)
                if nets:
                    blocks.append((block, nets))
                for net in nets:
                    settings += net["settings"].values()
            rules.append(
                {
                    "rule": spec,
                    "page": rule(slug(spec), traits.label(spec)),
                    "described": _description(spec),
                    "kit": facts()["kit"].get(spec),  # None if the conformance kit was not run
                    "blocks": blocks,
                    "settings": settings,
                    "runs": runs.get(spec, []),
                }
            )
        return {
            "rules": rules,
            "descriptions": {spec: _description(spec) for spec in measured},
            "finished": results.meta.get("runs", {}),
        }

    def spread(self, context: Context) -> Iterator[tuple[SitePage, Context]]:
        yield ALL_RULES, {**context, "rule_of_page": None}
        for rule_context in context["rules"]:
            yield rule_context["page"], {**context, "rule_of_page": rule_context}

    def navigation(self, context: Context) -> Iterable[tuple[str, str]]:
        rule_context = context["rule_of_page"]
        if rule_context is None:
            return [("rule-names", ALL_RULES.title)]
        return [(f"rule-{slug(rule_context['rule'])}", rule_context["page"].title)]


def _description(spec: str) -> Context:
    """Summary, paragraphs and sources of a rule of the package; empty for other rules."""
    description: Context = facts()["described"].get(spec.partition(":")[0], {})
    return description


def _nets(spec: str, block: Block) -> list[Context]:
    """Cost of a rule on the kinds of nets that it was measured on, and its `settings` by noise level.

    A setting compares the rule with the best deterministic one.
    """
    nets: list[Context] = []
    for band in block.bands:
        settings = {}
        for condition in band.conditions:
            standing = condition.standing(spec)
            if standing:
                ranking = condition.rankings[-1]
                best = ranking.deterministic
                settings[condition.sigma] = {
                    "standing": standing,
                    "leader": best.leader if best else "",
                    "leads": best is not None and best.leader == spec,
                    "tied": best is not None and spec in (best.leader, *best.tied),
                    "is_best": ranking.best is not None and spec in ranking.best.marked,
                    "is_best_deterministic": best is not None and spec in best.marked,
                }
        if settings:
            nets.append({"band": band, "cost": band.costs.by_rule.get(spec), "settings": settings})
    return nets
