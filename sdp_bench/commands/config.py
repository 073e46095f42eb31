"""Values of a command's options from a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import click

from sdp_bench import values
from sdp_bench.bench.errors import UserError, one_line
from sdp_bench.values import converted
from sdp_ref.errors import not_found, on_one_line

_MOST = 2**16  # bytes; parsing can take quadratic time


class Config(click.Option):
    """The option that names the file; its values become the defaults of the call.

    Keys are the names of options and, if no option has this name, of arguments. Of the parameters in a tuple
    of `either` a call has only one: if the command line has it, the others in the file are ignored.
    """

    def __init__(self, *declared: Any, either: Sequence[tuple[str, ...]] = (), **attributes: Any) -> None:
        super().__init__(*declared, **attributes)
        self.either = either

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        # Click processes the given parameters before the others, and arguments after all options.
        if (file := opts.get(str(self.name))) and not ctx.resilient_parsing:
            arguments = {param.name for param in ctx.command.params if isinstance(param, click.Argument)}
            # An argument is always among them; the value of a missing one differs between versions of click.
            given = {
                name
                for name, value in opts.items()
                if name not in arguments or (isinstance(value, tuple) and value)
            }
            given |= {name for names in self.either if not given.isdisjoint(names) for name in names}
            read = self._values(ctx, self.type.convert(file, self, ctx))
            ctx.default_map = {name: value for name, value in read.items() if name not in given}
            # Click 8.1 requests no defaults for arguments.
            cast(dict[str, Any], opts).update(
                {name: value for name, value in ctx.default_map.items() if name in arguments}
            )
        return super().handle_parse_result(ctx, opts, args)

    def _values(self, ctx: click.Context, path: Path) -> dict[str, Any]:
        """Values by parameter; a UserError if the file is not TOML, or has an invalid key or value."""
        known = {  # options last
            max(param.opts, key=len).removeprefix("--"): param
            for param in sorted(ctx.command.params, key=lambda param: isinstance(param, click.Option))
            if param is not self
        }
        by_parameter = {}
        for key, value in _read(path).items():
            if key not in known:
                raise UserError(f"{path}: {not_found('key', key, known)}")
            param = known[key]
            kind = getattr(param.type, "kind", values.FLAG)
            try:
                read = converted(kind, value, several=param.multiple or param.nargs == -1)
            except UserError as error:
                raise UserError(f"{path}: {key}: {on_one_line(str(error))}") from error
            by_parameter[str(param.name)] = read
        return by_parameter


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MOST:
            raise UserError(f"{path} is not a file of options: it is larger than {_MOST // 2**10} KiB")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not a TOML file: {one_line(error)}") from error
