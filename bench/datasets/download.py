"""Data files, from a local copy or downloaded, verified by hash."""

from __future__ import annotations

import hashlib
import logging
import os
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sdp_bench.bench.errors import RunFailedError

VARIABLE = "SDP_BENCH_DATA"
"""Environment variable with the folder of a local copy of the files."""

TIMEOUT = 30.0
"""Seconds without a response after which a download fails."""


class DataMissingError(RunFailedError):
    """A data set is not available; the message says how to get it."""


@dataclass(frozen=True)
class DataFile:
    """A file of a data set.

    `path`: path in the data folder, ``mnist/t10k-labels-idx1-ubyte.gz``. `known_hash`: SHA-256, or another
    hash prefixed by its name, ``md5:...``. `url`: download address; empty if unknown. `archive`: a tar or zip
    file that contains this file. `member`: path in the archive. `beginnings`: pattern of paths of local
    copies with only the first entries, whose number the format gives. Their hashes are not known.
    """

    path: str
    known_hash: str
    url: str = ""
    archive: DataFile | None = None
    member: str = ""
    beginnings: str = ""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def local_copy() -> Path | None:
    """Return the folder named by ``SDP_BENCH_DATA``, or None; a DataMissingError if it is not a folder."""
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    if not Path(named).is_dir():
        raise DataMissingError(f"{VARIABLE} names {named}, which is not a folder")
    return Path(named)


def download_folder() -> Path:
    """Return the folder of downloaded files, in ``SDP_BENCH_CACHE`` or the user's cache folder."""
    import platformdirs

    return Path(os.environ.get("SDP_BENCH_CACHE") or platformdirs.user_cache_dir("sdp-bench")) / "data"


def contents(files: Sequence[DataFile]) -> dict[str, bytes]:
    """Return the contents, by path, of files that are available or can be downloaded, verified by hash.

    Nothing is downloaded if there is a local copy. Files that are neither available nor published are
    omitted. A failed download raises a DataMissingError, a damaged or unreadable local file a RunFailedError.
    """
    local = local_copy()
    folder = local or download_folder()
    found: dict[str, bytes] = {}
    for file in files:
        if local is None and file.url:
            _fetch(file, folder)
        if (folder / file.path).is_file():
            found[file.path] = _checked(file, _read(folder / file.path), folder)
    absent = [file for file in files if file.path not in found]
    for archive in dict.fromkeys(file.archive for file in absent):
        if archive is None:
            continue
        if local is None:
            _fetch(archive, folder)
        if (folder / archive.path).is_file():
            members = [file for file in absent if file.archive == archive]
            found.update(_unpacked(archive, members, folder))
    return found


def partial_copy(file: DataFile) -> tuple[str, bytes] | None:
    """Return name and content of a local copy of the beginning of a file, or None.

    If several match the pattern, the last in alphabetical order is taken.
    """
    local = local_copy()
    if local is None or not file.beginnings:
        return None
    copies = sorted(local.glob(file.beginnings))
    return (copies[-1].name, _read(copies[-1])) if copies else None


def _fetch(file: DataFile, folder: Path) -> None:
    import pooch

    if not file.url:
        return
    try:
        with _quiet_logger(), _Bar(file.name) as bar:
            pooch.retrieve(
                file.url,
                file.known_hash,
                fname=file.name,
                path=(folder / file.path).parent,
                downloader=pooch.HTTPDownloader(progressbar=bar, chunk_size=2**16, timeout=TIMEOUT),
            )
    # pooch raises ValueError for a wrong hash; the errors of requests are OSErrors
    except (OSError, ValueError) as error:
        raise DataMissingError(
            f"cannot download {file.url}: {_reason(error)}; or set {VARIABLE} to a folder with {file.path}"
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, ValueError) and not isinstance(error, OSError):
        return "what came is not the published file (its hash is another)"
    if (response := getattr(error, "response", None)) is not None:
        return f"the server answered {response.status_code}"
    if type(error).__module__.startswith("requests"):
        return f"no answer from the server ({type(error).__name__})"
    return f"{error.strerror or error}" if isinstance(error, OSError) else str(error)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RunFailedError(f"cannot read {path}: {error.strerror or error}") from error


def _checked(file: DataFile, content: bytes, folder: Path) -> bytes:
    algorithm, _, value = file.known_hash.rpartition(":")
    _check(hashlib.new(algorithm or "sha256", content).hexdigest(), value, file, folder)
    return content


def _check(found: str, known: str, file: DataFile, folder: Path) -> None:
    if found != known:
        raise RunFailedError(
            f"{folder / file.path} is not the published file (hash {found[:16]}..., expected "
            f"{known[:16]}...); get it again"
        )


def _unpacked(archive: DataFile, files: Sequence[DataFile], folder: Path) -> dict[str, bytes]:
    """Read archive members into memory, so that an archive cannot choose paths to write to."""
    path = folder / archive.path
    algorithm, _, value = archive.known_hash.rpartition(":")
    try:
        with path.open("rb") as stream:
            _check(hashlib.file_digest(stream, algorithm or "sha256").hexdigest(), value, archive, folder)
        wanted = {file.member: file for file in files}
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as opened:
                raw = {member: opened.read(member) for member in wanted}
        else:
            raw = dict(_tar_members(path, wanted))
    except (OSError, KeyError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise RunFailedError(f"cannot read {path}: {error}") from error
    return {wanted[m].path: _checked(wanted[m], content, folder) for m, content in raw.items()}


def _tar_members(path: Path, wanted: dict[str, DataFile]) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path, "r|*") as opened:  # a single pass: seeking back would decompress from the start
        for member in opened:
            if member.name in wanted and (stream := opened.extractfile(member)):
                yield member.name, stream.read()


@contextmanager
def _quiet_logger() -> Iterator[None]:
    """Silence pooch's log, which would disturb the progress bar."""
    import pooch

    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


class _Bar:
    """A rich progress bar on standard error with the interface that pooch expects."""

    total = 0

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self._console = Console(stderr=True)
        self._progress = Progress(*columns, console=self._console, disable=not self._console.is_terminal)
        self._title, self._said = title, False
        self._task = self._progress.add_task(f"downloading {title}", total=None)

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def update(self, count: int) -> None:
        if not self._said:
            self._said = True
            self._progress.start()
            if not self._console.is_terminal:
                text = f"downloading {self._title} ({self.total / 1e6:.1f} MB)"
                self._console.print(text, markup=False, highlight=False, soft_wrap=True)
        self._progress.update(self._task, advance=count, total=self.total or None)

    def reset(self) -> None:
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        if self._said:
            self._progress.stop()
