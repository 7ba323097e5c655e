"""Stores of every earlier format open with the present code; a migration is whole or absent."""

import json
import os
import shutil
import signal
import sqlite3

import make_format_1
import make_format_2
import numpy as np
import pytest
from storekit import digest, reports, small_learner, until

import impresslearn as il
from impresslearn.learner.loading import verify_store
from impresslearn.store import describe_store, schema
from toys import blobs


@pytest.mark.parametrize("file", ["format-1.impress", "format-1-norms.impress"])
def test_a_store_of_format_1(file):
    expected = json.loads(make_format_1.EXPECTED.read_text(encoding="utf-8"))[file]
    found = make_format_1.observed()[file]
    for name, task in expected["tasks"].items():
        logits = np.array(task.pop("logits"))
        np.testing.assert_allclose(found["tasks"][name].pop("logits"), logits, rtol=1e-4, atol=1e-4)
    assert found == expected


def test_a_store_of_format_2():
    expected = json.loads(make_format_2.EXPECTED.read_text(encoding="utf-8"))
    found = make_format_2.observed()
    for name, logits in expected.pop("logits").items():
        np.testing.assert_allclose(found["logits"][name], logits, rtol=1e-4, atol=1e-4)
    assert found.pop("logits").keys() == found["bytes"].keys()
    assert found == expected


def test_it_can_be_learned_into(tmp_path):
    path = shutil.copy(make_format_1.PLAIN, tmp_path / "a.impress")
    with il.open_store(path, progress=False) as learner:
        learner.learn_basis("new", blobs(3))
        learner.learn_task("newer", blobs(4))
        tasks = len(learner.tasks_)
    assert verify_store(path) == {"tasks": tasks, "masks": 5}


def test_who_only_reads_takes_it_as_it_is(tmp_path):
    path = shutil.copy(make_format_1.PLAIN, tmp_path / "a.impress")
    before = path.read_bytes()
    with il.open_store(path, readonly=True, progress=False) as learner:
        assert digest(learner, "basis") == digest(il.load(path), "basis")
    assert describe_store(path)["tasks"] == len(il.load(path).tasks_)
    assert (path.read_bytes(), version(path)) == (before, 1)
    il.open_store(path).close()
    assert version(path) == 2


@pytest.fixture
def old(tmp_path, monkeypatch):
    """A store of what is now an older format."""
    path = tmp_path / "a.impress"
    small_learner().save(path)
    end = "    created_at TEXT NOT NULL,\n    checksum BLOB NOT NULL"
    tables = schema.TABLES.replace(f"{end}\n);", f"{end},\n    extra TEXT\n);")
    assert tables != schema.TABLES
    monkeypatch.setattr(schema, "TABLES", tables)
    monkeypatch.setattr(schema, "VERSION", 3)
    monkeypatch.setattr(schema, "SAME_TABLES", ())
    return path


def add_column(connection):
    connection.execute("ALTER TABLE tasks ADD COLUMN extra TEXT")


def version(path):
    connection = sqlite3.connect(path)
    found = schema.version_of(connection)
    connection.close()
    return found


def test_an_older_format_is_brought_up_to_date(old, monkeypatch):
    monkeypatch.setitem(schema.MIGRATIONS, 2, add_column)
    before = old.read_bytes()
    assert len(il.load(old).tasks_) == 3
    assert verify_store(old)["tasks"] == 3
    with pytest.raises(il.StoreError, match="older format 2; open it for writing once"):
        il.open_store(old, readonly=True)
    assert old.read_bytes() == before
    il.open_store(old).close()
    assert version(old) == 3
    with il.open_store(old, readonly=True) as learner:
        assert digest(learner, "first") == digest(il.load(old), "first")


def test_two_processes_may_open_an_older_format(old, monkeypatch):
    def slow(connection):
        other = sqlite3.connect(old, timeout=0)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        other.close()
        add_column(connection)

    monkeypatch.setitem(schema.MIGRATIONS, 2, slow)
    first, second = il.open_store(old), il.open_store(old)
    assert list(first.tasks_) == list(second.tasks_)


def broken(connection):
    add_column(connection)
    connection.execute("DELETE FROM tasks")
    raise sqlite3.OperationalError("database or disk is full")


def cut_short(connection):
    add_column(connection)
    raise KeyboardInterrupt


def foreign(connection):
    connection.execute("CREATE TABLE extra (a)")


@pytest.mark.parametrize(
    ("step", "error", "words"),
    [
        (broken, il.StoreError, "the disk is full"),
        (cut_short, KeyboardInterrupt, "^$"),
        (None, il.StoreError, "there is no format 2"),
    ],
)
def test_a_migration_that_fails_changes_nothing(old, monkeypatch, step, error, words):
    before = old.read_bytes()
    if step is not None:
        monkeypatch.setitem(schema.MIGRATIONS, 2, step)
    for verb in (il.open_store, il.load):
        with pytest.raises(error, match=words):
            verb(old)
    assert old.read_bytes() == before
    assert {file.name for file in old.parent.iterdir()} == {"a.impress"}


def test_a_migration_to_other_tables_is_refused(old, monkeypatch):
    monkeypatch.setitem(schema.MIGRATIONS, 2, foreign)
    with pytest.raises(il.StoreError, match="its tables are not those"):
        il.open_store(old)
    assert version(old) == 2


def test_a_migration_that_is_killed_changes_nothing(pool, tmp_path):
    path, out = tmp_path / "a.impress", tmp_path / "out"
    small_learner().save(path)
    expected = digest(il.load(path), "first")
    pid = pool.start("migrate", out, path=str(path))
    until(lambda: reports(out) == ["migrating"])
    os.kill(pid, signal.SIGKILL)
    pool.wait(pid)
    assert digest(il.load(path), "first") == expected
    with il.open_store(path, progress=False) as learner:
        learner.learn_task("after", blobs(1))
    assert verify_store(path)["tasks"] == 4
