"""Values of a command's options from a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import click

from sdp_bench.bench.errors import UserError, one_line
from sdp_ref.errors import not_found, on_one_line

_PLAIN: tuple[tuple[type, tuple[type, ...], str], ...] = (
    (click.types.BoolParamType, (bool,), "true or false"),
    (click.types.IntParamType, (int,), "a whole number"),
    (click.types.FloatParamType, (int, float), "a number"),
    (click.ParamType, (str,), "a string"),
)
"""Parameter types, the TOML types that they accept, and a description; the first match counts."""

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
            arguments = {each.name for each in ctx.command.params if isinstance(each, click.Argument)}
            # An argument is always among them; the value of a missing one differs between versions of click.
            given = {
                name
                for name, value in opts.items()
                if name not in arguments or (isinstance(value, tuple) and value)
            }
            given |= {name for names in self.either if not given.isdisjoint(names) for name in names}
            values = self._values(ctx, self.type.convert(file, self, ctx))
            ctx.default_map = {name: value for name, value in values.items() if name not in given}
            # Click 8.1 requests no defaults for arguments.
            cast(dict[str, Any], opts).update({k: v for k, v in ctx.default_map.items() if k in arguments})
        return super().handle_parse_result(ctx, opts, args)

    def _values(self, ctx: click.Context, path: Path) -> dict[str, Any]:
        """Values by parameter; a UserError if the file is not TOML, or has an invalid key or value."""
        known = {  # options last
            max(param.opts, key=len).removeprefix("--"): param
            for param in sorted(ctx.command.params, key=lambda param: isinstance(param, click.Option))
            if param is not self
        }
        values = {}
        for key, value in _read(path).items():
            if key not in known:
                raise UserError(f"{path}: {not_found('key', key, known)}")
            try:
                values[str(known[key].name)] = converted(known[key], value, ctx)
            except click.BadParameter as error:
                raise UserError(f"{path}: {key}: {on_one_line(error.message)}") from error
        return values


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MOST:
            raise UserError(f"{path} is not a file of options: it is larger than {_MOST // 2**10} KiB")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not a TOML file: {one_line(error)}") from error


def converted(parameter: click.Parameter, value: Any, ctx: click.Context) -> Any:
    """Convert a value of a file or of Python in the same way as a text on the command line."""
    kind = getattr(parameter.type, "each", parameter.type)
    is_list = kind is not parameter.type or parameter.multiple or parameter.nargs == -1
    items = value if is_list and isinstance(value, list) else [value]
    taken, words = next((taken, words) for known, taken, words in _PLAIN if isinstance(kind, known))
    if not items:
        raise click.BadParameter("the array is empty; leave the key out")
    for item in items:
        if not isinstance(item, taken) or isinstance(item, bool) > (bool in taken):
            also = " or an array of these" if is_list else ""
            raise click.BadParameter(f"expected {words}{also}, not {item!r:.60}")
    texts = [item if isinstance(item, bool) else str(item) for item in items]
    return parameter.type_cast_value(ctx, texts if is_list else texts[0])
