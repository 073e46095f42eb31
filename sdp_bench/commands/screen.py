"""What commands say, on standard output and standard error."""

from __future__ import annotations

from typing import Any

import click

from sdp_bench.bench.text import printable


def echo(text: Any, *, err: bool = False) -> None:
    """Say something, in characters that a terminal shows and does not obey."""
    click.echo(printable(str(text)), err=err)
