"""Damaged copies of a store: each gives the same learner or one error in one line."""

import os
import sys
from collections import Counter

import pytest
from storekit import FULL, reports, small_learner

import impresslearn as il
from toys import FEATURES, blobs

COPIES = 10_000 if FULL else 300

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
    assert set(counts) <= {"equal", "no store", "damaged", "newer", "no task", "log", "older"}
    assert counts["damaged"] > COPIES / 3


def _kind(outcome):
    words = {
        "equal": "equal",
        "is damaged": "damaged",
        "is no store": "no store",
        "but no store": "no store",
        "newer": "newer",
        "no task named": "no task",
        "its log": "log",
    }
    return next((kind for word, kind in words.items() if word in outcome), outcome)


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
