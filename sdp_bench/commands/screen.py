"""Output of commands on standard output and standard error."""

from __future__ import annotations

from typing import Any

import click

from sdp_bench.bench.text import printable


def echo(text: Any, *, err: bool = False) -> None:
    """Print a text with control characters escaped."""
    click.echo(printable(str(text)), err=err)
