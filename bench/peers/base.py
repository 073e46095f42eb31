"""The base class for adapters of published packages."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib import metadata
from typing import Any, ClassVar

from sdp_ref.rules.base import Rule


@dataclass(frozen=True)
class Peer(Rule):
    """A rule computed by a published package.

    A subclass translates a net for the package, runs it, and converts the result to a law. It corrects
    nothing, so that errors of the package are visible.

    `version` is that of the package, by default the installed one. It is part of the spec and of stored
    results. A ValueError is raised if the package is not installed, has another version, or cannot be
    imported.
    """

    package: ClassVar[str]
    """Name of the distribution on PyPI."""
    module: ClassVar[str]
    tested: ClassVar[str]
    """Version that the adapter was written for."""
    method: ClassVar[str]
    """Short name of the method."""
    rank: ClassVar[int] = 90
    version: str = ""  # type: ignore[assignment, misc]  # of the package; as a plug-in its own is a hash

    def __post_init__(self) -> None:
        here = self.installed()
        if self.version not in ("", here):
            raise ValueError(f"{self.package} {here} is installed, not {self.version}")
        object.__setattr__(self, "version", here)
        self.code()

    @classmethod
    def installed(cls) -> str:
        """Return the version of the installed package; a ValueError if it is not installed."""
        try:
            return metadata.version(cls.package)
        except metadata.PackageNotFoundError:
            raise ValueError(
                f"rule '{cls.name}' runs the package {cls.package}, which is not installed: "
                f"pip install {cls.package}=={cls.tested}"
            ) from None

    def code(self) -> Any:
        """The imported package; a ValueError if the import fails."""
        try:
            return importlib.import_module(self.module)
        except ImportError as error:
            raise ValueError(
                f"the package {self.package} {self.version} cannot be imported: {error}"
            ) from error

    @property
    def label(self) -> str:
        return f"{self.package} {self.version} ({self.method})"
