"""Sanitising external text for a terminal, a spreadsheet, Markdown or publication."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sdp_ref.errors import on_one_line

if TYPE_CHECKING:
    import pandas as pd

# Control characters except line ends and tabs, marks that change the direction of writing, lone surrogates,
# and characters that XML does not allow.
_UNPRINTABLE = re.compile(
    "[^\t\n\x20-\x7e\xa0-\u061b\u061d-\u200d\u2010-\u2027\u202f-\u2065\u206a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)
_MARKDOWN = re.compile(r"[\\`*\[\]<>|#!&~$@]|(?<!\w)_|_(?!\w)|:(?=//)")
_BEGINS = r"(?:(?<![\w.~/-])|(?<=file://))"  # the start of a path, not a later part of a path or URL
_ABSOLUTE = re.compile(_BEGINS + r"~?/(?:[^\s/'\",:;()<>\[\]]+/+)+([^\s/'\",:;()<>\[\]]*)")
_FEW = 60  # most characters of a shown value
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def printable(text: str) -> str:
    """Replace characters that a terminal obeys or that XML does not allow by ``?``."""
    return _UNPRINTABLE.sub("?", text)


def plural(count: int, one: str) -> str:
    """Format a count with its noun: ``1 net``, ``2,000 nets``."""
    return f"{count:,} {one if count == 1 else one + 's'}"


def shown(value: object) -> str:
    """Return a short description of a value on one line, for an error message."""
    text = on_one_line(repr(value))
    return text if len(text) <= _FEW else f"{text[:_FEW]}..."


def public(text: str) -> str:
    """Remove this machine's folders from text that is stored and shown to others.

    Absolute paths below the working folder become relative; of other paths the last part remains.
    """
    if not _ABSOLUTE.search(text):
        return text
    # These folders may contain spaces, which end other paths.
    for find_folder, short in ((Path.cwd, ""), (Path.home, "~/")):
        with suppress(OSError, RuntimeError):  # the folder was deleted, or the user has no home
            folder = find_folder()
            if folder != folder.parent:
                text = re.sub(f"{_BEGINS}{re.escape(str(folder))}/", short, text)
    return _ABSOLUTE.sub(lambda match: match[1] or "...", text)


def markdown(text: str) -> str:
    """Escape text for Markdown: one line, without images, links, code, or the end of a table cell."""
    return _MARKDOWN.sub(r"\\\g<0>", on_one_line(public(text)))


def code(text: str) -> str:
    """Format text as code in Markdown, also in a table cell."""
    return f"`{on_one_line(public(text)).replace('`', chr(39)).replace('|', chr(92) + '|')}`"


def cell(value: object) -> object:
    """Prefix text that a spreadsheet would run as a formula with ``'``; numbers are unchanged."""
    if not isinstance(value, str):
        return value
    shown = printable(public(value))
    return f"'{shown}" if value.startswith(_FORMULA) and not is_number(value) else shown


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """Apply `cell` to each text of a table that people open in a spreadsheet.

    Not for exact exports such as results files.
    """
    texts = frame.select_dtypes(["object", "string", "category"]).columns
    cells = {}  # text of each distinct value, by column
    for name in texts:
        cells[name] = {value: cell(value) for value in frame[name].unique()}
    return frame.assign(**{name: frame[name].astype(object).map(cells[name]) for name in texts})


def is_number(text: str) -> bool:
    """Return whether a text is a number without surrounding spaces."""
    try:
        float(text)
    except ValueError:
        return False
    return text == text.strip()
