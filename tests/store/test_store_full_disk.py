"""A full disk: one clear error, nothing changed, and learning goes on once there is room."""

import contextlib
import subprocess
import sys

import pytest
from storekit import digests, files, hasty

import impresslearn as il
from impresslearn.learner.loading import verify_store
from impresslearn.store import compact_store
from toys import blobs, quick_learner


@pytest.fixture
def disk(tmp_path, small_store):
    """A file system of 1 MB, with a store a.impress."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting is not permitted here")
    (folder / "a.impress").write_bytes(small_store)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk, leave=0):
    """Takes all room but `leave` bytes; returns the file that takes it."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            file.truncate(max(0, ballast.stat().st_size - leave))
    return ballast


@pytest.mark.parametrize("leave", [0, 4096, 8192, 20480, 32768, 40960])
def test_learning_on_a_full_disk(disk, leave):
    path, number = disk / "a.impress", 0
    with hasty(path) as learner:
        ballast, caught = fill(disk, leave), None
        while caught is None:
            expected, masks, number = digests(learner), len(learner.bank_), number + 1
            verb = learner.learn_basis if number % 2 else learner.learn_task
            try:
                verb(f"new-{number}", blobs(number))
            except il.StoreError as error:
                caught = str(error)
        assert "the disk is full" in caught
        assert caught.count("\n") == 0
        assert (len(learner.bank_), digests(learner)) == (masks, expected)
        ballast.unlink()
        learner.learn_basis(f"new-{number}", blobs(number))
        expected = digests(learner)
    assert verify_store(path) == {"tasks": len(expected), "masks": masks + 1}
    assert digests(path) == expected


@pytest.mark.parametrize("leave", [0, 4096, 20480, 40960, 53248])
def test_saving_on_a_full_disk(disk, leave):
    path, other = disk / "a.impress", disk / "b.impress"
    before = path.read_bytes()
    larger = quick_learner(il.create_backbone("lenet_300_100", 3, in_features=16, widths=[200, 90]))
    ballast = fill(disk, leave)
    for target in (path, other):
        with pytest.raises(il.StoreError, match=f"cannot write {target}: the disk is full"):
            larger.save(target, overwrite=True)
    assert path.read_bytes() == before
    assert files(disk) == ["a.impress", "ballast"]
    ballast.unlink()
    larger.save(path, overwrite=True)
    verify_store(path)


def test_compacting_on_a_full_disk(disk):
    path = disk / "a.impress"
    before, ballast = digests(path), fill(disk)
    with contextlib.suppress(il.StoreError):
        compact_store(path)
    ballast.unlink()
    verify_store(path)
    assert digests(path) == before


def test_reading_where_nothing_can_be_written(disk):
    path, copy = disk / "a.impress", disk / "copy.impress"
    learner = il.load(path)
    with il.open_store(path, progress=False):
        copy.write_bytes(path.read_bytes())  # in the mode that has a log
    mount = ["mount", "-o", "remount,ro", str(disk)]
    assert subprocess.run(mount, capture_output=True).returncode == 0
    for file in (path, copy):
        assert digests(file) == digests(learner)
        with il.open_store(file, readonly=True) as reader:
            assert digests(reader) == digests(learner)
        with pytest.raises(il.StoreError, match="open it with readonly=True"):
            il.open_store(file)
        with pytest.raises(il.StoreError, match=f"cannot write {file}"):
            learner.save(file, overwrite=True)
