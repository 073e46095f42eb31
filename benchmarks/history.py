"""Relative times of rules over versions: measure them with asv, and write their page.

python benchmarks/history.py measure MACHINE CPU [COMMIT...]   # versions since 0.15, to benchmarks/results
python benchmarks/history.py page RESULTS OUTPUT.html          # a page that opens without a network
"""

from __future__ import annotations

import io
import itertools
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from asv.results import iter_results

ROOT = Path(__file__).parents[1]
RESULTS, COMMITTED = ROOT / ".asv/results", ROOT / "benchmarks/results"
FIRST = (0, 15)
RATIO = "ratios.RelativeCost.track_ratio"
SPREAD = "ratios.RelativeCost.track_spread_of_ratio"
COLUMNS = ["machine", "cpu", "version", "net", "method", "phase", "ratio", "spread"]
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
KEYS = ["net", "phase", "method"]
NOTE = """Time of a rule as a multiple of the regular pass, on one thread: median over rounds in which both
are timed in turn, with the ratio of the quartiles over rounds in parentheses. Batches: 32 inputs for
mlp-4x100, 16 for cnn3, 2 for resnet18. Versions are the commits that raised them; others have a hash."""


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def version_at(commit: str) -> str:
    """Version of the project at a commit."""
    return str(tomllib.loads(git("show", f"{commit}:pyproject.toml"))["project"]["version"])


def releases() -> dict[str, str]:
    """Commits that raised the version to 0.15 or more, oldest first, with that version."""
    commits = git("log", "--reverse", "--format=%H", "-G^version = ", "--", "pyproject.toml").split()
    versions = {commit: version_at(commit) for commit in commits}
    return {commit: text for commit, text in versions.items() if tuple(map(int, text.split("."))) >= FIRST}


def measure(machine: str, cpu: str, *commits: str) -> None:
    """Measure the ratios of each release with the suite of this checkout, in this environment."""
    asv = [sys.executable, "-m", "asv"]
    subprocess.run([*asv, "machine", "--yes", "--machine", machine, "--cpu", cpu], cwd=ROOT, check=True)
    run = [*asv, "run", "-E", "existing", "--machine", machine, "--bench", "^ratios", "--set-commit-hash"]
    for commit in commits or releases():
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "ASV_PYTHONPATH": folder}
            git("worktree", "add", "--detach", folder, commit)
            try:  # asv reports what an old version cannot run, and exits with 2
                subprocess.run([*run, commit], cwd=ROOT, env=environment, check=False)
            finally:
                git("worktree", "remove", "--force", folder)
        keep(machine)


def keep(machine: str) -> None:
    """Copy a machine's results to the committed ones, without the path of the interpreter."""
    (COMMITTED / machine).mkdir(parents=True, exist_ok=True)
    for path in (RESULTS / machine).iterdir():
        name, text = path.name, path.read_text(encoding="utf-8")
        for old in ("existing-py" + sys.executable.replace("/", "_"), sys.executable):
            name, text = name.replace(old, PYTHON), text.replace(old, PYTHON)
        (COMMITTED / machine / name).write_text(text, encoding="utf-8")


def table(folder: str) -> pd.DataFrame:
    """Ratios in asv's results, one per row, oldest commit first."""
    released, rows = releases(), []
    for results in sorted(iter_results(folder), key=lambda results: results.date):
        if RATIO not in results.get_all_result_keys():
            continue
        commit, params = results.commit_hash, results.get_result_params(RATIO)
        version = released.get(commit) or f"{version_at(commit)} ({commit[:8]})"
        machine = results.params["machine"], results.params["cpu"]
        columns = [results.get_result_value(name, params) for name in (RATIO, SPREAD)]
        for key, *numbers in zip(itertools.product(*params), *columns, strict=True):
            names = [name.strip("'") for name in key]
            rows.append([*machine, version, *names, *numbers])
    return pd.DataFrame(rows, columns=COLUMNS).dropna(subset="ratio")


def figure(frame: pd.DataFrame) -> str:
    """Ratios over versions as an SVG."""
    grid = sns.relplot(
        frame, x="version", y="ratio", hue="method", style="method", row="phase", col="net",
        kind="line", markers=True, dashes=False, height=2.6, aspect=1.4,
    )  # fmt: skip
    ticks = [2, 5, 10, 20, 50, 100]
    grid.set(yscale="log", xlabel="", ylabel="regular passes", yticks=ticks, yticklabels=ticks)
    grid.set_titles("{col_name}, {row_name}").tick_params(axis="x", rotation=90)
    grid.tick_params(axis="y", which="minor", left=False, labelleft=False)
    text = io.StringIO()
    grid.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue().partition("<!DOCTYPE")[2].partition(">")[2]


def page(results: str, output: str) -> None:
    """Write a figure and a table of the ratios of each machine."""
    mpl.use("svg")
    # text as text, which is small, and the same identifiers every time
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "sdp-bench"})
    parts = []
    for (machine, cpu), frame in table(results).groupby(["machine", "cpu"], sort=False):
        cells = frame["ratio"].map("{:.4g}".format) + " (" + frame["spread"].map("{:.2f}".format) + ")"
        wide = frame.assign(cell=cells).pivot(index=KEYS, columns="version", values="cell")
        wide = wide[frame["version"].unique()].fillna("")
        parts += [f"<h2>{machine}: {cpu}</h2>", figure(frame), wide.to_html()]
    Path(output).write_text(
        "<!doctype html><html lang=en><meta charset=utf-8><title>sdp-bench: relative times by version</title>"
        "<style>body {font: 15px sans-serif; margin: 2em} table {border-collapse: collapse; font-size: 12px}"
        " td, th {padding: 2px 6px; text-align: right} svg {max-width: 100%; height: auto}</style>"
        f"<h1>Relative times of the rules by version</h1><p>{NOTE}</p>{''.join(parts)}</html>\n",
        encoding="utf-8",
    )
    print(output)


if __name__ == "__main__":
    {"measure": measure, "page": page}[sys.argv[1]](*sys.argv[2:])
