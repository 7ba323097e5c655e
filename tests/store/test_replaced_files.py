"""Copies of a store in use, and files that something else puts in its place."""

import os
import shutil
import sqlite3
import time
from datetime import datetime
from pathlib import Path
from unittest.mock import Mock

import pytest
from storekit import INPUTS, digests, files, hasty, reports, small_learner, sql, until

import impresslearn as il
from impresslearn.errors import StoreDamagedError, StoreReplacedError
from impresslearn.learner.loading import verify_store
from impresslearn.store import database, tasks
from impresslearn.store.store_files import backup_store, compact_store, describe_store
from toys import blobs, lenet, quick_learner, refused


def test_copies_of_a_store_that_is_written_have_what_its_log_alone_has(pool, path, tmp_path):
    out, copies = tmp_path / "out", [tmp_path / f"{number}.impress" for number in range(20)]
    writer = pool.start("learn", out, path=path, prefix="new")
    until(lambda: len(reports(out)) > 1)
    with sql(path) as reader:  # keeps later commits out of the file
        reader.execute("BEGIN")
        (early,) = reader.execute("SELECT count(*) FROM tasks").fetchone()
        until(lambda: len(reports(out)) > early)
        for copy in copies:
            backup_store(path, copy)
    writer.kill()
    writer.join()
    seen = [verify_store(copy)["tasks"] for copy in copies]
    assert early < seen[0]
    assert seen == sorted(seen)


def test_a_copy_is_put_back_whatever_log_the_store_left(path, tmp_path):
    backup_store(path, tmp_path / "monday.impress")
    expected = digests(path)
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
    assert digests(path) == expected


def test_a_plain_copy_is_put_back_after_a_reader_ended_last(path, tmp_path):
    """With everything stopped; whether the reader was closed or killed, its log changes nothing."""
    log, kept = Path(f"{path}-wal"), tmp_path / "kept"
    monday = shutil.copy(path, tmp_path / "monday.impress")
    with il.open_store(path, readonly=True) as reader:
        with hasty(path) as learner:
            learner.learn_task("second", blobs(3))
            assert "second" in reader.tasks_
        shutil.copy(log, kept)
    assert files(tmp_path) == ["a.impress", "kept", "monday.impress"]
    for left in (False, True):
        if left:
            shutil.move(kept, log)
        shutil.copy(monday, path)
        assert digests(path) == digests(monday)


def test_a_file_that_was_copied_by_cp_while_in_use_is_refused_when_opened(path, tmp_path):
    copy = tmp_path / "copy.impress"
    with hasty(path) as learner:
        early = path.read_bytes()
        learner.learn_tasks({f"task {number}": blobs(2) for number in range(8)})
        torn = early[: len(early) // 2] + path.read_bytes()[len(early) // 2 :]
    copy.write_bytes(early)
    il.open_store(copy, readonly=True).close()
    copy.write_bytes(torn)
    refused("copied by cp while in use", il.open_store, copy, error=StoreDamagedError)


def test_a_clock_that_jumps_back_does_no_harm(path, monkeypatch):
    """Versions keep their order, and the file is not read again at every request."""
    monkeypatch.setattr(tasks, "datetime", clock := Mock())
    with hasty(path) as learner, il.open_store(path, readonly=True) as reader:
        for year, seconds in ((2090, 2**32), (2001, 0)):
            clock.now.return_value = datetime(year, 1, 1)
            learner.update_task("first", blobs(year))
            os.utime(path, (seconds, seconds))
            for _ in range(2):
                assert digests(reader) == digests(learner)
                time.sleep(2 * database.SETTLED)
            seen = reader._store.database.generation()
            assert seen == reader._store.database.generation()
    compact_store(path, versions=2)
    with hasty(path) as learner:
        kept = {info.version: info.history["created_at"][:4] for info in learner.versions("first")}
        assert kept == {2: "2090", 3: "2001"}
        assert learner.tasks_["first"].version == 3


def test_former_versions_are_deleted(path):
    with hasty(path) as learner:
        learner.learn_task("b", blobs(1))
        for number in range(4):
            learner.update_task("first", blobs(number))
        before = digests(learner)
    size = describe_store(path)["former_versions_bytes"]
    compact_store(path, versions=2)
    assert 0 < describe_store(path)["former_versions_bytes"] < size < 5000
    with hasty(path) as learner:
        assert [info.version for info in learner.versions("first")] == [4, 5]
        assert [info.version for info in learner.versions("b")] == [1]
        assert digests(learner) == before
        refused("has the former versions 4 to 4, got version 1", learner.restore_task, "first", 1)
        learner.restore_task("first", 4)
        assert learner.tasks_["first"].version == 6
        learner.remove_task("first")
    compact_store(path)
    assert describe_store(path)["former_versions_bytes"] == 0
    verify_store(path)


def updated(base: Path, place: Path, number: int) -> Path:
    """A copy of a store in which the first task is learned on."""
    shutil.copy(base, place)
    with hasty(place) as learner:
        learner.update_task("first", blobs(number))
    return place


@pytest.mark.parametrize("at_once", [False, True])
def test_a_file_that_was_copied_over_an_open_store_is_read(path, tmp_path, monkeypatch, at_once):
    """Also within one tick of the clock of files, and it has the same size."""
    other = updated(path, tmp_path / "other.impress", 8)
    path = updated(path, tmp_path / "used.impress", 7)
    # SQLite's own counters are equal in both, and so are name, number and version of the task.
    assert other.read_bytes()[24:28] == path.read_bytes()[24:28]
    expected = digests(other)
    with il.open_store(path, readonly=True) as learner:
        if at_once:
            status = os.stat(path)
            monkeypatch.setattr(learner._store.database, "_check_place", lambda: status)
            monkeypatch.setattr(database, "SETTLED", 100)
        assert digests(learner) != expected
        shutil.copy(other, path)
        assert digests(learner) == expected


@pytest.mark.parametrize("change", ["masks", "network", "link"])
def test_another_store_in_place_of_an_open_one_is_refused(path, tmp_path, change):
    other, link, new = (tmp_path / name for name in ("other.impress", "link", "new"))
    link.symlink_to(path)
    if change == "link":
        new.symlink_to(updated(path, other, 7))
    elif change == "network":
        quick_learner(lenet(seed=7)).add_random_masks(4).learn_task("first", blobs()).save(other)
    else:
        small_learner(seed=1).save(other)
    with il.open_store(link, readonly=True) as learner:
        learner.logits(INPUTS, "first")
        os.replace(new, link) if change == "link" else shutil.copy(other, path)
        words = "replaced by" if change == "link" else "overwritten by"
        refused(words, learner.logits, INPUTS, "first", error=StoreReplacedError)
