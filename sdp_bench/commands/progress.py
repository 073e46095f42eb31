"""Progress of a run: a live bar on a terminal, plain lines otherwise."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from sdp_bench.bench.text import printable, public
from sdp_bench.commands import echo

if TYPE_CHECKING:
    from sdp_bench.bench.runs.driver import Meter


class _Bar:
    def __init__(self, progress: Progress, title: str) -> None:
        self._progress = progress
        self._task = progress.add_task(title, total=None, text="", rate="", steps="")
        self._start = time.monotonic()

    def done(self, count: int, total: int, text: str, share: float | None = None) -> None:
        rate = _rate(count, time.monotonic() - self._start)
        completed = total * share if share is not None else count
        steps = f"{count}/{total}"
        self._progress.update(
            self._task, completed=completed, total=total, text=printable(text), rate=rate, steps=steps
        )

    def note(self, text: str) -> None:
        self._progress.console.print(printable(text), markup=False, highlight=False)


class _Lines:
    """Prints a line at most every `interval` seconds, and always the last step."""

    def __init__(self, console: Console, title: str, interval: float = 5.0) -> None:
        self._console, self._title, self._interval = console, title, interval
        self._start, self._said = time.monotonic(), -interval

    def done(self, count: int, total: int, text: str, share: float | None = None) -> None:
        elapsed = time.monotonic() - self._start
        if share is None:
            share = count / total if total else 0.0  # a loop may turn out to have nothing to do
        if not share or (count < total and elapsed - self._said < self._interval):
            return
        self._said = elapsed
        left = max(0.0, elapsed * (1 - share) / share)
        line = f"{self._title} {count}/{total} ({_rate(count, elapsed)}, {_duration(left)} left) {text}"
        self._console.print(printable(line.rstrip()), markup=False, highlight=False, soft_wrap=True)

    def note(self, text: str) -> None:
        self._console.print(printable(text), markup=False, highlight=False, soft_wrap=True)


class Screen:
    """Progress of a run on standard error, or none of it."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet

    def say(self, text: str) -> None:
        if not self._quiet:
            echo(text, err=True)

    def meter(self, title: str) -> AbstractContextManager[Meter]:
        return meter(title, quiet=self._quiet)


def command_line() -> str:
    """Command of this process for the record: one line, without local paths."""
    return printable(public(shlex.join(["sdp-bench", *sys.argv[1:]]))).replace("\n", " ")


@contextmanager
def meter(title: str, *, quiet: bool = False) -> Iterator[Meter]:
    """Show the progress of a loop on standard error until the block ends."""
    console = Console(stderr=True, quiet=quiet)
    if quiet or not console.is_terminal:
        yield _Lines(console, title)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[steps]}"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        TextColumn("{task.fields[text]}", style="dim"),
    )
    with Progress(*columns, console=console) as progress:
        yield _Bar(progress, title)


def _rate(count: int, seconds: float) -> str:
    per_second = count / seconds if seconds > 0 else 0.0
    return f"{per_second:.1f}/s" if per_second >= 1 else f"{60 * per_second:.1f}/min"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
