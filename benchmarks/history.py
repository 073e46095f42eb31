"""History of speed: measure versions with asv, and write a page with a line for each benchmark.

python benchmarks/history.py measure MACHINE CPU [COMMIT...]   # versions since 0.15, to benchmarks/results
python benchmarks/history.py page RESULTS OUTPUT.html          # a page that opens without a network

RESULTS is a folder of asv's results, such as .asv/results.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
from asv.results import iter_results
from asv.step_detect import detect_steps

from sdp_bench.reports.style.labels import number
from sdp_bench.reports.style.names import RuleTraits
from sdp_bench.reports.writing import rendered

ROOT = Path(__file__).parents[1]
RESULTS, COMMITTED = ROOT / ".asv/results", ROOT / "benchmarks/results"
RUNTIME = "reports/baselines/runtime.csv"
"""Committed times of ``sdp-bench runtime``."""
GATE = "reports/baselines/ci.json"
"""Committed predictions with which ``sdp-bench check`` compares."""
FIRST = (0, 15)
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
SERIES = ["machine", "cpu", "environment", "benchmark", "parameters"]
"""Columns that identify a series of values over commits."""
WIDTH, HEIGHT, MARGIN = 160, 28, 3
"""Size of a line, and its distance from the edge."""


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


@functools.cache
def label(commit: str) -> str:
    """Version of a commit, with its hash unless it raised the version; the hash alone if git lacks it."""
    try:
        return _releases().get(commit) or f"{version_at(commit)} ({commit[:8]})"
    except (subprocess.CalledProcessError, FileNotFoundError, KeyError, ValueError):
        return commit[:8]


@functools.cache
def _releases() -> dict[str, str]:
    return releases()


def commits_since(commit: str) -> int | None:
    """Number of commits after a commit, up to that of the working tree; None if git does not know it."""
    try:
        return int(git("rev-list", "--count", f"{commit}..HEAD"))
    except (subprocess.CalledProcessError, FileNotFoundError):
        return None


def table(folder: str) -> pd.DataFrame:
    """Values in asv's results, one per row, oldest commit first; times are in UTC.

    The columns are :data:`SERIES`, commit, date (of the commit), measured (time) and value.
    """
    rows = []
    for results in iter_results(folder):
        environment = "existing environment" if "existing" in results.env_name else results.env_name
        setting = results.params["machine"], results.params["cpu"], environment
        date = datetime.fromtimestamp(results.date / 1000, UTC)
        for benchmark in sorted(results.get_all_result_keys()):
            params = results.get_result_params(benchmark)
            measured = results.started_at.get(benchmark)
            for key, value in zip(
                itertools.product(*params), results.get_result_value(benchmark, params) or (), strict=False
            ):
                names = ", ".join(name.strip("'") for name in key)
                row = (*setting, benchmark, names, results.commit_hash, date, measured, value)
                rows.append(row)
    frame = pd.DataFrame(rows, columns=[*SERIES, "commit", "date", "measured", "value"])
    frame["value"] = pd.to_numeric(frame["value"], errors="coerce")
    frame["measured"] = pd.to_datetime(frame["measured"], unit="ms", utc=True)
    return frame.dropna(subset="value").sort_values("date", kind="stable", ignore_index=True)


def series(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield variables of the template for each series of values: its line and its last step."""
    for key, values in frame.groupby(SERIES, sort=False):
        values = values.drop_duplicates("commit", keep="last")
        numbers = values["value"].to_list()
        commits = values["commit"].to_list()
        steps = detect_steps(numbers)
        yield dict(zip(SERIES, key, strict=True)) | {
            "line": line(numbers, [label(commit) for commit in commits], steps),
            "newest": numbers[-1],
            "commit": commits[-1],
            "step": last_step(commits, steps),
            "values": dict(zip(commits, numbers, strict=True)),
        }


def last_step(commits: Sequence[str], steps: Sequence[tuple[Any, ...]]) -> dict[str, Any] | None:
    """Return levels before and after the last step, and the commits between which it lies; None without."""
    if len(steps) < 2:
        return None
    (_, end, before, *_), (start, _, after, *_) = steps[-2:]
    change = after / before - 1 if before else math.nan
    return {
        "before": before,
        "after": after,
        "change": f"{100 * change:+.0f} %".replace("-", "−"),
        "last": commits[end - 1],
        "first": commits[start],
    }


def latest_change(frame: pd.DataFrame) -> str:
    """Say which benchmark changed last and by how much, and which releases are not measured."""
    newest = label(frame["commit"].iloc[-1])
    dates = frame.drop_duplicates("commit").set_index("commit")["date"]
    changed = [one for one in series(frame) if one["step"]]
    text = f"No benchmark changed up to {newest}."
    if changed:
        last = max(changed, key=lambda one: dates[one["step"]["first"]])
        step = last["step"]
        text = (
            f"Last change up to {newest}: {last['parameters'] or last['benchmark']}, {step['change']} in "
            f"{label(step['first'])}, from {number(step['before'])} to {number(step['after'])} "
            f"({last['benchmark']})."
        )
    versions = list(_releases().values())
    later = versions[versions.index(newest) + 1 :] if newest in versions else []
    if later:
        unmeasured = later[0] if len(later) == 1 else f"{later[0]} to {later[-1]}"
        text += f" Not measured: {unmeasured}."
    return text


def line(numbers: Sequence[float], names: Sequence[str], steps: Sequence[tuple[Any, ...]]) -> str:
    """Small line of values as an SVG, with the levels of its steps; logarithmic for positive values."""
    scale = math.log if min(numbers) > 0 else float
    low, high = scale(min(numbers)), scale(max(numbers))
    reach = max(high - low, 0.05)  # a change by less than 5 % does not fill the height
    middle = (low + high) / 2

    def x(position: float) -> str:
        return f"{MARGIN + (WIDTH - 2 * MARGIN) * position / max(len(numbers) - 1, 1):.1f}"

    def y(value: float) -> str:
        return f"{HEIGHT / 2 - (HEIGHT - 2 * MARGIN) * (scale(value) - middle) / reach:.1f}"

    points = " ".join(f"{x(position)},{y(value)}" for position, value in enumerate(numbers))
    levels = "".join(
        f'<path class="step" d="M{x(left)} {y(value)}H{x(right - 1)}"/>' for left, right, value, *_ in steps
    )
    dots = "".join(
        f'<circle cx="{x(position)}" cy="{y(value)}" r="2"><title>{name}: {number(value)}</title></circle>'
        for position, (name, value) in enumerate(zip(names, numbers, strict=True))
    )
    words = f"{number(numbers[0])} in {names[0]} to {number(numbers[-1])} in {names[-1]}"
    return (
        f'<svg class="spark" role="img" aria-label="{words}" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f'{levels}<polyline points="{points}"/>{dots}</svg>'
    )


def baselines(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the age of each baseline: of asv's results by machine, and of the committed files."""
    rows = []
    for (machine, cpu, environment), values in frame.groupby(SERIES[:3], sort=False):
        newest = values.iloc[-1]
        about = {"name": f"speed of versions: asv, {machine}", "processor": cpu, "environment": environment}
        rows.append(about | {"commit": newest["commit"], "date": values["measured"].max()})
    timed = pd.read_csv(ROOT / RUNTIME, nrows=1).iloc[0]
    gate = json.loads((ROOT / GATE).read_text(encoding="utf-8"))["environment"]
    about_files = {
        f"speed of rules in the report: {RUNTIME}": (["--", RUNTIME], timed["device"], timed["torch"]),
        f"accuracy in the regression gate: {GATE}": ([gate["commit"]], gate["cpu"], gate["torch"]),
    }
    for name, (selection, processor, torch) in about_files.items():
        try:
            commit, _, date = git("log", "-1", "--format=%H %cI", *selection).strip().partition(" ")
        except (subprocess.CalledProcessError, FileNotFoundError):
            continue
        if commit:
            about = {"name": name, "processor": processor, "environment": f"torch {torch}"}
            rows.append(about | {"commit": commit, "date": pd.Timestamp(date)})
    now = datetime.now(UTC)
    for row in rows:
        row["label"] = label(row["commit"])
        row["since"] = commits_since(row["commit"])
        row["days"] = None if pd.isna(row["date"]) else (now - row["date"]).days
        row["day"] = "" if pd.isna(row["date"]) else f"{row['date']:%Y-%m-%d}"
    return rows


def page(results: str, output: str) -> None:
    """Write a line for each benchmark in a folder of asv's results, and the age of every baseline."""
    frame = table(results)
    if frame.empty:
        sys.exit(f"{results} has no results of asv; `make asv` measures the current commit")
    variables = {
        "machines": [
            {
                "title": f"{machine}: {cpu}",
                "environment": environment,
                "series": (all_series := list(series(values))),
                "commits": list(values["commit"].unique()),
                "benchmarks": list(dict.fromkeys(one["benchmark"] for one in all_series)),
            }
            for (machine, cpu, environment), values in frame.groupby(SERIES[:3], sort=False)
        ],
        "labels": {commit: label(commit) for commit in frame["commit"].unique()},
        "baselines": baselines(frame),
        "latest_change": latest_change(frame),
        "units": _units(Path(results)),
        "written": f"{datetime.now(UTC):%Y-%m-%d}",
    }
    template = Path(__file__).with_name("history.html")
    Path(output).write_text(rendered(template, RuleTraits(), variables), encoding="utf-8")
    print(output)


def _units(results: Path) -> dict[str, str]:
    """Units by benchmark, as far as asv has listed the benchmarks next to the results."""
    path = results / "benchmarks.json"
    listed = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {name: about["unit"] for name, about in listed.items() if isinstance(about, dict)}


if __name__ == "__main__":
    {"measure": measure, "page": page}[sys.argv[1]](*sys.argv[2:])
