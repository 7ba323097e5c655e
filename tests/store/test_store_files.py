"""Saving, overwriting, links, permissions, and what is left in the folder afterwards."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys

import pytest
from forgery import sql
from storekit import PATHS, digest, digests, hasty, reports, small_learner, until

import impresslearn as il
from impresslearn.learner.loading import verify_store
from impresslearn.store import describe_store, writing
from toys import blobs, quick_learner


@pytest.fixture(scope="module")
def larger():
    """A learner with one more task than `path` has."""
    return small_learner().learn_task("more", blobs(8))


def files(folder):
    return sorted(file.name for file in folder.iterdir())


def test_a_taken_name(path, larger):
    before = path.read_bytes()
    with pytest.raises(
        il.InputError, match="exists already; choose another name or pass overwrite"
    ):
        larger.save(path)
    assert path.read_bytes() == before
    assert files(path.parent) == ["a.impress"]


def test_a_name_that_is_taken_meanwhile(tmp_path, larger, monkeypatch):
    path, real = tmp_path / "a.impress", writing._write

    def slow(*arguments):
        real(*arguments)
        path.write_text("somebody else's")

    monkeypatch.setattr(writing, "_write", slow)
    with pytest.raises(il.InputError, match="exists already"):
        larger.save(path)
    assert path.read_text() == "somebody else's"
    assert files(tmp_path) == ["a.impress"]


def test_names_that_no_file_can_have(tmp_path, larger):
    with pytest.raises(il.StoreError, match=r"there is no folder .*none"):
        larger.save(tmp_path / "none" / "a.impress")
    with pytest.raises(il.StoreError, match="File name too long"):
        larger.save(tmp_path / ("x" * 300))
    long = tmp_path / ("x" * 230 + ".impress")
    larger.save(long)
    assert verify_store(long)["tasks"] == 4


def test_overwriting(path, larger, tmp_path):
    path.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(path.name)
    with pytest.raises(il.InputError, match="exists already"):
        larger.save(link)
    larger.save(link, overwrite=True)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert digests(path) == digests(larger)
    (tmp_path / "text").write_text("no store")
    larger.save(tmp_path / "text", overwrite=True)
    assert verify_store(tmp_path / "text")["tasks"] == 4
    assert files(tmp_path) == ["a.impress", "link", "text"]


@pytest.mark.parametrize("readonly", [False, True])
def test_overwriting_what_another_process_has_open(pool, path, larger, tmp_path, readonly):
    stop, out = tmp_path / "stop", tmp_path / "out"
    pid = pool.start("read", out, path=path, stop=stop, readonly=readonly)
    until(lambda: reports(out))
    before = path.read_bytes()
    if not readonly:
        with pytest.raises(il.StoreError, match="is open elsewhere; close it there first"):
            larger.save(path, overwrite=True)
        assert path.read_bytes() == before
    stop.touch()
    pool.reported(pid, out)
    larger.save(path, overwrite=True)
    assert digests(path) == digests(larger)
    assert files(tmp_path) == ["a.impress", "out", "stop"]


def test_a_reader_notices_that_its_file_was_replaced(path):
    with il.open_store(path, readonly=True, progress=False) as reader:
        expected = digest(reader, "first")
        small_learner(seed=1).save(path, overwrite=True)
        with pytest.raises(il.StoreError, match="replaced by another file while it was open"):
            digest(reader, "first")
    assert digests(path)["first"] != expected


@pytest.mark.parametrize("gone", ["deleted", "moved", "replaced"])
def test_a_file_that_goes_away_while_open(path, larger, tmp_path, gone):
    learner = hasty(path)
    learner.learn_task("second", blobs(3))
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
        with pytest.raises(il.StoreError, match=words):
            verb("third", blobs(3))
    with pytest.raises(il.StoreError, match=words):
        digest(learner, "second")
    learner.close()
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


def test_a_store_in_use_that_cannot_be_opened_is_not_overwritten(path, larger):
    with contextlib.closing(sqlite3.connect(path)) as newer:
        newer.execute("PRAGMA journal_mode = WAL")
        newer.execute("PRAGMA user_version = 99")
        before = path.read_bytes()
        with pytest.raises(il.StoreError, match=r"in use, as its log a.impress-wal says"):
            larger.save(path, overwrite=True)
        assert path.read_bytes() == before
    larger.save(path, overwrite=True)
    assert verify_store(path)["tasks"] == 4


def test_opening_twice_keeps_the_locks(path, tmp_path, pool):
    """Looking at the file from the same process must not drop the locks on it."""
    with hasty(path) as learner:
        il.open_store(path).close()
        verify_store(path)
        describe_store(path)
        out = tmp_path / "out"
        pool.reported(pool.start("learn", out, path=path, prefix="theirs", count=1), out)
        assert (tmp_path / "a.impress-wal").exists()  # the other did not think it was the last
        learner.learn_task("ours", blobs(1))
    assert list(il.load(path).tasks_)[3:] == ["theirs-0", "ours"]


def test_odd_paths(tmp_path, larger, monkeypatch):
    for name in ("a b", "a?b#c%d&mode=memory", "é日", "-wal", "a.impress-wal", "file:a"):
        larger.save(tmp_path / name)
        with hasty(tmp_path / name) as learner:
            learner.learn_task("another", blobs(3))
        assert verify_store(tmp_path / name)["tasks"] == 5
        (tmp_path / name).unlink()
        assert files(tmp_path) == []
    monkeypatch.chdir(tmp_path)
    learner = quick_learner().add_random_masks(1).save("a")
    with hasty("a") as bound:
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


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="gives up the rights of root"
)
def test_without_permission(path):
    """A user who may only read: everything but writing works, with and without a log."""
    path.chmod(0o644)
    for folder in path.parents:
        if folder.stat().st_mode & 0o005 != 0o005:
            folder.chmod(folder.stat().st_mode | 0o005)
    expected = digests(path)["first"]

    def lines():
        script = [sys.executable, "-c", WITHOUT_PERMISSION, str(path), *PATHS]
        done = subprocess.run(script, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    found = lines()
    assert found[:2] == [expected] * 2
    assert "open it with readonly=True" in found[2]
    assert all("cannot write" in line for line in found[3:])
    assert len(found) == 5
    with hasty(path) as learner:
        learner.learn_task("second", blobs(2))
        (path.parent / "a.impress-wal").chmod(0o644)
        (path.parent / "a.impress-shm").chmod(0o644)
        assert lines()[:2] == [expected] * 2


@pytest.mark.parametrize("suffix", ["-wal", "-journal", "-shm"])
@pytest.mark.parametrize("content", [b"", b"garbage" * 1000, bytes(range(256)) * 20])
def test_garbage_logs_beside_a_store(path, tmp_path, suffix, content):
    before, garbage = digests(path), tmp_path / f"a.impress{suffix}"
    garbage.write_bytes(content)
    assert digests(path) == before
    garbage.write_bytes(content)
    with il.open_store(path, progress=False) as learner:
        assert digests(learner) == before
    with sql(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
