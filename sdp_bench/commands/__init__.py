"""The commands, one module per group."""

from __future__ import annotations

from typing import Any

import click

from sdp_bench.bench.text import printable


def echo(text: Any, *, err: bool = False) -> None:
    """Print a text with control characters escaped, on standard output or standard error."""
    click.echo(printable(str(text)), err=err)
