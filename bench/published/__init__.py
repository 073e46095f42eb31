"""Published nets: trained by others, with weights in the files of installed packages.

Each net is an object in a module of this folder. The packages' own code is not imported, because its
requirements conflict with each other (facenet-pytorch needs an old torch); only the weights are read.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from sdp_ref.errors import not_found
from sdp_ref.registry import instances

from ..errors import UserError
from .base import NotInstalledError, PublishedNet, install_command

__all__ = [
    "PUBLISHED",
    "NotInstalledError",
    "PublishedNet",
    "install_command",
    "published_net",
    "published_nets",
]


PUBLISHED = "published"
"""Prefix of the address of a net: ``published:rnet``."""


@functools.cache
def published_nets() -> Mapping[str, PublishedNet]:
    """Return all published nets by name."""
    return dict(sorted(instances(__name__, PublishedNet).items()))


def published_net(name: str) -> PublishedNet:
    """Return the published net with this name; a UserError lists the available ones."""
    if name not in published_nets():
        raise UserError(not_found("published net", name, published_nets()))
    return published_nets()[name]
