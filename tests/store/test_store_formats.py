"""Stores of every earlier format open with the present code; a migration is whole or absent."""

import json
import os
import shutil
import signal
import sqlite3

import numpy as np
import old_formats
import pytest
from forgery import sql
from storekit import digest, digests, hasty, reports, until

import impresslearn as il
from impresslearn.learner.loading import verify_store
from impresslearn.store import describe_store, schema
from toys import blobs


def expected(number):
    return json.loads((old_formats.DATA / f"format-{number}.json").read_text(encoding="utf-8"))


def assert_near(found, logits):
    np.testing.assert_allclose(found, np.array(logits), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("path", [old_formats.PLAIN, old_formats.NORMS], ids=lambda path: path.stem)
def test_a_store_of_format_1(path):
    known, found = expected(1)[path.name], old_formats.observed(path)
    for name, task in known["tasks"].items():
        assert_near(found["tasks"][name].pop("logits"), task.pop("logits"))
    assert found == known


def test_a_store_of_format_2():
    known, found = expected(2), old_formats.answers(old_formats.PREPROCESSED)
    logits = found.pop("logits")
    for name, each in known.pop("logits").items():
        assert_near(logits.pop(name), each)
    assert not logits
    assert found == known


def test_it_can_be_learned_into(tmp_path):
    path = shutil.copy(old_formats.PLAIN, tmp_path / "a.impress")
    with il.open_store(path, progress=False) as learner:
        learner.learn_basis("new", blobs(3))
        learner.learn_task("newer", blobs(4))
        tasks = len(learner.tasks_)
    assert verify_store(path) == {"tasks": tasks, "masks": 5}


def test_who_only_reads_takes_it_as_it_is(tmp_path):
    path = shutil.copy(old_formats.PLAIN, tmp_path / "a.impress")
    before = path.read_bytes()
    with il.open_store(path, readonly=True, progress=False) as learner:
        assert digest(learner, "basis") == digest(il.load(path), "basis")
    assert describe_store(path)["tasks"] == len(il.load(path).tasks_)
    assert (path.read_bytes(), version(path)) == (before, 1)
    il.open_store(path).close()
    assert version(path) == 2


@pytest.fixture
def old(path, monkeypatch):
    """A store of what is now an older format."""
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
    with sql(path) as connection:
        return schema.version_of(connection)


def test_an_older_format_is_brought_up_to_date(old, monkeypatch):
    monkeypatch.setitem(schema.MIGRATIONS, 2, add_column)
    before = old.read_bytes()
    assert verify_store(old)["tasks"] == 3
    with pytest.raises(il.StoreError, match="older format 2; open it for writing once"):
        il.open_store(old, readonly=True)
    assert old.read_bytes() == before
    il.open_store(old).close()
    assert version(old) == 3
    with il.open_store(old, readonly=True) as learner:
        assert digests(learner) == digests(old)


def test_two_processes_may_open_an_older_format(old, monkeypatch):
    def slow(connection):
        other = sqlite3.connect(old, timeout=0)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        other.close()
        add_column(connection)

    monkeypatch.setitem(schema.MIGRATIONS, 2, slow)
    with il.open_store(old) as first, il.open_store(old) as second:
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
        (foreign, il.StoreError, "its tables are not those"),
        (None, il.StoreError, "there is no format 2"),
    ],
)
def test_a_migration_that_fails_changes_nothing(old, monkeypatch, step, error, words):
    before = old.read_bytes()
    if step is not None:
        monkeypatch.setitem(schema.MIGRATIONS, 2, step)
    for verb in (il.load, il.open_store):
        with pytest.raises(error, match=words):
            verb(old)
    assert {file.name for file in old.parent.iterdir()} == {"a.impress"}
    assert old.read_bytes() == before


def test_a_migration_that_is_killed_changes_nothing(pool, path, tmp_path):
    out, before = tmp_path / "out", digests(path)
    pid = pool.start("migrate", out, path=path)
    until(lambda: reports(out) == ["begun"])
    os.kill(pid, signal.SIGKILL)
    pool.wait(pid)
    assert digests(path) == before
    with hasty(path) as learner:
        learner.learn_task("after", blobs(1))
    assert verify_store(path)["tasks"] == 4
