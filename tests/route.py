"""Count the files of the project that a number crosses: python tests/route.py

Prints the files with a function that runs, in the order of their first call, on two routes: from the command
``sdp-bench run iris-tv --preset smoke`` to the first stored measurement, in the process of the command and in
that of a worker; and from stored results to a table of a page. What runs while a module is imported does not
count.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)  # instead of this folder, whose packages have the names of the project's
ROOMS = ("bench", "oracles", "reports", "sdp_bench", "sdp_ref")


@functools.cache
def name_of(file: str) -> str:
    """Return the path of a file of the project from its root, or an empty text for other files."""
    path = Path(file).resolve()
    if not path.is_relative_to(ROOT) or path.relative_to(ROOT).parts[0] not in ROOMS:
        return ""
    return str(path.relative_to(ROOT))


@contextmanager
def traced(files: dict[str, None]) -> Iterator[None]:
    """Add the project's files with a function that is called inside the block, in the order of calls."""

    importing = 0  # modules that run

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal importing
        code = frame.f_code
        if code.co_name == "<module>":
            importing += (event == "call") - (event == "return")
        elif event == "call" and not importing and (name := name_of(code.co_filename)):
            files[name] = None

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def run_to_record() -> tuple[dict[str, None], dict[str, None]]:
    """Return the files of the command and those of a worker, up to the first stored group."""
    from concurrent.futures import Executor, Future

    from sdp_bench import cli
    from sdp_bench.bench.executors import local
    from sdp_bench.bench.results.folder import Writer

    of_command: dict[str, None] = {}
    of_worker: dict[str, None] = {}

    class Here(Executor):
        """Runs the first group in this process, and traces it apart."""

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            future: Future[Any] = Future()
            sys.setprofile(None)
            with traced(of_worker):
                future.set_result(fn(*args, **kwargs))
            return future

    class _StoredError(Exception):
        """The first group is stored."""

    write = Writer.write

    def stop(*args: Any) -> None:
        write(*args)
        raise _StoredError

    with tempfile.TemporaryDirectory() as folder:
        local.LocalProcesses = lambda *_: Here()  # type: ignore[assignment,misc]
        Writer.write = stop  # type: ignore[method-assign]
        words = ["run", "iris-tv", "--preset", "smoke", "--depth", "1", "--sigma", "1", "--database"]
        try:
            with traced(of_command):
                cli.cli.main([*words, f"{folder}/results"], standalone_mode=False)
        except _StoredError:
            pass
        finally:
            Writer.write = write  # type: ignore[method-assign]
    return of_command, of_worker


def record_to_table() -> tuple[dict[str, None], dict[str, None]]:
    """Return the files from the committed results to the tables of one experiment, and to their HTML text."""
    from sdp_bench.bench.results.folder import read
    from sdp_bench.bench.results.joined import joined_measurements, rules
    from sdp_bench.reports.results import COMMITTED, Results
    from sdp_bench.reports.sections.tables import Tables
    from sdp_bench.reports.style.names import RuleTraits
    from sdp_bench.reports.tables.tables import tables
    from sdp_bench.reports.writing import environment

    to_table: dict[str, None] = {}
    to_text: dict[str, None] = {}
    with traced(to_table):
        stored = read(COMMITTED)
        frame = joined_measurements(stored, [*stored.runs.values()])
    frame = frame[frame["experiment"] == "iris-tv"]
    with traced(to_table):
        found = Results(frame, traits=RuleTraits(rules(stored)))
        list(tables(found.frame, found.traits, ["iris-tv"]))
    with traced(to_text):
        section = Tables()
        context = section.build(found)
        environment(found.traits).get_template(str(section.template)).render(context)
    return to_table, to_text


def main() -> None:
    of_command, of_worker = run_to_record()
    to_table, to_text = record_to_table()
    routes = {
        "command to stored group, process of the command": of_command,
        "group to measurements, process of a worker": of_worker,
        "stored results to tables": to_table,
        "tables to the text of a page": to_text,
    }
    for title, files in routes.items():
        print(f"{title}: {len(files)} files")
        for name in files:
            print(f"  {name}")


if __name__ == "__main__":
    main()
