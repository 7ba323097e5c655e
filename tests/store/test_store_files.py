"""Saving, overwriting, links, permissions, and what is left in the folder afterwards."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from forgery import sql
from storekit import PATHS, digest, digests, files, hasty, reports, small_learner, until

import impresslearn as il
from impresslearn.learner.loading import verify_store
from impresslearn.store import describe_store, writing
from toys import blobs


@pytest.fixture(scope="module")
def larger():
    """A learner with one more task than `path` has."""
    return small_learner().learn_task("more", blobs(8))


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
    link, text, before = tmp_path / "link", tmp_path / "text", path.read_bytes()
    link.symlink_to(path.name)
    text.write_text("no store")
    for taken in (path, link, text):
        words = "exists already; choose another name or pass overwrite"
        with pytest.raises(il.InputError, match=words):
            larger.save(taken)
        assert path.read_bytes() == before
        larger.save(taken, overwrite=True)
        assert digests(taken) == digests(larger)
        before = path.read_bytes()
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert files(tmp_path) == ["a.impress", "link", "text"]


def test_overwriting_what_another_process_has_open(pool, path, larger, tmp_path):
    stop, out = tmp_path / "stop", tmp_path / "out"
    pid = pool.start("read", out, path=path, stop=stop)
    until(lambda: reports(out))
    before = path.read_bytes()
    with pytest.raises(il.StoreError, match="is open elsewhere; close it there first"):
        larger.save(path, overwrite=True)
    assert path.read_bytes() == before
    stop.touch()
    pool.reported(pid, out)
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
        with pytest.raises(il.StoreError, match=words):
            verb("third", blobs(3))
    for each in (learner, reader):
        with pytest.raises(il.StoreError, match=words):
            digest(each, "first")
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
        pool.learned(path, tmp_path / "theirs", count=1)
        assert (tmp_path / "a.impress-wal").exists()  # the other did not think it was the last
        learner.learn_task("ours", blobs(1))
    assert list(il.load(path).tasks_)[3:] == ["theirs-0", "ours"]


def test_odd_paths(tmp_path, larger, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a b", "a?b#c%d&mode=memory", "é日", "-wal", "a.impress-wal", "file:a"):
        larger.save(name)
        with hasty(name) as learner:
            os.chdir("/")
            learner.learn_task("another", blobs(3))
        assert verify_store(tmp_path / name)["tasks"] == 5
        os.chdir(tmp_path)
        os.unlink(name)
        assert files(tmp_path) == []


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
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="gives up root's rights")
def test_without_permission(small_store):
    """A user who may only read: everything but writing works, with and without a log."""

    def lines():
        script = [sys.executable, "-c", WITHOUT_PERMISSION, str(path), *PATHS]
        done = subprocess.run(script, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.impress"
        path.write_bytes(small_store)
        path.parent.chmod(0o755)
        expected = [digests(path)["first"]] * 2
        found = lines()
        assert found[:2] == expected
        assert [line.startswith("cannot write") for line in found[2:]] == [True] * 3
        assert "open it with readonly=True" in found[2]
        with hasty(path) as learner:
            learner.learn_task("second", blobs(2))
            for log in ("wal", "shm"):
                path.with_name(f"a.impress-{log}").chmod(0o644)
            assert lines()[:2] == expected


@pytest.mark.parametrize("suffix", ["-wal", "-journal", "-shm"])
@pytest.mark.parametrize("content", [b"", bytes(range(256)) * 20])
def test_garbage_logs_beside_a_store(path, tmp_path, suffix, content):
    before, garbage = digests(path), tmp_path / f"a.impress{suffix}"
    garbage.write_bytes(content)
    assert digests(path) == before
    garbage.write_bytes(content)
    with il.open_store(path, progress=False) as learner:
        assert digests(learner) == before
    with sql(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
