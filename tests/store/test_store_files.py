"""Saving, overwriting, links, permissions, full disks, and what is left in the folder."""

import os
import shutil
import subprocess
import sys

import pytest
from storekit import digest, digests, files, hasty, reports, small_learner, sql, until

import impresslearn as il
from impresslearn.learner.loading import verify_store
from impresslearn.store.database import Database
from impresslearn.store.store_files import compact_store, describe_store
from toys import blobs, quick_learner, refused


@pytest.fixture(scope="module")
def larger():
    """A learner with one more task than `path` has."""
    return small_learner().learn_task("more", blobs(8))


def test_overwriting(path, larger, tmp_path):
    path.chmod(0o640)
    link, text, before = tmp_path / "link", tmp_path / "text", path.read_bytes()
    link.symlink_to(path.name)
    text.write_text("no store")
    for taken in (path, link, text):
        words = "exists already; choose another name, or overwrite"
        refused(words, larger.save, taken)
        assert path.read_bytes() == before
        larger.save(taken, overwrite=True)
        assert digests(taken) == digests(larger)
        before = path.read_bytes()
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert files(tmp_path) == ["a.impress", "link", "text"]


def test_two_that_make_one_store(larger, tmp_path, monkeypatch):
    """The second one is not advised to overwrite the first one's store."""
    place, copy_to = tmp_path / "new.impress", Database.copy_to

    def slowly(database, connection):
        copy_to(database, connection)
        if connection.execute("PRAGMA database_list").fetchone()[2]:  # a file
            place.write_bytes(b"of another process")

    monkeypatch.setattr(Database, "copy_to", slowly)
    refused("made by another process meanwhile; use it, or choose", larger.save, place)
    assert place.read_bytes() == b"of another process"


def test_overwriting_what_another_process_has_open(pool, path, larger, tmp_path):
    stop, out = tmp_path / "stop", tmp_path / "out"
    process = pool.start("read", out, path=path, stop=stop)
    until(lambda: reports(out))
    before = path.read_bytes()
    with pytest.raises(il.StoreError, match="is open elsewhere; close it there first"):
        larger.save(path, overwrite=True)
    assert path.read_bytes() == before
    stop.touch()
    pool.reported(process, out)
    larger.save(path, overwrite=True)
    assert digests(path) == digests(larger)
    assert files(tmp_path) == ["a.impress", "out", "stop"]


@pytest.mark.parametrize("gone", ["deleted", "moved", "replaced"])
def test_a_file_that_goes_away_while_open(path, larger, tmp_path, gone):
    learner, reader = hasty(path), il.open_store(path, readonly=True, progress=False)
    learner.learn_task("second", blobs(3))
    digest(reader, "first")
    if gone == "moved":
        path.rename(tmp_path / "b.impress")
    else:
        path.unlink()
    if gone == "replaced":
        for log in tmp_path.glob("*-*"):
            log.unlink()
        larger.save(path)
        other = hasty(path)
    words = "replaced by another" if gone == "replaced" else "moved or deleted while it was open"
    for verb in (learner.learn_task, learner.learn_basis):
        refused(words, verb, "third", blobs(3), error=il.StoreError)
    for each in (learner, reader):
        refused(words, digest, each, "first", error=il.StoreError)
        each.close()
    if gone == "replaced":
        other.learn_task("after", blobs(5))
        other.close()
        assert list(il.load(path).tasks_)[3:] == ["more", "after"]
    if gone == "moved":
        (tmp_path / "a.impress-wal").rename(tmp_path / "b.impress-wal")
        assert verify_store(tmp_path / "b.impress")["tasks"] == 4


def test_logs_of_a_store_that_was_deleted(path, larger, tmp_path):
    """A new store of the same name must not take them for its own."""
    with hasty(path) as learner:
        learner.learn_task("second", blobs(3))
        for log in ("wal", "shm"):
            shutil.copy(tmp_path / f"a.impress-{log}", tmp_path / f"kept-{log}")
    path.unlink()
    for log in ("wal", "shm"):
        shutil.move(tmp_path / f"kept-{log}", tmp_path / f"a.impress-{log}")
    larger.save(path)
    assert files(tmp_path) == ["a.impress"]
    assert digests(path) == digests(larger)


def test_opening_twice_keeps_the_locks(path, tmp_path, pool):
    """Looking at the file from the same process must not drop the locks on it."""
    with hasty(path) as learner:
        il.open_store(path).close()
        verify_store(path)
        describe_store(path)
        pool.learned(path, tmp_path / "theirs", count=1)
        assert (tmp_path / "a.impress-wal").exists()  # the other did not think it was the last
        learner.learn_task("ours", blobs(1))
        copy = shutil.copy(path, tmp_path / "copy")  # of an open store has all its tasks
        assert digests(copy) == digests(learner)
    assert list(il.load(path).tasks_)[3:] == ["theirs-0", "ours"]


def test_odd_paths(tmp_path, larger, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a b", "a?b#c%d&mode=memory", "é日", "-wal", "a.impress-wal", "file:a", "x" * 240):
        larger.save(name)
        with hasty(name) as learner:
            os.chdir("/")
            learner.learn_task("another", blobs(3))
        assert verify_store(tmp_path / name)["tasks"] == 5
        os.chdir(tmp_path)
        os.unlink(name)
        assert files(tmp_path) == []


@pytest.mark.parametrize("suffix", ["-wal", "-journal", "-shm"])
def test_garbage_logs_beside_a_store(path, tmp_path, suffix):
    before, garbage = digests(path), tmp_path / f"a.impress{suffix}"
    content = bytes(range(256)) * 20
    garbage.write_bytes(content)
    assert digests(path) == before
    garbage.write_bytes(content)
    with il.open_store(path, progress=False) as learner:
        assert digests(learner) == before
    with sql(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


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


@pytest.mark.parametrize("leave", [0, 8192, 32768])
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


@pytest.mark.parametrize("leave", [0, 4096, 20480])
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
    refused("cannot write .*: the disk is full", compact_store, path, error=il.StoreError)
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
        refused("open it with readonly=True", il.open_store, file, error=il.StoreError)
        refused(f"cannot write {file}", learner.save, file, overwrite=True, error=il.StoreError)
