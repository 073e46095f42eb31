"""The baseline: predictions of rules when they were last accepted, as a JSON file.

Floats are written so that reading restores every bit. Each prediction has one line, so that a diff shows
which rule changed in which cell. The entry of each rule has a digest, so that a damaged or hand-edited file
is rejected, while a merge of two branches that updated different rules is not.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sdp_ref.errors import on_one_line

from .. import files
from ..errors import UserError
from ..identity import digest
from .cases import GateScope
from .predictions import GatePrediction

FORMAT = "sdp-bench gate baseline"
VERSION = 6
_READABLE = (5, 6)  # they may also have times, which are ignored


@dataclass(frozen=True, eq=False)
class RuleBaseline:
    """Baseline of one rule."""

    answers: dict[str, GatePrediction]  # by the key of the cell or probe

    def to_json(self) -> dict[str, Any]:
        plain = {"predictions": {key: answer.to_json() for key, answer in self.answers.items()}}
        return {"digest": _digest(plain), **plain}

    @classmethod
    def from_json(cls, name: str, plain: dict[str, Any]) -> RuleBaseline:
        """Inverse of `to_json`; a ValueError if the digest is not that of the content."""
        if plain.pop("digest", "") != _digest(plain):
            raise ValueError(f"the content of rule '{name}' does not match its digest")
        return cls({key: GatePrediction.from_json(answer) for key, answer in plain["predictions"].items()})


def _digest(plain: Mapping[str, Any]) -> str:
    return digest(dict(plain))[:16]


@dataclass(frozen=True, eq=False)
class Baseline:
    """The whole file."""

    environment: dict[str, Any]  # environment of its predictions, for information
    cases: dict[str, str]  # key of a cell or probe to its name
    rules: dict[str, RuleBaseline]  # by spec

    def check_scope(self, scope: GateScope) -> None:
        """Raise a UserError if cells (with their nets) or probes differ from the scope's."""
        now = {key: case.name for key, case in scope.cases.items()}
        gone, new = self.cases.keys() - now.keys(), now.keys() - self.cases.keys()
        if gone or new:
            examples = [f"'{self.cases[key]}' was removed" for key in sorted(gone)[:1]]
            examples += [f"'{now[key]}' is new" for key in sorted(new)[:1]]
            raise UserError(
                "the cells or their nets have changed since the baseline was made: "
                f"{len(gone)} removed, {len(new)} new "
                f"({', '.join(examples)}); replace the baseline with --update"
            )


def read(path: Path, asked: Sequence[str] = ()) -> Baseline:
    """Read a baseline; a UserError if it is missing, damaged, of another version, or without rules.

    `asked` are the rules of the command that the error suggests.
    """
    try:
        content = files.read_json(path)
    except FileNotFoundError:
        named = ["--rules", ",".join(asked)] if asked else []
        words = ["sdp-bench", "check", "--baseline", str(path), *named, "--update"]
        raise UserError(f"baseline {path} does not exist; create it with: {shlex.join(words)}") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UserError(f"{path} is damaged, not JSON ({error}); restore it or --update") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UserError(f"{path} is not a baseline of sdp-bench check")
    version = content.get("version")
    if version not in _READABLE:
        raise UserError(
            f"{path} has version {version} of the format, but this release reads version {VERSION}; delete "
            "the file and create it again with --update"
        )
    try:
        cases = dict(content["cases"])
        rules = {name: RuleBaseline.from_json(name, plain) for name, plain in content["rules"].items()}
        others = [name for name, rule in rules.items() if rule.answers.keys() != cases.keys()]
        reason = f"rule '{others[0]}' has predictions of other cells than the file" if others else ""
        found = Baseline(dict(content["environment"]), cases, rules)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = on_one_line(str(error)) or type(error).__name__
    if reason:
        raise UserError(f"{path} is damaged ({reason}); restore it, or delete it and --update")
    if not found.rules:
        raise UserError(f"{path} has no rules, so nothing can be compared; delete it and --update")
    return found


def write(path: Path, baseline: Baseline) -> None:
    rules = {name: rule.to_json() for name, rule in baseline.rules.items()}
    content = {"format": FORMAT, "version": VERSION, **vars(baseline), "rules": rules}
    files.write(path, f"{files.as_text(content)}\n")
