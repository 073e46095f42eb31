"""Progress of a run: a live bar on a terminal, plain lines otherwise."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from sdp_bench.bench.text import printable, public

if TYPE_CHECKING:
    from sdp_bench.bench.progress import Meter

_INTERVAL = 5.0  # s between plain lines


class _Meter:
    """Updates the bar on a terminal; otherwise prints a line now and then, and always the last step."""

    def __init__(self, bar: Progress, title: str) -> None:
        self._bar, self._title = bar, title
        self._task = bar.add_task(title, total=None, text="", rate="", steps="")
        self._start, self._said = time.monotonic(), -_INTERVAL

    def done(self, count: int, total: int, text: str, share: float | None = None) -> None:
        elapsed = time.monotonic() - self._start
        if share is None:
            share = count / total if total else 0.0  # a loop may turn out to have nothing to do
        text, steps, rate = printable(text), f"{count}/{total}", _rate(count, elapsed)
        self._bar.update(self._task, completed=total * share, total=total, text=text, rate=rate, steps=steps)
        if self._bar.disable and share and (count >= total or elapsed - self._said >= _INTERVAL):
            self._said = elapsed
            left = timedelta(seconds=round(max(0.0, elapsed * (1 - share) / share)))
            self.note(f"{self._title} {steps} ({rate}, {left} left) {text}".rstrip())

    def note(self, text: str) -> None:
        self._bar.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)


class Screen:
    """Progress of a run on standard error, or none of it."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet

    def say(self, text: str) -> None:
        if not self._quiet:
            click.echo(printable(text), err=True)

    @contextmanager
    def meter(self, title: str) -> Iterator[Meter]:
        """Show the progress of a loop until the block ends."""
        console = Console(stderr=True, quiet=self._quiet)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[steps]}"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            TextColumn("{task.fields[text]}", style="dim"),
        )
        bar = Progress(*columns, console=console, disable=self._quiet or not console.is_terminal)
        with nullcontext() if bar.disable else bar:
            yield _Meter(bar, title)


def command_line() -> str:
    """Command of this process for the record: one line, without local paths."""
    return printable(public(shlex.join(["sdp-bench", *sys.argv[1:]]))).replace("\n", " ")


def _rate(count: int, seconds: float) -> str:
    per_second = count / seconds if seconds > 0 else 0.0
    return f"{per_second:.1f}/s" if per_second >= 1 else f"{60 * per_second:.1f}/min"
