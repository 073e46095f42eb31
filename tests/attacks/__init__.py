"""Attacks on the running system, and what of each held."""

from dataclasses import dataclass, field

COUNTS = "attack"
"""Property of a test's report under which a line of counts stands."""


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
