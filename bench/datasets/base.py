"""The base classes of data sets: a name, the publisher's files, and how to read them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import RunFailedError
from . import download
from .download import DataFile, DataMissingError

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
    """Images or sequences with labels, in memory as stored."""

    # the publisher's names
    title: str
    split: str
    kept: Tensor  # images as bytes, (N, C, H, W), or sequences as float32, (N, length, features)
    labels: Tensor  # shape (N,)
    parts: tuple[str, ...]  # names of the files that were used
    published: int  # number of examples in the whole published split; these may be a part of it
    note: str = ""  # remark on missing examples

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.kept.shape[1:])

    @property
    def description(self) -> str:
        """Description of the data: ``CIFAR-10 train: 20000 of 50000 images (data_batch_1, data_batch_2)``."""
        noun = "images" if len(self.shape) == 3 else "sequences"
        sources = ", ".join(self.parts) + (f"; {self.note}" if self.note else "")
        return f"{self.title} {self.split}: {len(self)} of {self.published} {noun} ({sources})"

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
    """A named data set. An instance in a module of this folder is registered automatically."""

    name: str  # on the command line and in records: ``iris``
    title: str  # display name
    licence: str  # as far as the publisher states it
    # fields of the default recipe that differ from the project's
    training: Mapping[str, Any] = field(default_factory=dict, kw_only=True)


@dataclass(frozen=True, eq=False)
class TabularClassification(Dataset):
    """Rows of numbers, each with a class."""

    # returns features, shape (N, n), and classes 0, 1, ..., shape (N,), given the files' contents by path
    read: Callable[[Mapping[str, bytes]], tuple[NDArray[np.float64], NDArray[np.int64]]]
    published: tuple[DataFile, ...] = ()  # files; none if a library ships the data

    def load(self, scaling: str = "raw") -> LabelledTable:
        """Read the set; "standardised" subtracts each feature's mean and divides by its population sd.

        A missing file raises a DataMissingError. A RunFailedError is raised if features and classes do not
        match.
        """
        import torch

        features, labels = self.read(_complete(self.title, self.published))
        classes = np.unique(labels)
        if features.ndim != 2 or labels.shape != features.shape[:1] or (classes != range(len(classes))).any():
            raise RunFailedError(f"{self.title}: features must be rows of numbers, each of a class 0, 1, ...")
        if scaling == "standardised":
            features = (features - features.mean(0)) / features.std(0)
        return LabelledTable(torch.from_numpy(features).float(), torch.from_numpy(labels).long())


@dataclass(frozen=True, eq=False)
class TabularRegression(Dataset):
    """Rows of numbers, each with a number to predict."""

    file: DataFile
    # returns a table, shape (N, n + 1), with the target as last column, from content and name of the file
    read: Callable[[bytes, str], NDArray[np.float64]]

    def load(self) -> RegressionTable:
        """Read the set.

        A missing file raises a DataMissingError, a file that differs from the published one a RunFailedError.
        """
        import torch

        content = _complete(self.title, [self.file])[self.file.path]
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

    splits: Mapping[str, Any]

    def load(self, split: str = "train", parts: Sequence[str] | None = None) -> LabelledExamples:
        """Read a split, or the part of it that is available.

        `parts` selects parts by name, in this order; by default all available ones are used. An unknown split
        or part raises a ValueError, a missing one (or none at all) a DataMissingError, and a damaged file a
        RunFailedError.
        """
        if split not in self.splits:
            raise ValueError(f"unknown split '{split}'; choose from {', '.join(self.splits)}")
        known = self._parts(split)
        if parts is not None and (not set(parts) <= set(known) or not parts or len(set(parts)) < len(parts)):
            named = ", ".join(parts) or "nothing"
            raise ValueError(f"parts of {self.title} {split} are {', '.join(known)}, got {named}")
        return self._load(split, parts)

    def _parts(self, split: str) -> Sequence[str]:
        """Return the names of the published parts of a split, by default one."""
        return (split,)

    @abstractmethod
    def _load(self, split: str, parts: Sequence[str] | None) -> LabelledExamples:
        """Read a known split or known parts of it, as `load` does."""


@dataclass(frozen=True, eq=False)
class SequenceClassification(SplitClassification):
    """Sequences generated by the project; nothing is downloaded."""

    splits: Mapping[str, int]  # number of sequences in each split
    # returns sequences, float32, shape (N, length, features), and classes, shape (N,), of a split
    draw: Callable[[str, int], tuple[NDArray[np.float32], NDArray[np.int64]]]

    def _load(self, split: str, parts: Sequence[str] | None) -> LabelledExamples:  # noqa: ARG002
        import torch

        count = self.splits[split]
        values, classes = self.draw(split, count)
        labels = torch.from_numpy(classes).long()
        return LabelledExamples(self.title, split, torch.from_numpy(values), labels, (split,), count)


@dataclass(frozen=True, eq=False)
class ImageClassification(SplitClassification):
    """Images with classes, in splits."""

    splits: Mapping[str, tuple[Part, ...]]
    # returns images, uint8, shape (N, C, H, W), and labels, shape (N,), given contents and names of files
    read: Callable[[Sequence[bytes], Sequence[str]], tuple[NDArray[np.uint8], NDArray[np.integer[Any]]]]
    # returns a remark on a part with fewer images than published, given its labels
    describe_missing: Callable[[NDArray[np.integer[Any]]], str] | None = None

    def _parts(self, split: str) -> Sequence[str]:
        return [part.name for part in self.splits[split]]

    def _load(self, split: str, parts: Sequence[str] | None) -> LabelledExamples:
        import torch

        parts_by_name = {part.name: part for part in self.splits[split]}
        chosen = [parts_by_name[name] for name in (parts or parts_by_name)]
        available = download.contents([file for part in chosen for file in part.files])
        used: list[str] = []
        pixels: list[NDArray[np.uint8]] = []
        labels: list[NDArray[np.integer[Any]]] = []
        missing: list[DataFile] = []
        for part in chosen:
            copies = _copies(part.files, available)
            if len(copies) < len(part.files):
                missing += [file for file in part.files if file.path not in available]
                continue
            names = list(copies)
            part_pixels, part_labels = self.read(list(copies.values()), names)
            used.append(names[0])
            pixels.append(part_pixels)
            labels.append(part_labels)
        if missing and (parts is not None or not used):
            raise _missing(f"{self.title} {split}", missing)
        all_labels = np.concatenate(labels).astype(np.int64)
        is_whole = len(all_labels) == sum(part.images for part in chosen)
        return LabelledExamples(
            self.title,
            split,
            torch.from_numpy(np.concatenate(pixels)),
            torch.from_numpy(all_labels),
            tuple(used),
            sum(part.images for part in self.splits[split]),
            "" if is_whole or self.describe_missing is None else self.describe_missing(all_labels),
        )


def _copies(files: Sequence[DataFile], available: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return contents by name: whole files or, if only its beginning is available, that local copy."""
    copies = {}
    for file in files:
        if file.path in available:
            copies[file.name] = available[file.path]
        elif partial := download.partial_copy(file):
            name, content = partial
            copies[name] = content
    return copies


def stratified_rows(labels: Tensor, count: int, order: int = 0) -> tuple[int, ...]:
    """Return `count` rows of `labels`, shape (N,), that cycle through the classes, each in a fixed shuffle.

    A longer selection starts with a shorter one, so that presets share their inputs. Each `order` (a seed)
    has other shuffles and starts with another class, so that single rows are stratified over orders. A
    ValueError is raised if there are fewer than `count` rows.
    """
    import pandas as pd

    if not 1 <= count <= len(labels):
        raise ValueError(f"inputs must be between 1 and {len(labels)}, got {count}")
    shuffled = np.random.default_rng(order).permutation(len(labels))
    classes = pd.Series(labels.numpy().astype(np.int64)[shuffled])  # differences of bytes would wrap
    ranks = classes.groupby(classes).cumcount()  # how many rows of the same class come first
    in_turn = np.lexsort([(classes - order) % (classes.max() + 1), ranks])
    return tuple(shuffled[in_turn[:count]].tolist())


def _complete(title: str, files: Sequence[DataFile]) -> dict[str, bytes]:
    """Return the contents of all files, by path."""
    there = download.contents(files)
    if absent := [file for file in files if file.path not in there]:
        raise _missing(title, absent)
    return there


def _missing(what: str, absent: Sequence[DataFile]) -> DataMissingError:
    """Return an error with the missing files, the folder that was searched, and how to get them."""
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
        folder = "that folder" if local else f"a folder and set {download.VARIABLE} to it"
        how = f"put it (SHA-256 {hashes}) into {folder}"
    return DataMissingError(f"{what} is not {where}, which takes {needed}; {how}")
