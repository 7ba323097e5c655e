"""Saving, overwriting, links, permissions, and what is left in the folder afterwards."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import threading

import pytest
from storekit import HERE, digest, reports, small_learner, until

import impresslearn as il
from impresslearn.learner.loading import verify_store
from impresslearn.store import describe_store, writing
from toys import blobs, quick_learner


@pytest.fixture
def path(tmp_path):
    small_learner().save(tmp_path / "a.impress")
    return tmp_path / "a.impress"


def files(folder):
    return sorted(file.name for file in folder.iterdir())


def test_a_taken_name(path):
    before = path.read_bytes()
    with pytest.raises(
        il.InputError, match="exists already; choose another name or pass overwrite"
    ):
        small_learner().save(path)
    assert path.read_bytes() == before
    assert files(path.parent) == ["a.impress"]


def test_a_name_that_is_taken_meanwhile(tmp_path, monkeypatch):
    path, real = tmp_path / "a.impress", writing._write

    def slow(*arguments):
        real(*arguments)
        path.write_text("somebody else's")

    monkeypatch.setattr(writing, "_write", slow)
    with pytest.raises(il.InputError, match="exists already"):
        small_learner().save(path)
    assert path.read_text() == "somebody else's"
    assert files(tmp_path) == ["a.impress"]


def test_a_missing_folder(tmp_path):
    with pytest.raises(il.StoreError, match=r"there is no folder .*none"):
        small_learner().save(tmp_path / "none" / "a.impress")


def test_overwriting(path, tmp_path):
    path.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(path.name)
    larger = small_learner().learn_task("more", blobs(8))
    with pytest.raises(il.InputError, match="exists already"):
        larger.save(link)
    larger.save(link, overwrite=True)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert digest(il.load(path), "more") == digest(larger, "more")
    (tmp_path / "text").write_text("no store")
    larger.save(tmp_path / "text", overwrite=True)
    assert verify_store(tmp_path / "text")["tasks"] == 4
    assert files(tmp_path) == ["a.impress", "link", "text"]


@pytest.mark.parametrize("readonly", [False, True])
def test_overwriting_what_another_process_has_open(pool, path, tmp_path, readonly):
    stop, out = tmp_path / "stop", tmp_path / "out"
    pid = pool.start("hold", out, path=str(path), stop=str(stop), readonly=readonly)
    until(lambda: reports(out))
    before, larger = path.read_bytes(), small_learner().learn_task("more", blobs(8))
    if not readonly:
        with pytest.raises(il.StoreError, match="is open elsewhere; close it there first"):
            larger.save(path, overwrite=True)
        assert path.read_bytes() == before
    stop.touch()
    assert pool.wait(pid) == 0
    larger.save(path, overwrite=True)
    assert digest(il.load(path), "more") == digest(larger, "more")
    assert files(tmp_path) == ["a.impress", "out", "stop"]


def test_a_reader_notices_that_its_file_was_replaced(path):
    reader = il.open_store(path, readonly=True, progress=False)
    expected = digest(reader, "first")
    small_learner(seed=1).save(path, overwrite=True)
    with pytest.raises(il.StoreError, match="replaced by another file while it was open"):
        digest(reader, "first")
    reader.close()
    assert digest(il.load(path), "first") != expected


@pytest.mark.parametrize("gone", ["deleted", "moved", "replaced"])
def test_a_file_that_goes_away_while_open(path, tmp_path, gone):
    learner = il.open_store(path, progress=False)
    learner.learn_task("second", blobs(3))
    if gone == "moved":
        path.rename(tmp_path / "b.impress")
    else:
        path.unlink()
    if gone == "replaced":
        for log in tmp_path.glob("*-*"):
            log.unlink()
        small_learner(seed=1).save(path)
        other = il.open_store(path, progress=False)
        other.learn_task("other", blobs(4))
    words = (
        "replaced by another" if gone == "replaced" else "was moved or deleted while it was open"
    )
    for verb in (learner.learn_task, learner.learn_basis):
        with pytest.raises(il.StoreError, match=words):
            verb("third", blobs(3))
    with pytest.raises(il.StoreError, match=words):
        digest(learner, "second")
    learner.close()
    if gone == "replaced":
        other.learn_task("after", blobs(5))
        other.close()
        assert list(il.load(path).tasks_)[3:] == ["other", "after"]
    if gone == "moved":
        (tmp_path / "a.impress-wal").rename(tmp_path / "b.impress-wal")
        assert verify_store(tmp_path / "b.impress")["tasks"] == 4


def test_logs_of_a_store_that_was_deleted(path, tmp_path):
    """A new store of the same name must not take them for its own."""
    learner = il.open_store(path, progress=False)
    learner.learn_task("second", blobs(3))
    for log in ("a.impress-wal", "a.impress-shm"):
        shutil.copy(tmp_path / log, tmp_path / f"kept{log[9:]}")
    learner.close()
    path.unlink()
    for log in ("-wal", "-shm"):
        shutil.move(tmp_path / f"kept{log}", tmp_path / f"a.impress{log}")
    fresh = small_learner(seed=4)
    fresh.save(path)
    assert files(tmp_path) == ["a.impress"]
    assert digest(il.load(path), "first") == digest(fresh, "first")


def test_a_store_in_use_that_cannot_be_opened_is_not_overwritten(path):
    with contextlib.closing(sqlite3.connect(path)) as newer:
        newer.execute("PRAGMA journal_mode = WAL")
        newer.execute("PRAGMA user_version = 99")
        before = path.read_bytes()
        with pytest.raises(il.StoreError, match=r"in use, as its log a.impress-wal says"):
            small_learner().save(path, overwrite=True)
        assert path.read_bytes() == before
    small_learner().save(path, overwrite=True)
    assert verify_store(path)["tasks"] == 3


def test_threads_that_save_to_one_path(tmp_path):
    path, learner, errors = tmp_path / "a.impress", small_learner(), []

    def save():
        try:
            learner.save(path, overwrite=True)
        except il.StoreError as error:  # another thread is at it
            errors.append(str(error))

    threads = [threading.Thread(target=save) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verify_store(path)["tasks"] == 3
    assert files(tmp_path) == ["a.impress"]
    words = ("open elsewhere", "is in use")
    assert [error for error in errors if not any(word in error for word in words)] == []


def test_opening_twice_keeps_the_locks(path, tmp_path, pool):
    """Looking at the file from the same process must not drop the locks on it."""
    with il.open_store(path, progress=False) as learner:
        il.open_store(path).close()
        verify_store(path)
        describe_store(path)
        out = tmp_path / "out"
        pid = pool.start("learn_named", out, path=str(path), names=["theirs"])
        assert pool.wait(pid) == 0
        assert (tmp_path / "a.impress-wal").exists()  # the other did not think it was the last
        learner.learn_task("ours", blobs(1))
    assert list(il.load(path).tasks_)[3:] == ["theirs", "ours"]


def test_a_long_name(tmp_path):
    path = tmp_path / ("x" * 230 + ".impress")
    small_learner().save(path)
    assert verify_store(path)["tasks"] == 3
    with pytest.raises(il.StoreError, match="File name too long"):
        small_learner().save(tmp_path / ("x" * 300))


def test_odd_paths(tmp_path, monkeypatch):
    for name in ("a b", "a?b#c%d&mode=memory", "é日", "-wal", "a.impress-wal", "file:a"):
        small_learner().save(tmp_path / name)
        with il.open_store(tmp_path / name, progress=False) as learner:
            learner.learn_task("more", blobs(3))
        assert verify_store(tmp_path / name)["tasks"] == 4
        (tmp_path / name).unlink()
        assert files(tmp_path) == []
    monkeypatch.chdir(tmp_path)
    learner = quick_learner().add_random_masks(1).save("a")
    with il.open_store("a", progress=False) as bound:
        os.chdir("/")
        bound.learn_task("more", blobs(3))
    assert len(learner.tasks_) == 0
    assert verify_store(tmp_path / "a")["tasks"] == 1


WITHOUT_PERMISSION = """
import os, sys
sys.path[:0] = sys.argv[2:]
from storekit import *
il.load(sys.argv[1]).logits(INPUTS, "first")  # everything is imported and compiled
os.setgid(65534); os.setuid(65534)
path = sys.argv[1]
print(digest(il.load(path), "first"))
with il.open_store(path, readonly=True) as learner:
    print(digest(learner, "first"))
for verb in (il.open_store, lambda path: il.load(path).save(path, overwrite=True),
             lambda path: il.load(path).save(path + ".other")):
    try:
        verb(path)
    except il.StoreError as error:
        print(error)
"""


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="gives up the rights of root"
)
def test_without_permission(path):
    """A user who may only read: everything but writing works, with and without a log."""
    path.chmod(0o644)
    for folder in path.parents:
        if folder.stat().st_mode & 0o005 != 0o005:
            folder.chmod(folder.stat().st_mode | 0o005)
    expected = digest(il.load(path), "first")
    script = [sys.executable, "-c", WITHOUT_PERMISSION, str(path)]
    paths = [str(HERE), str(HERE.parent), *filter(None, sys.path)]

    def lines():
        done = subprocess.run([*script, *paths], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    found = lines()
    assert found[:2] == [expected] * 2
    assert "open it with readonly=True" in found[2]
    assert all("cannot write" in line for line in found[3:])
    assert len(found) == 5
    with il.open_store(path, progress=False) as learner:
        learner.learn_task("second", blobs(2))
        (path.parent / "a.impress-wal").chmod(0o644)
        (path.parent / "a.impress-shm").chmod(0o644)
        assert lines()[:2] == [expected] * 2
