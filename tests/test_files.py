"""Files are written whole or not at all."""

import errno
import os
import stat

import pytest

from impresslearn.errors import InputError
from impresslearn.files import new_file, write_file
from toys import refused


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_file_and_nothing_else(step, error, tmp_path, monkeypatch):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")

    def fail(*_):
        raise error

    monkeypatch.setattr(os, step, fail)
    expected = InputError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected) as caught:
        write_file(path, b"new")
    if expected is InputError:
        assert str(caught.value) == f"cannot write {path}: No space left"
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("a.bin", b"old")]


def test_a_folder_that_cannot_be_synchronised_does_not_matter(tmp_path, monkeypatch):
    synchronise = os.fsync

    def refuse_folders(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        synchronise(handle)

    monkeypatch.setattr(os, "fsync", refuse_folders)
    assert write_file(tmp_path / "a", b"new").read_bytes() == b"new"


def test_a_file_takes_the_place_of_the_old_one(tmp_path):
    path, link = tmp_path / "a.txt", tmp_path / "link"
    path.write_bytes(b"old")
    path.chmod(0o640)
    link.symlink_to(path)
    assert write_file(link, "né\udc80w") == link
    assert link.is_symlink()
    assert path.read_bytes() == "né\\udc80w".encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert write_file(tmp_path / "a" / "b" / "new", b"", folders=True).exists()


def test_a_place_that_is_taken_meanwhile(tmp_path):
    with new_file(tmp_path / "a", overwrite=False) as temporary:
        temporary.write_bytes(b"first")
    with pytest.raises(FileExistsError), new_file(tmp_path / "a", overwrite=False) as temporary:
        temporary.write_bytes(b"second")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("a", b"first")]


@pytest.mark.parametrize("name", ["", "none/a", "a\0b", "x" * 300, "/dev/null"])
def test_places_where_no_file_can_be(tmp_path, name):
    refused("^cannot write ", write_file, tmp_path / name, b"x")
    assert list(tmp_path.iterdir()) == []
    refused("path must be a string or Path, got int", write_file, 7, b"x")
