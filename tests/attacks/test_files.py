"""Files that are taken away, replaced, locked or in the way: it is told, and nothing of others is touched."""

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sdp_bench.bench.errors import RunFailedError
from sdp_bench.bench.results.store import Store
from tests.attacks.test_kills import RUN
from tests.bench.conftest import TINY, begin, make_plan
from tests.bench.results.test_store import place, record


@pytest.fixture(scope="module")
def plan():
    return make_plan(TINY)


def command(*words, cwd, **environment):
    """Run the command in a folder; its exit code and what it said on standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "sdp_bench", *map(str, words)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


def deleted(path, _):
    path.unlink()


def renamed(path, _):
    path.rename(path.with_name("elsewhere"))


def moved_away_with_its_log(path, _):
    for each in [*path.parent.glob(f"{path.name}*")]:
        each.rename(path.parent / f"moved-{each.name}")


def replaced(path, other):
    shutil.copy(other, path.with_name("other"))
    path.with_name("other").replace(path)


def by_a_link(path, other):
    path.unlink()
    path.symlink_to(other)


def by_a_folder(path, _):
    path.unlink()
    path.mkdir()


def by_an_empty_one(path, _):
    path.unlink()
    path.touch()


def its_folder(path, _):
    shutil.rmtree(path.parent)


def its_folder_renamed(path, _):
    path.parent.rename(path.parent.with_name("renamed"))


def its_log(path, _):
    path.with_name(f"{path.name}-wal").unlink()


def its_log_replaced(path, _):
    log = path.with_name(f"{path.name}-wal")
    content = log.read_bytes()
    log.unlink()
    log.write_bytes(content)


def its_index(path, _):
    path.with_name(f"{path.name}-shm").unlink()


DEEDS = (
    *(deleted, renamed, moved_away_with_its_log, replaced, by_a_link, by_a_folder, by_an_empty_one),
    *(its_folder, its_folder_renamed, its_log, its_log_replaced, its_index),
)


def test_a_file_that_is_taken_away_is_told_at_the_next_group(tmp_path, plan, attack):
    unit = plan.members[0][1]
    other = tmp_path / "other.sqlite"
    with Store(other, writing=True) as store:
        begin(store, plan)
    with attack("results files taken away from their writer") as tries:
        for number, deed in enumerate(DEEDS * 3):
            path = tmp_path / str(number) / "results.sqlite"
            written = 0
            try:
                with Store(path, writing=True) as store:
                    run = begin(store, plan)
                    for group in range(4):
                        if group == number % 4:
                            deed(path, other)
                        store.write_group(run, [record(unit, float(group))], [], [place(unit)])
                        written = group + 1
            except RunFailedError as error:
                held = written == number % 4 and "\n" not in str(error) and path.name in str(error)
            else:
                held = False
            tries.tried(f"{deed.__name__} before group {number % 4}", held=held)
        for deed in DEEDS:  # after the last group
            path = tmp_path / f"last {deed.__name__}" / "results.sqlite"
            try:
                with Store(path, writing=True) as store:
                    store.finish_run(begin(store, plan), 1.0)
                    deed(path, other)
            except RunFailedError as error:
                held = "\n" not in str(error)
            else:
                held = False
            tries.tried(f"{deed.__name__} after the last group", held=held)
    with Store(other) as store:
        assert len(store.runs()) == 1


@pytest.mark.parametrize("name", ["poetry", "results.sqlite", ".hidden", "with spaces"])
def test_no_file_of_others_is_opened_as_a_lock(tmp_path, plan, name):
    precious = tmp_path / "precious"
    for each in (precious, tmp_path / f"{name}.lock", tmp_path / f"{name}.lck"):
        each.write_text("of somebody else")
    with Store(tmp_path / name, writing=True) as store:
        begin(store, plan)
    assert {path.read_text() for path in (precious, tmp_path / f"{name}.lock")} == {"of somebody else"}
    (tmp_path / f"{name}.sdp-bench-lock").unlink()
    (tmp_path / f"{name}.sdp-bench-lock").symlink_to(precious)
    with pytest.raises(RunFailedError) as told:
        Store(tmp_path / name, writing=True)
    assert "\n" not in str(told.value)
    assert precious.read_text() == "of somebody else"


def links(path):
    """Other names of a file, and how each is made."""
    folder = path.parent
    (folder / "sub").mkdir(exist_ok=True)
    (folder / "link").symlink_to(path)
    (folder / "sub" / "relative").symlink_to(Path("..") / path.name)
    (folder / "chain").symlink_to(folder / "link")
    (folder / "folder").symlink_to(folder, target_is_directory=True)
    return [
        *(folder / "link", folder / "sub" / "relative", folder / "chain", folder / "folder" / path.name),
        folder / "sub" / ".." / path.name,
    ]


def test_every_name_of_a_file_meets_the_same_lock(tmp_path, plan, attack):
    path = tmp_path / "results.sqlite"
    with attack("second writers under other names") as tries:
        with Store(path, writing=True) as store:
            begin(store, plan)
            os.link(path, tmp_path / "hard")
            for other in (path, *links(path), tmp_path / "hard"):
                try:
                    Store(other, writing=True).close()
                except RunFailedError as error:
                    tries.tried(other.name, held="\n" not in str(error) and error.exit_code == 3)
                else:
                    tries.tried(other.name, held=False)
        (tmp_path / "hard").unlink()
        for other in (tmp_path / "link", tmp_path / "sub" / "relative"):
            with Store(other, writing=True) as store:
                begin(store, plan)
                for name in (path, tmp_path / "chain"):
                    with pytest.raises(RunFailedError, match="another run is writing"):
                        Store(name, writing=True)
    with Store(path) as store:
        assert len(store.runs()) == 3


def test_a_new_file_through_a_link_that_is_not_used_leaves_the_link_alone(tmp_path):
    link, target = tmp_path / "link.sqlite", tmp_path / "folder" / "target.sqlite"
    target.parent.mkdir()
    link.symlink_to(target)
    Store(link, writing=True).close()
    assert link.is_symlink()
    assert not target.exists()


def test_a_file_that_came_in_the_place_of_an_unused_one_is_not_removed(tmp_path):
    path = tmp_path / "results.sqlite"
    store = Store(path, writing=True)
    path.unlink()
    path.write_text("of somebody else")
    store.close()
    assert path.read_text() == "of somebody else"


@pytest.mark.slow
def test_files_taken_away_from_real_runs_at_random_moments(tmp_path, attack):
    draw = random.Random(4)
    other = tmp_path / "other.sqlite"
    sqlite3.connect(other).execute("CREATE TABLE bookmarks (url TEXT)").connection.close()
    with attack("results files taken away from real runs") as tries:
        for number, deed in enumerate(DEEDS):
            path = tmp_path / str(number) / "results.sqlite"
            seconds = draw.uniform(0, 0.6)

            def take(path=path, deed=deed, seconds=seconds):
                while not path.with_name("results.sqlite-wal").exists():
                    pass
                threading.Event().wait(seconds)
                deed(path, other)

            thief = threading.Thread(target=take, daemon=True)
            thief.start()
            path.parent.mkdir()
            code, said = command("run", *RUN, "--database", path, cwd=tmp_path)
            thief.join()
            tries.tried(
                f"{deed.__name__} after {seconds:.3f} s",
                held=code == 3
                and "Traceback" not in said
                and "was deleted, renamed or replaced" in said.splitlines()[-1],
            )
