"""Data files, from a local copy or downloaded, verified by hash."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import RunFailedError
from ..files import cache_folder

VARIABLE = "SDP_BENCH_DATA"
"""Environment variable with the folder of a local copy of the files."""

TIMEOUT = 30.0
"""Seconds without a response after which a download fails."""
_CHUNK = 2**16  # bytes


class DataMissingError(RunFailedError):
    """A data set is not available; the message says how to get it."""


@dataclass(frozen=True)
class DataFile:
    """A file of a data set."""

    path: str  # in the data folder: ``mnist/t10k-labels-idx1-ubyte.gz``
    known_hash: str  # SHA-256, or another hash prefixed by its name, ``md5:...``
    url: str = ""  # download address, if known
    archive: DataFile | None = None  # a tar or zip file that contains this file
    member: str = ""  # path in the archive
    # pattern of paths of local copies with only the first entries, whose number the format gives. Their
    # hashes are not known.
    beginnings: str = ""

    @property
    def name(self) -> str:
        """File name without folders."""
        return self.path.rpartition("/")[2]


def local_copy() -> Path | None:
    """Return the folder named by ``SDP_BENCH_DATA``, or None; a DataMissingError if it is not a folder."""
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    if not Path(named).is_dir():
        raise DataMissingError(f"{VARIABLE} names {named}, which is not a folder")
    return Path(named)


def contents(files: Sequence[DataFile]) -> dict[str, bytes]:
    """Return the contents, by path, of files that are available or can be downloaded, verified by hash.

    Nothing is downloaded if there is a local copy. Files that are neither available nor published are
    omitted. A failed download raises a DataMissingError, a damaged or unreadable local file a RunFailedError.
    """
    local = local_copy()
    folder = local or cache_folder("data")
    contents_by_path: dict[str, bytes] = {}
    for file in files:
        if _is_available(file, local, folder):
            contents_by_path[file.path] = _read(folder / file.path)
            _check(file, io.BytesIO(contents_by_path[file.path]), folder)
    absent = [file for file in files if file.path not in contents_by_path]
    for archive in dict.fromkeys(file.archive for file in absent if file.archive):
        if _is_available(archive, local, folder):
            members = [file for file in absent if file.archive == archive]
            contents_by_path |= _unpacked(archive, members, folder)
    return contents_by_path


def partial_copy(file: DataFile) -> tuple[str, bytes] | None:
    """Return name and content of a local copy of the beginning of a file, or None.

    If several match the pattern, the last in alphabetical order is taken.
    """
    local = local_copy()
    if local is None or not file.beginnings:
        return None
    copies = sorted(local.glob(file.beginnings))
    return (copies[-1].name, _read(copies[-1])) if copies else None


def _is_available(file: DataFile, local: Path | None, folder: Path) -> bool:
    """Return whether a file is in the folder, after downloading it if there is no local copy."""
    path = folder / file.path
    if local is None and file.url:
        import pooch

        pooch.get_logger().setLevel("WARNING")  # its log would disturb the progress bar
        try:
            pooch.retrieve(file.url, file.known_hash, file.name, path.parent, downloader=_download)
        # pooch raises ValueError for a wrong hash; the errors of requests are OSErrors
        except (OSError, ValueError) as error:
            hint = f"or set {VARIABLE} to a folder with {file.path}"
            raise DataMissingError(f"cannot download {file.url}: {_reason(error)}; {hint}") from error
    return path.is_file()


def _download(url: str, output: str, _pooch: object) -> None:
    """Download a file with a progress bar on standard error, or one line if that is not a terminal."""
    import requests
    from rich.console import Console
    from rich.progress import track

    response = requests.get(url, stream=True, timeout=TIMEOUT)
    response.raise_for_status()
    size = int(response.headers.get("content-length", 0))
    text = f"downloading {url.rpartition('/')[2]} ({size / 1e6:.1f} MB)"
    console = Console(stderr=True)
    if not console.is_terminal:
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    chunks = track(
        response.iter_content(_CHUNK),
        text,
        size / _CHUNK or None,
        console=console,
        disable=not console.is_terminal,
    )
    with Path(output).open("wb") as file:
        file.writelines(chunks)


def _reason(error: Exception) -> str:
    if (response := getattr(error, "response", None)) is not None:
        return f"the server answered {response.status_code}"
    if type(error).__module__.startswith("requests"):
        return f"no answer from the server ({type(error).__name__})"
    if isinstance(error, OSError):
        return f"{error.strerror or error}"
    return "what came is not the published file (its hash is another)"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RunFailedError(f"cannot read {path}: {error.strerror or error}") from error


def _check(file: DataFile, content: io.BufferedReader | io.BytesIO, folder: Path) -> None:
    algorithm, _, expected = file.known_hash.rpartition(":")
    actual = hashlib.file_digest(content, algorithm or "sha256").hexdigest()
    if actual != expected:
        raise RunFailedError(
            f"{folder / file.path} is not the published file (hash {actual[:16]}..., expected "
            f"{expected[:16]}...); get it again"
        )


def _unpacked(archive: DataFile, files: Sequence[DataFile], folder: Path) -> dict[str, bytes]:
    """Read archive members into memory, so that an archive cannot choose paths to write to."""
    path = folder / archive.path
    files_by_member = {file.member: file for file in files}
    try:
        with path.open("rb") as stream:
            _check(archive, stream, folder)
        raw: dict[str, bytes] = {}
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as zipped:
                raw = {member: zipped.read(member) for member in files_by_member}
        else:
            with tarfile.open(path, "r|*") as opened:  # a single pass: seeking back would decompress again
                for member in opened:
                    if member.name in files_by_member and (inside := opened.extractfile(member)):
                        raw[member.name] = inside.read()
    except (OSError, KeyError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise RunFailedError(f"cannot read {path}: {error}") from error
    for name, content in raw.items():
        _check(files_by_member[name], io.BytesIO(content), folder)
    return {files_by_member[name].path: content for name, content in raw.items()}
