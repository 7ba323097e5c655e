"""Stores of many tasks: what a name or a commit costs does not grow with their number."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

import impresslearn as il
from impresslearn.errors import UnknownTaskError
from toys import blobs, lenet, quick_learner

TASKS = 300


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One task under many names."""
    learner = quick_learner(lenet(), progress=False).add_random_masks(2)
    learner.learn_task("site 000", blobs(0))
    (row,) = learner._store.rows.task_rows("site 000")
    learner._store.commit_many(replace(row, name=f"site {number:03}") for number in range(1, TASKS))
    path = tmp_path_factory.mktemp("many") / "many.impress"
    learner.save(path)
    return path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("site 1234", "no task named 'site 1234' among more than 100; close: 'site 12[34]'"),
        ("elsewhere", "no task named 'elsewhere' among more than 100, such as 'site 000'"),
    ],
)
def test_an_unknown_name_reads_a_few_names(stored, name, expected):
    asked = []
    with il.open_store(stored, readonly=True) as learner:
        rows = learner._store.database.rows
        learner._store.database.rows = lambda query, *values: (
            asked.append(found := rows(query, *values)) or found
        )
        with pytest.raises(UnknownTaskError, match=expected):
            learner.predict(blobs(0)[0], name)
    assert sum(map(len, asked)) < 150


def test_tasks_stay_decoded_when_others_commit(stored, monkeypatch):
    with il.open_store(stored) as learner, il.open_store(stored) as other:
        learner.predict(blobs(0)[0], "site 007")
        decoded = []
        decode = learner._store.rows.decode
        monkeypatch.setattr(
            learner._store.rows, "decode", lambda row: decoded.append(row.name) or decode(row)
        )
        other.learn_task("another", blobs(1))
        before = learner.logits(blobs(0)[0], "site 007")
        assert decoded == []
        other.update_task("site 007", blobs(2))
        assert not learner.logits(blobs(0)[0], "site 007").equal(before)
        assert decoded == ["site 007"]


def test_weights_are_known_by_the_digest_of_their_numbers(tmp_path):
    """A backup put back and updated again has the same version and row, but other numbers."""
    path = tmp_path / "s.impress"
    quick_learner(lenet()).add_random_masks(2).learn_task("a", blobs(0)).save(path)
    backup = path.read_bytes()
    with il.open_store(path) as writer:
        writer.update_task("a", blobs(1))
    reader = il.open_store(path, readonly=True)
    stale = reader.logits(blobs(0)[0], "a")
    with sqlite3.connect(tmp_path / "old") as old:
        (tmp_path / "old").write_bytes(backup)
        with sqlite3.connect(path) as present:
            old.backup(present)
    with il.open_store(path) as writer:
        writer.update_task("a", blobs(2))
        assert writer.tasks_["a"].version == reader.tasks_["a"].version == 2
        fresh = writer.logits(blobs(0)[0], "a")
    assert not fresh.equal(stale)
    assert reader.logits(blobs(0)[0], "a").equal(fresh)
