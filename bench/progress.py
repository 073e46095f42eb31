"""What a progress display offers to long computations."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol


class Meter(Protocol):
    """Progress display of a long loop."""

    def done(self, count: int, total: int, text: str, share: float | None = None) -> None:
        """Report the last completed step, and the completed share of the work if steps are unequal."""

    def note(self, text: str) -> None:
        """Print a line that stays on the screen."""


class Progress(Protocol):
    """Progress display of a run: single lines, and a meter for the loop in a block."""

    def say(self, text: str) -> None: ...

    def meter(self, title: str) -> AbstractContextManager[Meter]: ...
