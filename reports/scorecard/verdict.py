"""What is said of a rule or a net, on the page and in the terminal alike."""

from __future__ import annotations

from dataclasses import dataclass

_PLAIN = str.maketrans({"\u00a0": " ", "\u2212": "-", "\u2019": "'"})


@dataclass(frozen=True)
class Line:
    """One thing that is said, and what it is about."""

    topic: str
    text: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.text}" if self.topic else self.text


@dataclass(frozen=True)
class Verdict:
    """All that is said of one rule or net.

    Attributes
    ----------
    subject : str
        What it is about, for people.
    lines : tuple of Line
    conclusion : str
        What follows from them, as a sentence that names the rule or net.
    """

    subject: str
    lines: tuple[Line, ...]
    conclusion: str

    @property
    def details(self) -> str:
        """Subject and lines as plain text, which is not wrapped."""
        return "\n".join([self.subject, *(f"  {line}" for line in self.lines)]).translate(_PLAIN)

    @property
    def last(self) -> str:
        """The conclusion as one line of plain text."""
        return f"verdict: {self.conclusion}".translate(_PLAIN)
