"""The opening section: recommended rules by use, verdicts on the paper, and news."""

from __future__ import annotations

from sdp_bench.reports.results import MEASUREMENT, Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.sections.overview.figure import figure
from sdp_bench.reports.sections.overview.uses import families, rows
from sdp_bench.reports.site import OVERVIEW
from sdp_bench.reports.style import labels
from sdp_bench.reports.writing import moment

_NAMED = 3  # experiments


class Overview(Section):
    """Verdicts by use; without measurements, how to make some."""

    name = "overview"
    title = "What to take"
    page = OVERVIEW
    order = 5

    def build(self, results: Results) -> Context:
        tabled = results.tabled
        named = families(tabled)
        names, found = [name for name, _ in named], rows(named, results.traits)
        return {
            "measured": len(results.frame) > 0,
            "failed": len(results.failed),
            "families": names,
            "rows": found,
            "figure": figure(names, found, results.traits),
            "styles": results.styles,
            "news": _news(results),
            "unscented": "unscented" in set(tabled["rule"].unique()),
        }


def _news(results: Results) -> str:
    frame = results.frame
    if not {"run", *MEASUREMENT} <= set(frame) or frame.empty:
        return ""
    suites = sorted(frame["experiment"][frame["run"] == frame["run"].max()].unique())
    named = ", ".join(suites) if len(suites) <= _NAMED else labels.plural(len(suites), "suite")
    finished = results.meta.get("finished")
    when = f", finished {moment(finished)}" if finished else ""
    once = frame["run"][~frame.duplicated(MEASUREMENT)]  # shared by several experiments
    newest = once == once.max()
    if newest.all():
        return f"all {labels.plural(len(once), 'measurement')}, of {named}{when}."
    return (
        f"{labels.plural(int(newest.sum()), 'measurement')} of {named}{when}, beside "
        f"{int((~newest).sum()):,} by earlier runs."
    )
