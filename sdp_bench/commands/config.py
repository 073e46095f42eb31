"""Values of a command's options from a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

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

_TRUST = "trust_code"
_MOST = 2**16  # bytes; parsing can take quadratic time


class Config(click.Option):
    """The option that names the file; :class:`sdp_bench.commands.options.Command` requests its values.

    `arguments` maps keys of the file to parameters that are not options. Of the parameters in a tuple of
    `either` a call has only one: if the command line has it, the others in the file are ignored.
    """

    def __init__(
        self,
        *declared: Any,
        arguments: Mapping[str, str] | None = None,
        either: Sequence[tuple[str, ...]] = (),
        **attributes: Any,
    ) -> None:
        super().__init__(*declared, **attributes)
        self.arguments, self.either = arguments or {}, either

    def values(self, ctx: click.Context, file: str, given: Collection[str]) -> dict[str, Any]:
        """Return values by parameter from a file, except for parameters given on the command line.

        Raises UserError if the file is not readable or not TOML, or has a key or value that the command
        rejects.
        """
        path: Path = self.type.convert(file, self, ctx)
        known = self._parameters(ctx.command)
        found = {}
        for key, value in _read(path).items():
            if str(key).replace("-", "_") == _TRUST:
                raise UserError(
                    f"{path}: {key}: only the command line can give this permission: --trust-code"
                )
            if key not in known:
                raise UserError(f"{path}: {not_found('key', key, known)}")
            try:
                found[str(known[key].name)] = converted(known[key], value, ctx)
            except click.BadParameter as error:
                raise UserError(f"{path}: {key}: {on_one_line(error.message)}") from error
        beaten = {name for names in self.either if not set(names).isdisjoint(given) for name in names}
        return {name: value for name, value in found.items() if name not in beaten.union(given)}

    def _parameters(self, command: click.Command) -> dict[str, click.Parameter]:
        """Parameters by key in a file: names of options without leading dashes."""
        options = {
            max(each.opts, key=len).removeprefix("--"): each
            for each in command.params
            if isinstance(each, click.Option) and each is not self and each.name != _TRUST
        }
        named = {each.name: each for each in command.params}
        return options | {key: named[name] for key, name in self.arguments.items()}


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
    each = getattr(parameter.type, "each", parameter.type)
    is_list = each is not parameter.type or parameter.multiple or parameter.nargs == -1
    items = value if is_list and isinstance(value, list) else [value]
    taken, words = next((taken, words) for kind, taken, words in _PLAIN if isinstance(each, kind))
    if not items:
        raise click.BadParameter("the array is empty; leave the key out")
    for item in items:
        if not isinstance(item, taken) or isinstance(item, bool) > (bool in taken):
            also = " or an array of these" if is_list else ""
            raise click.BadParameter(f"expected {words}{also}, not {item!r:.60}")
    texts = [item if isinstance(item, bool) else str(item) for item in items]
    return parameter.type_cast_value(ctx, texts if is_list else texts[0])
