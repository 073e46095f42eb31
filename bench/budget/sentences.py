"""An uncertainty budget in words."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ..text import plural

_OUTPUTS = 10  # most outputs with a line of their own
_GROUPS = 5  # most groups in a line


def sentences(budget: pd.DataFrame, name: str) -> list[str]:
    """Summarise the rows of :func:`sdp_bench.bench.budget.budget.budget_on`, as means over the inputs."""
    inputs = budget["input"].nunique()
    lines = [f"uncertainty budget of {name}, mean over {plural(inputs, 'input')}"]
    for (sigma, output), rows in list(budget.groupby(["sigma", "output"]))[:_OUTPUTS]:
        lines.append(f"  σ = {sigma:g}, output {output}: {_line(rows)}")
    left = len(budget.groupby(["sigma", "output"])) - _OUTPUTS
    if left > 0:
        lines.append(f"  ... and {left} more (the CSV table has all)")
    lines.append(
        "  how: shares of the variance that vanish if the group has no noise (total Sobol index, 95 % "
        "interval); first: share of the group alone; linear: share of the linearised output; outputs and "
        "unnamed inputs are numbered from 0"
    )
    return [*lines, *_notes(budget)]


def _notes(budget: pd.DataFrame) -> Iterator[str]:
    """Distinct notes, with the outputs to which they apply if these are not all."""
    for note, rows in budget[budget["note"] != ""].groupby("note", sort=False):
        outputs = sorted(rows["output"].unique())
        scope = ""
        if len(outputs) < budget["output"].nunique():
            more = len(outputs) - _OUTPUTS
            listed = ", ".join(map(str, outputs[:_OUTPUTS])) + (f" and {more} more" if more > 0 else "")
            scope = f" on output {listed}"
        yield f"  note{scope}: {note}"


def _line(rows: pd.DataFrame) -> str:
    rows = rows[rows["linear"].notna() | rows["total"].notna()]
    if rows.empty:
        return "undefined, see the note"
    order = "total" if rows["total"].notna().any() else "linear"
    means = averaged(rows)
    # Linear shares can be large and negative if noise is dependent.
    means = means.sort_values(order, key=abs, ascending=False)
    parts = [_share(group, row) for group, row in means[:_GROUPS].iterrows()]
    if len(means) > _GROUPS:
        parts.append(f"smaller shares for {plural(len(means) - _GROUPS, 'other group')}")
    return f"{_leader(rows)}{'; '.join(parts)}"


def averaged(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over inputs of the shares by group, with intervals for these inputs."""
    table = rows.groupby("group", sort=False)[["linear", "first", "total"]].mean()
    for name in ("first", "total"):
        half = (rows[f"{name}_high"] - rows[f"{name}_low"]) / 2
        squares = (half**2).groupby(rows["group"], sort=False).sum()
        counts = half.groupby(rows["group"], sort=False).size()
        table[f"{name}_margin"] = squares**0.5 / counts
    return table


def _share(group: object, row: pd.Series) -> str:
    linear = "" if pd.isna(row["linear"]) else f"linear {100 * row['linear']:z.1f} %"
    if pd.isna(row["total"]):
        return f"{group} {linear}"
    low, high = max(0.0, row["total"] - row["total_margin"]), min(1.0, row["total"] + row["total_margin"])
    # Sampling errors of the estimates can exceed the range of a share.
    first, total = (min(1.0, max(0.0, row[name])) for name in ("first", "total"))
    more = [f"first {100 * first:.1f} %", linear]
    return (
        f"{group} {100 * total:.1f} % ({100 * low:.1f} to {100 * high:.1f}; {', '.join(filter(None, more))})"
    )


def _leader(rows: pd.DataFrame) -> str:
    """Say which groups have the largest total index, and at how many inputs."""
    if rows["total"].isna().all():
        return ""
    inputs = rows["input"].nunique()
    largest = rows[rows["largest"] == "yes"]["group"].value_counts()
    undecided = inputs - int(largest.sum())
    if largest.empty:
        return "largest undecided: "
    if inputs == 1:
        return f"largest {largest.index[0]}: "
    counts = [f"{group} at {count}" for group, count in largest.items()]
    if undecided:
        counts.append(f"undecided at {undecided}")
    return f"largest {', '.join(counts)} of {inputs} inputs: "
