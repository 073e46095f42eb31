"""What the adapters of published packages share: a version that is part of the rule."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib import metadata
from typing import Any, ClassVar

from sdp_ref.rules.base import Rule


@dataclass(frozen=True)
class Peer(Rule):
    """A rule that is computed by a package of other people's.

    A subclass translates a net into that package, runs it, and gives what it returns as a law. It mends
    nothing: what the package gets wrong is to be seen.

    Parameters
    ----------
    version : str
        Of the package; without it, the one that is installed. It is part of the spec, and so of what is
        stored.

    Raises
    ------
    ValueError
        If the package is not installed, in another version, or cannot be imported.
    """

    package: ClassVar[str]
    """Its name, as pip knows it."""
    module: ClassVar[str]
    """Its import name."""
    tested: ClassVar[str]
    """Version that the adapter was written for."""
    method: ClassVar[str]
    """What it computes, in a word or two."""
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
        """Version of the package that is installed here.

        Returns
        -------
        str

        Raises
        ------
        ValueError
            If there is none.
        """
        try:
            return metadata.version(cls.package)
        except metadata.PackageNotFoundError:
            raise ValueError(
                f"rule '{cls.name}' runs the package {cls.package}, which is not installed: "
                f"pip install {cls.package}=={cls.tested}"
            ) from None

    def code(self) -> Any:
        """The package itself.

        Returns
        -------
        module

        Raises
        ------
        ValueError
            If it cannot be imported.
        """
        try:
            return importlib.import_module(self.module)
        except ImportError as error:
            raise ValueError(
                f"the package {self.package} {self.version} cannot be imported: {error}"
            ) from error

    @property
    def label(self) -> str:
        """Package, version and what it computes."""
        return f"{self.package} {self.version} ({self.method})"
