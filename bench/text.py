"""Text from outside, cleaned for where it goes: a terminal, a spreadsheet, Markdown, other people."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sdp_ref.errors import on_one_line

if TYPE_CHECKING:
    import pandas as pd

# Control characters but for line ends and tabs, marks that turn the direction of writing, lone surrogates,
# and what XML cannot hold.
_UNPRINTABLE = re.compile(
    "[^\t\n\x20-\x7e\xa0-\u061b\u061d-\u200d\u2010-\u2027\u202f-\u2065\u206a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)
_MARKDOWN = re.compile(r"[\\`*\[\]<>|#!&~$@]|(?<!\w)_|_(?!\w)|:(?=//)")
_BEGINS = r"(?:(?<![\w.~/-])|(?<=file://))"  # a path, and not a later part of one or of an address
_ABSOLUTE = re.compile(_BEGINS + r"~?/(?:[^\s/'\",:;()<>\[\]]+/+)+([^\s/'\",:;()<>\[\]]*)")
_FEW = 60  # characters of a value
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def printable(text: str) -> str:
    """Text whose characters a terminal shows and does not obey; what XML cannot hold is none of them.

    Returns
    -------
    str
        With ``?`` in the place of each other character.
    """
    return _UNPRINTABLE.sub("?", text)


def shown(value: object) -> str:
    """What a value is, in a few words on one line, for a message that refuses it."""
    text = on_one_line(repr(value))
    return text if len(text) <= _FEW else f"{text[:_FEW]}..."


def public(text: str) -> str:
    """Text without the folders of this machine, for what is kept and shown to others.

    Returns
    -------
    str
        Absolute paths are taken relative to the working folder if they lie below it; of others the last part
        is left.
    """
    if not _ABSOLUTE.search(text):
        return text
    # Whose names may have spaces, which end other paths.
    for place, short in ((Path.cwd, ""), (Path.home, "~/")):
        with suppress(OSError, RuntimeError):  # the folder is gone, or the user has none
            folder = place()
            if folder != folder.parent:
                text = re.sub(f"{_BEGINS}{re.escape(str(folder))}/", short, text)
    return _ABSOLUTE.sub(lambda found: found[1] or "...", text)


def markdown(text: str) -> str:
    """Text as Markdown shows it letter by letter: one line, no image, link, code, or end of a cell."""
    return _MARKDOWN.sub(r"\\\g<0>", on_one_line(public(text)))


def code(text: str) -> str:
    """Text as code in Markdown, in a cell of a table too."""
    return f"`{on_one_line(public(text)).replace('`', chr(39)).replace('|', chr(92) + '|')}`"


def cell(value: object) -> object:
    """Value of a table that spreadsheets open: text that would be a formula there gets a ``'`` before it.

    Returns
    -------
    object
        Numbers are as they were, written as text too.
    """
    if not isinstance(value, str):
        return value
    shown = printable(public(value))
    return f"'{shown}" if value.startswith(_FORMULA) and not _is_number(value) else shown


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """Table for people, who open it in a spreadsheet and send it on: each text is a :func:`cell`.

    Not for what is read back to the last letter, as an export of results is.

    Returns
    -------
    DataFrame
        Numbers are as they were.
    """
    texts = frame.select_dtypes(["object", "string", "category"]).columns
    cells = {name: {each: cell(each) for each in frame[name].unique()} for name in texts}
    return frame.assign(**{name: frame[name].astype(object).map(cells[name]) for name in texts})


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text == text.strip()
