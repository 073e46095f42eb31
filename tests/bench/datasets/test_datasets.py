import functools
import gzip
import hashlib
import http.server
import io
import pickle
import socket
import tarfile
import threading
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_wine

from sdp_bench.bench.datasets import dataset, download, names, sets
from sdp_bench.bench.datasets.base import ImageClassification, TabularClassification, TabularRegression
from sdp_bench.bench.datasets.download import DataFile, DataMissingError
from sdp_bench.bench.datasets.sets import CIFAR10, EMNIST_LETTERS, IRIS, MNIST, NAVAL, YACHT
from sdp_bench.bench.errors import RunFailedError, UserError

RNG = np.random.default_rng(0)


def sha(content):
    return hashlib.sha256(content).hexdigest()


def zipped(content):
    """gzip without the time of day: the same bytes, and the same test's name, whenever it is called."""
    return gzip.compress(content, mtime=0)


def idx(array):
    header = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    return zipped(header + array.tobytes())


def batch(labels, first=0):
    """A batch as Krizhevsky wrote it: rows of 1024 R, 1024 G, 1024 B."""
    data = np.full((len(labels), 3072), 7, np.uint8)
    data[:, 0] = first  # red of the first pixel
    data[:, 1024 + 33] = 200  # green of row 1, column 1
    return pickle.dumps({b"data": data, b"labels": list(labels), b"filenames": [b"x"]}, protocol=2)


def tar(members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def put(folder, path, content):
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


@pytest.fixture
def local(tmp_path, monkeypatch):
    """A local copy that `SDP_BENCH_DATA` names, empty."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv(download.VARIABLE, str(folder))
    return folder


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """No local copy, and an empty cache."""
    monkeypatch.delenv(download.VARIABLE, raising=False)
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return tmp_path / "cache" / "data"


@pytest.fixture
def server(tmp_path):
    """A server on this machine: (folder that it serves, its address, paths that were asked for)."""
    folder = tmp_path / "served"
    folder.mkdir()
    requests = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            requests.append(self.path)

    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{running.server_port}/", requests
        running.shutdown()
        thread.join()


BATCHES = {f"data_batch_{k}": batch([k, 9], first=k) for k in range(1, 6)}


ARCHIVE = tar({f"cifar-10-batches-py/{name}": content for name, content in BATCHES.items()})


def with_files(images, split, change):
    """An image set whose files of one split are changed."""
    parts = tuple(replace(part, files=tuple(map(change, part.files))) for part in images.splits[split])
    return replace(images, splits={**images.splits, split: parts})


@pytest.fixture
def cifar():
    """CIFAR-10 with the hashes of the batches here and of the archive that holds them."""
    whole = DataFile("cifar10/cifar-10-python.tar.gz", sha(ARCHIVE))
    return with_files(
        CIFAR10, "train", lambda file: replace(file, known_hash=sha(BATCHES[file.name]), archive=whole)
    )


def served(images, address):
    """The same with its archive at an address."""
    return with_files(
        images,
        "train",
        lambda file: replace(file, archive=replace(file.archive, url=f"{address}cifar.tar.gz")),
    )


def test_batches_of_a_folder_all_some_or_chosen_ones(local, cifar):
    for name in ("data_batch_2", "data_batch_4"):
        put(local, f"cifar10/{name}", BATCHES[name])
    data = cifar.load()
    assert data.labels.tolist() == [2, 9, 4, 9]
    assert data.description == "CIFAR-10 train: 4 of 50000 images (data_batch_2, data_batch_4)"
    for name, content in BATCHES.items():
        put(local, f"cifar10/{name}", content)
    data = cifar.load()
    assert data.kept.shape == (10, 3, 32, 32)
    assert data.kept.dtype == torch.uint8
    assert data.labels.tolist() == [1, 9, 2, 9, 3, 9, 4, 9, 5, 9]
    assert data.kept[::2, 0, 0, 0].tolist() == [1, 2, 3, 4, 5]
    assert data.kept[0, 1, 1, 1] == 200
    chosen = ("data_batch_3", "data_batch_1")
    data = cifar.load("train", chosen)
    assert (data.labels.tolist(), data.parts) == ([3, 9, 1, 9], chosen)
    (local / "cifar10/data_batch_3").unlink()
    with pytest.raises(DataMissingError, match=r"data_batch_3 \(or cifar10/cifar-10-python.tar.gz\)"):
        cifar.load("train", chosen)


def put_arrays(folder, images, split, arrays):
    """Put arrays into a folder as the files of a split; returns the set of which they are the contents."""
    (part,) = images.splits[split]
    contents = {file.path: idx(array) for file, array in zip(part.files, arrays, strict=True)}
    for path, content in contents.items():
        put(folder, path, content)
    return with_files(images, split, lambda file: replace(file, known_hash=sha(contents[file.path])))


def test_mnist(local):
    images = RNG.integers(0, 256, (6, 28, 28), dtype=np.uint8)
    labels = np.array([5, 0, 4, 1, 9, 2], np.uint8)
    data = put_arrays(local, MNIST, "test", (images, labels)).load("test")
    assert torch.equal(data.kept[:, 0], torch.from_numpy(images))
    assert data.labels.tolist() == labels.tolist()
    assert data.description == "MNIST test: 6 of 10000 images (t10k-images-idx3-ubyte.gz)"


LETTERS = np.array([1, 1, 2, 26], np.uint8)
DRAWN = RNG.integers(0, 256, (4, 28, 28), dtype=np.uint8)


def test_letters_are_upright_and_a_copy_of_the_first_says_so(local):
    letters = put_arrays(local, EMNIST_LETTERS, "test", (DRAWN, LETTERS))
    assert torch.equal(letters.load("test").kept[:, 0], torch.from_numpy(DRAWN).mT)
    whole = local / letters.splits["test"][0].files[0].path
    put(local, "emnist/emnist-letters-test-images-some-idx3-ubyte.gz", idx(DRAWN[:3]))
    assert letters.load("test").labels.tolist() == [1, 1, 2, 26]
    whole.unlink()
    data = letters.load("test")
    assert torch.equal(data.kept[:, 0], torch.from_numpy(DRAWN[:3]).mT)
    assert data.labels.tolist() == [1, 1, 2]
    assert data.description == (
        "EMNIST letters test: 3 of 20800 images (emnist-letters-test-images-some-idx3-ubyte.gz; "
        "the first in the publisher's order, A-B only)"
    )


def test_letters_come_out_of_the_publishers_zip(local):
    contents = {"images-idx3": idx(DRAWN), "labels-idx1": idx(LETTERS)}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for kind, content in contents.items():
            archive.writestr(f"gzip/emnist-letters-test-{kind}-ubyte.gz", content)
    known = DataFile("emnist/gzip.zip", f"md5:{hashlib.md5(buffer.getvalue()).hexdigest()}")
    put(local, "emnist/gzip.zip", buffer.getvalue())
    hashes = {f"emnist-letters-test-{kind}-ubyte.gz": sha(content) for kind, content in contents.items()}
    letters = with_files(
        EMNIST_LETTERS, "test", lambda file: replace(file, known_hash=hashes[file.name], archive=known)
    )
    assert letters.load("test").labels.tolist() == [1, 1, 2, 26]


def test_uci_sets_end_with_the_target(local):
    text = b" 1.5  2 3e-2\n\n4 5\t-6\n"
    yacht = replace(YACHT, file=replace(YACHT.file, known_hash=sha(text)))
    put(local, "uci/yacht.txt", text)
    data = yacht.load()
    assert data.features.tolist() == [[1.5, 2.0], [4.0, 5.0]]
    assert data.targets.tolist() == [0.03, -6.0]
    assert data.features.dtype == torch.float64
    assert data.description == "UCI yacht: 2 rows, 2 features (yacht.txt)"


def test_a_table_that_a_library_ships_is_one_object():
    wine = TabularClassification("wine", "Wine", "", lambda _: load_wine(return_X_y=True))
    data = wine.load("standardised")
    assert data.features.shape == (178, 13)
    assert torch.allclose(data.features.mean(0), torch.zeros(13), atol=1e-6)
    torn = replace(wine, read=lambda _: (np.zeros((3, 2)), np.array([0, 2, 2])))
    with pytest.raises(RunFailedError, match="each of a class 0, 1"):
        torn.load()


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (lambda: CIFAR10.load("test"), "cifar10/test_batch .*www.cs.toronto.edu.*unset SDP_BENCH_DATA"),
        (lambda: MNIST.load("train"), "mnist/train-images-idx3-ubyte.gz.*unset SDP_BENCH_DATA"),
        (lambda: EMNIST_LETTERS.load("test"), "emnist-letters-test-images.*biometrics.nist.gov"),
        (NAVAL.load, "uci/naval-propulsion-plant.txt.*githubusercontent.*unset"),
    ],
)
def test_a_missing_data_set_is_one_line_that_says_how_to_get_it(local, load, message):
    with pytest.raises(DataMissingError, match=message) as caught:
        load()
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("kind", ["batch", "archive"])
def test_a_damaged_local_file_is_refused(local, cifar, kind):
    if kind == "batch":
        put(local, "cifar10/data_batch_1", BATCHES["data_batch_1"][:-1] + b"x")
    else:
        put(local, "cifar10/cifar-10-python.tar.gz", ARCHIVE[:-1])
    with pytest.raises(RunFailedError, match=r"is not the published file .*get it again"):
        cifar.load()


def test_download_once(cache, cifar, server, capsys):
    folder, address, requests = server
    put(folder, "cifar.tar.gz", ARCHIVE)
    cifar = served(cifar, address)
    first = cifar.load()
    assert first.parts == tuple(BATCHES)
    assert torch.equal(cifar.load().kept, first.kept)
    assert requests == ["/cifar.tar.gz"]
    assert (cache / "cifar10/cifar-10-python.tar.gz").read_bytes() == ARCHIVE
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("downloading cifar.tar.gz (")
    assert output.err.count("\n") == 1


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("cifar.tar.gz", "what came is not the published file"),
        ("absent.tar.gz", "the server answered 404"),
        (None, "no answer from the server.*or set SDP_BENCH_DATA"),
    ],
)
def test_a_download_that_fails_leaves_nothing_behind(cache, cifar, server, file, message):
    folder, address, _ = server
    if file is None:
        with socket.socket() as free:  # a port that nobody listens to
            free.bind(("127.0.0.1", 0))
            address = f"http://127.0.0.1:{free.getsockname()[1]}/"
    else:
        put(folder, file, ARCHIVE + b"more")
    images = served(cifar, address if file != "absent.tar.gz" else f"{address}other/")
    with pytest.raises(DataMissingError, match=rf"cifar.tar.gz: {message}") as caught:
        images.load()
    assert "\n" not in str(caught.value)
    assert not [path for path in cache.rglob("*") if path.is_file()]


class _Malicious:
    def __reduce__(self):
        return print, ("code of the file ran",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_batch_that_asks_for_code_is_refused(protocol, capsys):
    content = pickle.dumps({b"data": _Malicious(), b"labels": []}, protocol=protocol)
    with pytest.raises(RunFailedError, match=r"it asks for .*print"):
        sets.cifar_batch(content, "data_batch_1")
    assert capsys.readouterr().out == ""


NO_FILES = {
    sets.cifar_batch: (
        b"",
        b"nonsense",
        pickle.dumps([1, 2]),
        pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]}),
        pickle.dumps({b"data": np.zeros((2, 3071), np.uint8), b"labels": [1, 2]}),
        pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, None]}),
    ),
    sets.idx: (
        b"",
        b"nonsense",
        zipped(bytes([0, 0, 8, 2, 0, 0, 0, 1])),
        idx(np.zeros((2, 2), np.uint8))[:-9],
        zipped(bytes([0, 0, 8, 1, 0, 0, 0, 3, 1, 2])),
        zipped(bytes([0, 0, 9, 1, 0, 0, 0, 2, 1, 2])),
    ),
    sets.columns: (b"", b"1 2\n3\n", b"1 a\n", b"1 nan\n", b"\xff"),
}


@pytest.mark.parametrize("read", NO_FILES, ids=lambda read: read.__name__)
def test_a_file_in_another_format_is_refused(read):
    for content in NO_FILES[read]:
        with pytest.raises(RunFailedError, match="name is not a"):
            read(content, "name")


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (lambda: CIFAR10.load("valid"), "unknown split 'valid'; choose from train, test"),
        (lambda: MNIST.load("valid"), "choose from train, test"),
        (lambda: CIFAR10.load("train", ("data_batch_6",)), "data_batch_5, got data_batch_6"),
        (lambda: CIFAR10.load("train", ()), "got nothing"),
    ],
)
def test_bad_input(load, message):
    with pytest.raises(ValueError, match=message):
        load()


def test_data_sets_are_found_by_name_and_kind():
    assert dataset("iris", TabularClassification) is IRIS
    assert names(ImageClassification) == ("cifar10", "emnist-letters", "mnist")
    with pytest.raises(UserError, match="data set 'iris' not found; choose from boston"):
        dataset("iris", TabularRegression)


def test_batches_of_images_are_between_zero_and_one(local, cifar):
    put(local, "cifar10/data_batch_1", BATCHES["data_batch_1"])
    images = cifar.load().batch([1, 0, 1])
    assert images.shape == (3, 3, 32, 32)
    assert images.dtype == torch.float32
    assert images[0, 1, 1, 1] == np.float32(200) / np.float32(255)
    assert 0 <= images.min() <= images.max() <= 1


def test_more_images_than_labels_are_refused(local):
    letters = put_arrays(local, EMNIST_LETTERS, "test", (DRAWN[:3], LETTERS[:3]))
    (local / letters.splits["test"][0].files[0].path).unlink()
    put(local, "emnist/emnist-letters-test-images-some-idx3-ubyte.gz", idx(DRAWN))
    with pytest.raises(RunFailedError, match="its labels do not belong together"):
        letters.load("test")


def test_one_file_of_a_pair_is_not_enough(local):
    half = put_arrays(local, MNIST, "test", (DRAWN, LETTERS))
    (local / half.splits["test"][0].files[1].path).unlink()
    with pytest.raises(DataMissingError, match=r"mnist/t10k-labels-idx1-ubyte.gz"):
        half.load("test")


def test_a_file_of_the_archive_that_is_not_the_published_one_is_refused(local, cifar):
    put(local, "cifar10/cifar-10-python.tar.gz", ARCHIVE)
    cifar = with_files(cifar, "train", lambda file: replace(file, known_hash="0" * 64))
    with pytest.raises(RunFailedError, match=r"data_batch_1 is not the published file"):
        cifar.load()


def test_the_variable_must_name_a_folder(monkeypatch):
    monkeypatch.setenv(download.VARIABLE, "/nowhere/at/all")
    with pytest.raises(DataMissingError, match="SDP_BENCH_DATA names /nowhere/at/all, which is not"):
        MNIST.load()


def test_a_set_without_an_address_needs_a_folder(cache):
    yacht = replace(YACHT, file=replace(YACHT.file, url=""))
    with pytest.raises(DataMissingError, match="SDP_BENCH_DATA"):
        yacht.load()


def test_files_without_an_archive_are_downloaded(cache, server):
    folder, address, _ = server
    mnist = put_arrays(folder, MNIST, "test", (DRAWN, LETTERS))
    mnist = with_files(mnist, "test", lambda file: replace(file, url=address + file.path))
    assert mnist.load("test").labels.tolist() == LETTERS.tolist()


def test_a_damaged_download_is_replaced(cache, cifar, server):
    folder, address, asked = server
    put(folder, "cifar.tar.gz", ARCHIVE)
    put(cache, "cifar10/cifar-10-python.tar.gz", ARCHIVE[:-5])
    assert len(served(cifar, address).load()) == 10
    assert asked == ["/cifar.tar.gz"]
