"""Output folders of pages: only files that sdp-bench wrote are ever replaced or removed.

A file named :data:`MARKER` in each folder lists the files that sdp-bench wrote there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from ..bench import files
from ..bench.errors import UserError

MARKER = ".sdp-bench"


def written(folder: Path) -> set[str]:
    """Return the names of the files that sdp-bench wrote to a folder."""
    try:
        return set((folder / MARKER).read_text(encoding="utf-8").splitlines())
    except (OSError, ValueError):
        return set()


def check(folder: Path, names: Iterable[str]) -> None:
    """Raise UserError if foreign files block any of these names, before the page is computed."""
    for path in (folder / name for name in names):
        foreign = os.path.lexists(path) and path.exists() and not path.is_dir()
        if foreign and path.name not in written(path.parent):
            raise UserError(
                f"{path} was not written by sdp-bench, and is not overwritten; delete it or choose a folder"
            )


def _mark(folder: Path, names: Iterable[str]) -> None:
    files.write(folder / MARKER, "".join(f"{name}\n" for name in sorted(names)))


def write(path: Path, content: bytes | str) -> Path:
    """Write a file, replacing an older one of ours; raises UserError if a foreign file is in the way."""
    write_files(path.parent, {path.name: content})
    return path


def write_files(folder: Path, contents: Mapping[str, bytes | str]) -> None:
    """Write files by name like :func:`write`, after a check of all names.

    All names are marked together: otherwise two processes that write to the same folder could lose some.
    """
    check(folder, contents)
    names = written(folder)
    if not names.issuperset(contents):
        _mark(folder, names.union(contents))
    for name, content in contents.items():
        files.write(folder / name, content)


def write_only(folder: Path, contents: Mapping[str, bytes | str]) -> None:
    """Write files by name like :func:`write_files`, and remove our other files from the folder."""
    write_files(folder, contents)
    for name in written(folder) - contents.keys():
        remove(folder / name)


def remove(path: Path) -> None:
    """Remove a file if sdp-bench wrote it."""
    names = written(path.parent)
    if path.name in names:
        path.unlink(missing_ok=True)
        _mark(path.parent, names - {path.name})


def inside(folder: Path, name: str) -> Path:
    """Return a subfolder of a page's folder; raises UserError if it is a link, which may lead elsewhere."""
    if (folder / name).is_symlink():
        raise UserError(f"{folder / name} is a link, which is not followed; give another folder")
    return folder / name


def kept_pages() -> list[Path]:
    """Return the cached reports of the committed results."""
    archives = files.cache_folder("pages").glob("[0-9a-f]" * 16 + ".zip")
    return sorted(path for path in archives if path.is_file() and not path.is_symlink())


def clear(folder: Path) -> None:
    """Remove a page, and its folder unless it contains foreign files."""
    for parent, folders, names in os.walk(folder, topdown=False):
        for name in names:
            remove(Path(parent, name))
        Path(parent, MARKER).unlink(missing_ok=True)
        for name in folders:
            with suppress(OSError):
                Path(parent, name).rmdir()
    with suppress(OSError):
        folder.rmdir()
