"""Damaged copies of a store: each gives the same learner or one error in one line."""

import contextlib
import os
import sqlite3
import sys
from collections import Counter

import pytest
from storekit import FULL, reports, small_learner

import impresslearn as il
from impresslearn.learner.loading import verify_store
from toys import FEATURES, blobs

COPIES = 10_000 if FULL else 200

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bounds memory as Linux does")


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    """A store of 16 tasks, with every kind of row."""
    learner = small_learner(output_scale=True)
    for number in range(12):
        inputs, labels = blobs(number, count=24)
        learner.learn_task(f"task {number} é", (inputs, [f"class {each}" for each in labels]))
    path = tmp_path_factory.mktemp("valid") / "valid.impress"
    learner.save(path)
    return path


@pytest.mark.parametrize("verb", ["load", "open"])
def test_damaged_copies(pool, valid, tmp_path, verb):
    outcomes, first, rounds = {}, 0, 0
    while first < COPIES:
        out = tmp_path / f"out-{rounds}"
        how = {"source": str(valid), "folder": str(tmp_path), "verb": verb}
        pid = pool.start("judge", out, first=first, count=COPIES - first, **how)
        status = pool.wait(pid)
        found = reports(out)
        outcomes |= {each[0]: each[1] for each in found if len(each) == 2 and each[0] != "failed"}
        assert status == 0, f"copy {found[-2:]} ended the process with {status}"
        first, rounds = COPIES, rounds + 1
    counts = Counter(_kind(outcome) for outcome in outcomes.values())
    print(f"{verb}: {dict(counts)}")
    assert len(outcomes) == COPIES
    assert set(counts) <= {"equal", "no store", "damaged", "newer", "no task"}
    assert counts["damaged"] > COPIES / 3


def _kind(outcome):
    words = {
        "equal": "equal",
        "is damaged": "damaged",
        "is no store": "no store",
        "but no store": "no store",
        "newer": "newer",
        "no task named": "no task",
    }
    return next((kind for word, kind in words.items() if word in outcome), outcome)


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM tasks WHERE name = 'first'",
        "DELETE FROM tasks",
        "DELETE FROM masks WHERE id = 4",
        "UPDATE tasks SET coefficients = (SELECT coefficients FROM tasks WHERE id = 5) "
        "WHERE name = 'first'",
        "UPDATE tasks SET name = 'other' WHERE name = 'first'",
        "UPDATE tasks SET num_masks = num_masks - 1 WHERE name = 'first'",
        "UPDATE masks SET id = 10 - id WHERE id IN (1, 2)",
        "UPDATE documents SET text = text || ' '",
        "DELETE FROM documents",
        "UPDATE tensors SET data = (SELECT data FROM tensors WHERE name = '2.weight')",
        "UPDATE state SET tasks = tasks - 1",
        "DELETE FROM state",
        "DELETE FROM head",
        "UPDATE head SET settings = replace(settings, '0.7', '0.6')",
    ],
)
def test_rows_that_are_not_what_was_committed(valid, tmp_path, sql):
    """Pages and indices are sound here: only checksums can tell."""
    path = tmp_path / "a.impress"
    path.write_bytes(valid.read_bytes())
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(sql)
    words = r"damaged|SHA-256|no task named 'first'"
    for verb in (il.load, verify_store):
        with pytest.raises(il.StoreError, match=words):
            verb(path)

    def read_all():
        with il.open_store(path, progress=False) as learner:
            for name in il.load(valid).tasks_:
                learner.predict([[0.0] * FEATURES], name)

    with pytest.raises(il.ImpressLearnError, match=words):
        read_all()


def test_rows_that_were_added(valid, tmp_path):
    """A row with a right checksum of its own, which no commit added."""
    path = tmp_path / "a.impress"
    path.write_bytes(valid.read_bytes())
    other = il.load(path, progress=False).learn_task("other", blobs(1)).save(tmp_path / "b.impress")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("ATTACH ? AS b", [str(tmp_path / "b.impress")])
        connection.execute("INSERT OR IGNORE INTO documents SELECT * FROM b.documents")
        connection.execute("DELETE FROM tasks WHERE name = 'first'")
        connection.execute("INSERT INTO tasks SELECT * FROM b.tasks WHERE name = 'other'")
    with pytest.raises(il.StoreError, match="its tasks are not those that were committed"):
        il.load(path)
    assert len(other.tasks_) == 16


def test_garbage_logs_beside_a_store(valid, tmp_path):
    before = {name: il.load(valid).tasks_[name] for name in il.load(valid).tasks_}
    for suffix in ("-wal", "-journal", "-shm"):
        for content in (b"", b"garbage" * 1000, os.urandom(5000)):
            path = tmp_path / "a.impress"
            path.write_bytes(valid.read_bytes())
            (tmp_path / f"a.impress{suffix}").write_bytes(content)
            learner = il.load(path)
            assert {name: learner.tasks_[name] for name in learner.tasks_} == before
            with il.open_store(path) as learner:
                assert dict(learner.tasks_) == before
                learner.predict([[0.0] * FEATURES], "first")
            for left in tmp_path.iterdir():
                left.unlink()
