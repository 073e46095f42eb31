"""Attacks on the running system: each is tried many times, and counted."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import pytest

from tests.attacks import COUNTS


@dataclass
class Attack:
    """How often one kind of attack was tried, and which tries did harm."""

    tries: int = 0
    fallen: list[str] = field(default_factory=list)

    def tried(self, case: str, *, held: bool) -> None:
        """One try, named for people if it did harm."""
        self.tries += 1
        if not held:
            self.fallen.append(case)


@pytest.fixture
def attack(record_property) -> Callable[[str], AbstractContextManager[Attack]]:
    """Context of one kind of attack: ``with attack("flipped bits") as bits: bits.tried(case, held=...)``.

    The count is printed at the end of the session. Leaving the block fails if anything fell or
    nothing was tried.
    """

    @contextmanager
    def begun(what: str) -> Iterator[Attack]:
        counted = Attack()
        try:
            yield counted
        finally:
            held = counted.tries - len(counted.fallen)
            record_property(COUNTS, f"{what}: {held} of {counted.tries} held")
        assert counted.tries, f"{what}: nothing was tried"
        assert not counted.fallen, f"{what}: {len(counted.fallen)} fell: " + "; ".join(counted.fallen[:20])

    return begun
