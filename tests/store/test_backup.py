"""Copies of a store in use, putting them back, and deleting former versions."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

import impresslearn as il
from impresslearn.errors import InputError, StoreError
from impresslearn.learner import verify_store
from impresslearn.store import backup_store, compact_store
from toys import blobs, quick_learner, refused

INPUTS = blobs(0)[0]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    quick_learner().add_random_masks(2).learn_task("a", blobs(0)).save(tmp_path / "s.impress")
    return tmp_path / "s.impress"


def test_copies_of_a_store_that_is_written_are_whole(path, tmp_path):
    stop, number = threading.Event(), 0

    def write() -> None:
        with il.open_store(path) as writer:
            while not stop.is_set():
                writer.update_task("a", blobs(0))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for number in range(20):
            backup_store(path, tmp_path / f"{number}.impress")
    finally:
        stop.set()
        thread.join()
    seen = []
    for number in range(20):
        copy = tmp_path / f"{number}.impress"
        verify_store(copy)
        seen.append(il.load(copy).tasks_["a"].version)
    assert seen == sorted(seen)


def test_a_copy_is_put_back_whatever_log_the_store_left(path, tmp_path):
    backup_store(path, tmp_path / "monday.impress")
    expected = il.load(path).logits(INPUTS, "a")
    # A writer that is killed leaves its log: here the commit is in the log alone.
    writer = sqlite3.connect(path, isolation_level=None)
    writer.executescript("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;")
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM tasks").fetchone()
    writer.execute("DELETE FROM tasks")
    log = Path(f"{path}-wal").read_bytes()
    reader.close()
    writer.close()
    Path(f"{path}-wal").write_bytes(log)
    backup_store(tmp_path / "monday.impress", path, overwrite=True)
    assert not Path(f"{path}-wal").exists()
    verify_store(path)
    assert il.load(path).logits(INPUTS, "a").equal(expected)


def test_former_versions_are_deleted(path):
    with il.open_store(path) as learner:
        learner.learn_task("b", blobs(1))
        for number in range(4):
            learner.update_task("a", blobs(number))
        kept = [learner.logits(INPUTS, name) for name in "ab"]
    compact_store(path, versions=2)
    with il.open_store(path) as learner:
        assert [info.version for info in learner.versions("a")] == [4, 5]
        assert [info.version for info in learner.versions("b")] == [1]
        assert all(
            learner.logits(INPUTS, name).equal(each) for name, each in zip("ab", kept, strict=True)
        )
        refused("has the former versions 4 to 4, got version 1", learner.restore_task, "a", 1)
        learner.restore_task("a", 4)
        assert learner.tasks_["a"].version == 6
    verify_store(path)


def test_what_cannot_be_copied_is_one_line(path, tmp_path):
    refused("exists already", backup_store, path, path)
    refused("is the store itself", backup_store, path, path, overwrite=True)
    refused("there is no folder", backup_store, path, tmp_path / "no" / "a.impress")
    refused("versions must be", compact_store, path, versions=0)
    (tmp_path / "text").write_text("no store")
    with pytest.raises(StoreError):
        backup_store(tmp_path / "text", tmp_path / "copy.impress")
    assert not (tmp_path / "copy.impress").exists()
    copy = tmp_path / "copy.impress"
    backup_store(path, copy)
    with il.open_store(copy) as held, pytest.raises((InputError, StoreError), match="open else"):
        held.predict(INPUTS, "a")
        backup_store(path, copy, overwrite=True)
