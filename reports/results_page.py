"""The committed results as a page of the documentation.

``python -m sdp_bench.reports.results_page docs/results.md`` writes it; ``templates/results.toml`` selects.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from ..bench.files import write
from .replication.page import Rulings
from .results import Results, committed_results
from .section import sections, tabulated
from .writing import TEMPLATES, rendered


def results_page(results: Results) -> str:
    """Return the page as Markdown, from results of every experiment: texts of sections and a few tables.

    Names are not escaped: those of the committed results come from this package.
    """
    content = tomllib.loads((TEMPLATES / "results.toml").read_text(encoding="utf-8"))
    all_sections = sections()
    results = tabulated(results, all_sections)
    contexts = {}
    for section in all_sections:
        if section.name in content["sections"]:
            contexts[section.name] = section.build(results)
    variables: dict[str, object] = {
        "sections": contexts,
        "rulings": Rulings.of(results),
        "rules": content["rules"],
        "beyond": content["beyond"],
    }
    for name, (experiment, depth, metrics) in content["tables"].items():
        variables[name] = [
            table
            for table in results.tables
            if (table.experiment, table.depth) == (experiment, depth) and table.metric.name in metrics
        ]
    text = rendered("results.md", results.traits, variables)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


if __name__ == "__main__":
    write(Path(sys.argv[1]), results_page(committed_results()))
