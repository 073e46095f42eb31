"""Verdicts on a rule or a net, for page and terminal."""

from __future__ import annotations

from dataclasses import dataclass

_PLAIN = str.maketrans({"\u00a0": " ", "\u2212": "-", "\u2019": "'"})


@dataclass(frozen=True)
class Line:
    """One finding and its topic."""

    topic: str
    text: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.text}" if self.topic else self.text


@dataclass(frozen=True)
class Verdict:
    """All findings on a rule or net; `conclusion` is a sentence that names it."""

    subject: str
    lines: tuple[Line, ...]
    conclusion: str

    @property
    def details(self) -> str:
        """Subject and lines as plain text, not wrapped."""
        return "\n".join([self.subject, *(f"  {line}" for line in self.lines)]).translate(_PLAIN)

    @property
    def last(self) -> str:
        return f"verdict: {self.conclusion}".translate(_PLAIN)
