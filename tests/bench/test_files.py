import errno
import io
import os
import zipfile

import numpy as np
import pytest

from sdp_bench.bench import files
from sdp_bench.bench.errors import RunFailedError, UserError


def no_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "old.txt"
    path.write_bytes(b"old")
    return path


@pytest.mark.parametrize(("content", "written"), [(b"\x00\xff", b"\x00\xff"), ("σ\n", b"\xcf\x83\n")])
def test_a_file_is_written_with_its_folders(tmp_path, content, written):
    path = tmp_path / "new" / "folder" / "file"
    files.check_writable(path)
    assert not path.exists()
    assert files.write(path, content) == path
    assert path.read_bytes() == written
    assert [p.name for p in path.parent.iterdir()] == ["file"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without named pipes")
def test_a_pipe_is_written_to_and_stays_one(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        files.check_writable(pipe)
        files.write(pipe, "new")
        assert os.read(reader, 100) == b"new"
    finally:
        os.close(reader)
    assert [p.is_fifo() for p in tmp_path.iterdir()] == [True]


def test_an_existing_file_is_replaced_by_writing_and_not_by_the_check(old):
    files.check_writable(old)
    assert old.read_bytes() == b"old"
    files.write(old, "new")
    assert old.read_bytes() == b"new"


def test_only_a_file_is_removed_as_old(tmp_path):
    old = tmp_path / "old.json"
    old.write_text("{}")
    for path in (old, tmp_path / "absent.json"):
        files.remove_old(path)
    with pytest.raises(RunFailedError, match="Is a directory"):
        files.remove_old(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_the_old_file_and_no_temporary_file(old, monkeypatch):
    monkeypatch.setattr(type(old), "replace", no_space)
    with pytest.raises(RunFailedError) as raised:
        files.write(old, "new")
    assert str(raised.value) == f"cannot write {old}: No space left on device"
    assert old.read_bytes() == b"old"
    assert [p.name for p in old.parent.iterdir()] == ["old.txt"]


def test_an_interruption_leaves_the_old_file_and_no_temporary_file(old, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(old), "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.write(old, "new")
    assert [path.read_bytes() for path in old.parent.iterdir()] == [b"old"]


@pytest.mark.parametrize("act", [files.check_writable, lambda path: files.write(path, "new")])
@pytest.mark.parametrize(
    ("relative", "reason"),
    [
        ("folder", "Is a directory"),
        ("old.txt/file", "File exists"),
        ("old.txt/folder/file", "Not a directory"),
    ],
)
def test_a_path_that_cannot_be_written_is_reported_in_one_line(old, act, relative, reason):
    (old.parent / "folder").mkdir()
    path = old.parent / relative
    with pytest.raises(RunFailedError) as raised:
        act(path)
    assert str(raised.value) == f"cannot write {path}: {reason}"
    assert sorted(p.name for p in old.parent.iterdir()) == ["folder", "old.txt"]
    assert old.read_bytes() == b"old"


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("1,2\n3,4.5e-1\n", [[1, 2], [3, 0.45]]),
        ("\ufeffwidth, height\r\n1, 2\r\n\r\n", [[1, 2]]),
        ("-1\n", [[-1]]),
    ],
)
def test_a_csv_file_is_a_table_with_or_without_a_header(tmp_path, text, rows):
    (tmp_path / "x.csv").write_text(text, encoding="utf-8", newline="")
    assert files.read_array(tmp_path / "x.csv").tolist() == rows
    assert files.read_arrays(tmp_path / "x.csv")["arr_0"].tolist() == rows


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n1,2\n3\n", "line 3: 1 columns, but line 2 has 2"),
        (b"1,2\n3,x\n", "line 2: 'x' is not a number"),
        (b"a,b\n", "no line of numbers"),
        (b"", "no line of numbers"),
        (b"1,\xff\n", "not a CSV file"),
    ],
)
def test_errors_of_csv_files_name_the_line(tmp_path, content, message):
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(UserError, match=message):
        files.read_array(tmp_path / "x.csv")


def test_compressed_arrays_are_refused_by_their_size_before_they_are_read(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "x.npz", a=np.zeros((100, 1000)), b=np.ones(3))
    assert files.read_arrays(tmp_path / "x.npz")["a"].shape == (100, 1000)
    monkeypatch.setattr(files, "MOST_BYTES", 8 * 100 * 1000)  # headers and b are larger
    monkeypatch.setattr(np.lib.npyio.NpzFile, "__getitem__", None)
    with pytest.raises(UserError, match=r"800,280 bytes of numbers, more than 800,000"):
        files.read_arrays(tmp_path / "x.npz")


@pytest.mark.parametrize("shape", [(2**50,), (2**31, 2**31)])
def test_an_array_whose_header_claims_more_than_it_holds_is_refused(tmp_path, shape):
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a.npy", buffer.getvalue() + bytes(80))
    with pytest.raises(UserError, match=r"not a \.npy array"):
        files.read_arrays(tmp_path / "x.npz")
