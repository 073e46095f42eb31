"""The wheel beside a project of a user's that has packages of the same names as this repository's folders."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.project import ROOT, copy_of_project, python

DATA = ("reports/baselines", "bench/**.safetensors", "reports/**.html", "bench/**.csv", "bench/**.json")
NAMES = ("bench", "oracles", "reports", "benchmarks", "tests")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    # From a copy: a build writes into the tree that it is made from.
    copy = copy_of_project(folder / "source")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, copy]
    subprocess.run(build, check=True, capture_output=True, text=True)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def command(wheel, tmp_path_factory):
    """Runs the installed command in a project that has packages of its own of all those names."""
    folder = tmp_path_factory.mktemp("project")
    for name in NAMES:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("OWN = True\n")
    site = folder / "site"
    site.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)

    def run(*arguments):
        done = python(*arguments, cwd=folder, path=f"{site}{os.pathsep}{folder}")
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def sdp_bench(*arguments):
    return ("-c", "import sys, sdp_bench.cli as c; sys.exit(c.main())", *arguments)


@pytest.mark.parametrize("name", ["bench", "oracles", "reports"])
def test_a_build_without_a_link_fails_with_one_line(name, tmp_path):
    """A link is a text file in a zip download, and on Windows without `core.symlinks`."""
    for file in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, tmp_path)
    (tmp_path / "sdp_bench").mkdir()
    for link in ("bench", "oracles", "reports"):
        (tmp_path / link).mkdir()
        (tmp_path / link / "__init__.py").write_text("")
        (tmp_path / "sdp_bench" / link).symlink_to(f"../{link}")
    (tmp_path / "sdp_bench" / name).unlink()
    (tmp_path / "sdp_bench" / name).write_text(f"../{name}")
    build = "from setuptools import build_meta; build_meta.get_requires_for_build_wheel()"
    done = python("-c", build, cwd=tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"sdp_bench/{name} is not a symbolic link to {name}/: clone the repository")


@pytest.mark.slow
def test_it_has_two_import_names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
        kept = set(archive.namelist())
    assert {top for top in tops if not top.endswith(".dist-info")} == {"sdp_bench", "sdp_ref"}
    tracked = subprocess.run(["git", "ls-files", "-z", *DATA], cwd=ROOT, capture_output=True, check=True)
    data = [name for name in tracked.stdout.decode().split("\0") if name]
    assert data
    assert {f"sdp_bench/{name}" for name in data} <= kept
    results = [Path(name) for name in data if name.startswith("reports/baselines/results/")]
    assert {path.name for path in results if "runs" in path.parts} == {"run.json", "plan.parquet"}
    measured = [path for path in results if "runs" not in path.parts]
    assert {(path.parent.name, path.suffix) for path in measured} == {("measured", ".parquet")}


@pytest.mark.slow
def test_it_works_beside_packages_of_those_names(command, tmp_path):
    where = "import sdp_bench.bench, sdp_bench.reports, {}; print(sdp_bench.__file__); print({}.OWN)"
    for name in NAMES:
        place, own = command("-c", where.format(name, name)).split()
        assert Path(place).parts[-3:-1] == ("site", "sdp_bench")
        assert own == "True"
    listed = command(*sdp_bench("list"))
    assert "iris-tv" in listed
    assert "sdp-bench-1" in listed
    database = str(tmp_path / "results")
    few = ("--preset", "smoke", "--sigma", "1", "--depth", "1", "--rules", "sdp,moment_matching")
    command(*sdp_bench("run", "iris-tv", *few, "--jobs", "1", "--database", database))
    command(
        *sdp_bench("report", "--database", database, "--no-committed", "--output", str(tmp_path / "page"))
    )
    assert "moment matching" in (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    counted = command("-c", "import sdp_bench; print(len(sdp_bench.load('committed', suite='iris-tv')))")
    assert int(counted) > 10_000
    entry, board = ROOT / "entries" / "sdp-bench", tmp_path / "board"
    command(*sdp_bench("report", "--leaderboard", str(entry), "--output", str(board)))
    assert "moment matching" in (board / "index.html").read_text(encoding="utf-8")
