"""The base classes of data sets: a name, the publisher's files, and how to read them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sdp_bench.bench.datasets import download
from sdp_bench.bench.datasets.download import DataFile, DataMissingError
from sdp_bench.bench.errors import RunFailedError

if TYPE_CHECKING:
    from torch import Tensor

FEATURE_SCALINGS = ("raw", "standardised")


# Loaded sets -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LabelledTable:
    """A tabular classification set in memory."""

    features: Tensor  # shape (N, n), float32
    labels: Tensor  # shape (N,), int64

    def batch(self, rows: Tensor | Sequence[int] | slice) -> Tensor:
        """Return the features of `rows`, shape (B, n)."""
        return self.features[rows]


@dataclass(frozen=True, eq=False)
class RegressionTable:
    """A tabular regression set in memory, as published."""

    title: str
    features: Tensor  # shape (N, n), float64
    targets: Tensor  # shape (N,), float64
    parts: tuple[str, ...]  # names of the files that were used

    @property
    def description(self) -> str:
        """Description of the data: ``UCI yacht: 308 rows, 6 features (yacht.txt)``."""
        rows, features = self.features.shape
        return f"{self.title}: {rows} rows, {features} features ({', '.join(self.parts)})"


@dataclass(frozen=True, eq=False)
class LabelledExamples:
    """Images or sequences with labels, in memory as stored.

    `title`, `split`: the publisher's names. `kept`: the stored examples, images as bytes of shape
    (N, C, H, W), sequences as float32 of shape (N, length, features). `labels`, shape (N,). `parts`: names of
    the files that were used. `published`: examples of the whole published split; these may be a part of it.
    `note`: remark on missing examples.
    """

    title: str
    split: str
    kept: Tensor
    labels: Tensor
    parts: tuple[str, ...]
    published: int
    note: str = ""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.kept.shape[1:])

    @property
    def noun(self) -> str:
        return "images" if len(self.shape) == 3 else "sequences"

    @property
    def description(self) -> str:
        """Description of the data: ``CIFAR-10 train: 20000 of 50000 images (data_batch_1, data_batch_2)``."""
        note = f"; {self.note}" if self.note else ""
        return (
            f"{self.title} {self.split}: {len(self)} of {self.published} {self.noun} "
            f"({', '.join(self.parts)}{note})"
        )

    @staticmethod
    def scaled(kept: Tensor) -> Tensor:
        """Convert stored examples to the input of a net, float32; bytes become numbers in [0, 1]."""
        return kept if kept.is_floating_point() else kept.float() / 255

    def in_turn(self, count: int | None = None) -> Tensor:
        """Return rows of `count` examples (default all) that cycle through the classes, each shuffled."""
        import torch

        if count is None or count >= len(self):
            return torch.arange(len(self))
        return torch.tensor(stratified_rows(self.labels, count))

    def batch(self, rows: Tensor | Sequence[int] | slice) -> Tensor:
        """Return the net inputs of `rows`, shape (B, *event), float32."""
        return self.scaled(self.kept[rows])


# Named sets ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Dataset(ABC):
    """A named data set. An instance in a module of this folder is registered automatically.

    `name`: name on the command line and in records: ``iris``. `title`: display name. `licence`: licence, as
    far as the publisher states it. `training`: fields of the default recipe that differ from the project's.
    """

    name: str
    title: str
    licence: str
    training: Mapping[str, Any] = field(default_factory=dict, kw_only=True)

    @property
    @abstractmethod
    def files(self) -> tuple[DataFile, ...]:
        """All files of the publisher."""


@dataclass(frozen=True, eq=False)
class TabularClassification(Dataset):
    """Rows of numbers, each with a class.

    `read`: returns features, shape (N, n), and classes 0, 1, ..., shape (N,), given the files' contents by
    path. `published`: empty if a library ships the data.
    """

    read: Callable[[Mapping[str, bytes]], tuple[NDArray[np.float64], NDArray[np.int64]]]
    published: tuple[DataFile, ...] = ()

    @property
    def files(self) -> tuple[DataFile, ...]:
        return self.published

    def load(self, scaling: str = "raw") -> LabelledTable:
        """Read the set; "standardised" subtracts each feature's mean and divides by its population sd.

        A missing file raises a DataMissingError. A RunFailedError is raised if features and classes do not
        match.
        """
        import torch

        features, labels = self.read(_complete(self.title, self.files))
        classes = np.unique(labels)
        if features.ndim != 2 or labels.shape != features.shape[:1] or (classes != range(len(classes))).any():
            raise RunFailedError(f"{self.title}: features must be rows of numbers, each of a class 0, 1, ...")
        if scaling == "standardised":
            features = (features - features.mean(0)) / features.std(0)
        return LabelledTable(torch.from_numpy(features).float(), torch.from_numpy(labels).long())


@dataclass(frozen=True, eq=False)
class TabularRegression(Dataset):
    """Rows of numbers, each with a number to predict.

    `read`: returns a table, shape (N, n + 1), whose last column is the target, from content and name of the
    file.
    """

    file: DataFile
    read: Callable[[bytes, str], NDArray[np.float64]]

    @property
    def files(self) -> tuple[DataFile, ...]:
        return (self.file,)

    def load(self) -> RegressionTable:
        """Read the set.

        A missing file raises a DataMissingError, a file that differs from the published one a RunFailedError.
        """
        import torch

        content = _complete(self.title, self.files)[self.file.path]
        table = torch.from_numpy(self.read(content, self.file.name))
        features, targets = table[:, :-1].contiguous(), table[:, -1].contiguous()
        return RegressionTable(self.title, features, targets, (self.file.name,))


@dataclass(frozen=True)
class Part:
    """Files that together hold some images of a split: one batch, for example."""

    files: tuple[DataFile, ...]  # the first file names the part
    images: int  # published number of images

    @property
    def name(self) -> str:
        return self.files[0].name


class SplitClassification(Dataset):
    """Examples with classes, in splits."""

    @abstractmethod
    def load(self, split: str = "train", parts: Sequence[str] | None = None) -> LabelledExamples:
        """Read a split, or the part of it that is available.

        `parts` selects parts by name, in this order; by default all available ones are used. An unknown split
        or part raises a ValueError, a missing one (or none at all) a DataMissingError, and a damaged file a
        RunFailedError.
        """


@dataclass(frozen=True, eq=False)
class SequenceClassification(SplitClassification):
    """Sequences generated by the project; nothing is downloaded.

    `splits`: number of sequences in each split. `draw`: returns sequences, float32, shape (N, length,
    features), and classes, shape (N,), of a split.
    """

    splits: Mapping[str, int]
    draw: Callable[[str, int], tuple[NDArray[np.float32], NDArray[np.int64]]]

    @property
    def files(self) -> tuple[DataFile, ...]:
        return ()

    def load(self, split: str = "train", parts: Sequence[str] | None = None) -> LabelledExamples:
        """Draw a split; its only part has the same name."""
        import torch

        _require_split(self.splits, split)
        if parts is not None and tuple(parts) != (split,):
            raise ValueError(
                f"parts of {self.title} {split} are {split}, got {', '.join(parts) or 'nothing'}"
            )
        count = self.splits[split]
        values, classes = self.draw(split, count)
        labels = torch.from_numpy(classes).long()
        return LabelledExamples(self.title, split, torch.from_numpy(values), labels, (split,), count)


@dataclass(frozen=True, eq=False)
class ImageClassification(SplitClassification):
    """Images with classes, in splits.

    `read`: returns images, uint8, shape (N, C, H, W), and labels, shape (N,), given contents and names of
    files. `describe_missing`: returns a remark on a part with fewer images than published, given its labels.
    """

    splits: Mapping[str, tuple[Part, ...]]
    read: Callable[[Sequence[bytes], Sequence[str]], tuple[NDArray[np.uint8], NDArray[np.integer[Any]]]]
    describe_missing: Callable[[NDArray[np.integer[Any]]], str] | None = None

    @property
    def files(self) -> tuple[DataFile, ...]:
        return tuple(file for parts in self.splits.values() for part in parts for file in part.files)

    def load(self, split: str = "train", parts: Sequence[str] | None = None) -> LabelledExamples:
        import torch

        _require_split(self.splits, split)
        known = {part.name: part for part in self.splits[split]}
        if parts is not None and (not set(parts) <= set(known) or not parts or len(set(parts)) < len(parts)):
            named = ", ".join(parts) or "nothing"
            raise ValueError(f"parts of {self.title} {split} are {', '.join(known)}, got {named}")
        chosen = [known[name] for name in (known if parts is None else parts)]
        there = download.contents([file for part in chosen for file in part.files])
        names: list[str] = []
        pixels: list[NDArray[np.uint8]] = []
        labels: list[NDArray[np.integer[Any]]] = []
        absent: list[DataFile] = []
        for part in chosen:
            # The whole file or, if only its beginning is available, that local copy.
            found = [
                (file.name, there[file.path]) if file.path in there else download.partial_copy(file)
                for file in part.files
            ]
            copies = [copy for copy in found if copy is not None]
            if len(copies) < len(part.files):
                absent += [file for file in part.files if file.path not in there]
                continue
            names.append(copies[0][0])
            images, classes = self.read([content for _, content in copies], [name for name, _ in copies])
            pixels.append(images)
            labels.append(classes)
        if absent and (parts is not None or not names):
            raise DataMissingError(_missing(f"{self.title} {split}", absent))
        joined = np.concatenate(labels).astype(np.int64)
        is_whole = len(joined) == sum(part.images for part in chosen)
        published = sum(part.images for part in self.splits[split])
        return LabelledExamples(
            self.title,
            split,
            torch.from_numpy(np.concatenate(pixels)),
            torch.from_numpy(joined),
            tuple(names),
            published,
            "" if is_whole or self.describe_missing is None else self.describe_missing(joined),
        )


def _require_split(splits: Iterable[str], split: str) -> None:
    if split not in splits:
        raise ValueError(f"unknown split '{split}'; choose from {', '.join(splits)}")


def stratified_rows(labels: Tensor, count: int, order: int = 0) -> tuple[int, ...]:
    """Return `count` rows of `labels`, shape (N,), that cycle through the classes, each in a fixed shuffle.

    A longer selection starts with a shorter one, so that presets share their inputs. Each `order` (a seed)
    has other shuffles and starts with another class, so that single rows are stratified over orders. A
    ValueError is raised if there are fewer than `count` rows.
    """
    if not 1 <= count <= len(labels):
        raise ValueError(f"inputs must be between 1 and {len(labels)}, got {count}")
    shuffled = np.random.default_rng(order).permutation(len(labels))
    classes = int(labels.max()) + 1
    ranks: dict[int, int] = {}
    places = []
    for row in shuffled:
        label = int(labels[row])
        ranks[label] = ranks.get(label, -1) + 1
        places.append((ranks[label], (label - order) % classes, int(row)))
    return tuple(row for _, _, row in sorted(places)[:count])


def _complete(title: str, files: Sequence[DataFile]) -> dict[str, bytes]:
    """Return the contents of all files, by path."""
    there = download.contents(files)
    if absent := [file for file in files if file.path not in there]:
        raise DataMissingError(_missing(title, absent))
    return there


def _missing(what: str, absent: Sequence[DataFile]) -> str:
    """Describe missing files, the folder that was searched, and how to get them."""
    paths = ", ".join(file.path for file in absent)
    sources = dict.fromkeys(file.archive or file for file in absent)
    addresses = ", ".join(source.url for source in sources if source.url)
    local = download.local_copy()
    where = f"in {download.VARIABLE}={local}" if local else "there"
    archives = " or ".join(source.path for source in sources if source not in absent)
    needed = f"{paths}{f' (or {archives})' if archives else ''}"
    if addresses:
        how = f"get it from {addresses}, or unset {download.VARIABLE} to have it downloaded"
    else:
        hashes = ", ".join(file.known_hash for file in absent)
        how = (
            f"put it (SHA-256 {hashes}) into "
            f"{'that folder' if local else f'a folder and set {download.VARIABLE} to it'}"
        )
    return f"{what} is not {where}, which takes {needed}; {how}"
