"""One bound learner in many threads, across forks, after `close`, and forgotten."""

import gc
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from storekit import INPUTS, digests, files, hasty, small_learner

import impresslearn as il
from impresslearn.learner.loading import verify_store
from impresslearn.store.rows import Rows
from toys import blobs, in_a_new_process


def in_threads(*jobs):
    """Runs jobs side by side; raises what any of them raised."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        for running in [pool.submit(job) for job in jobs]:
            running.result(120)


def busy(learner, rounds=3):
    """Three threads that learn, three that predict, over one learner."""
    expected, done, left = learner.logits(INPUTS, "first"), threading.Event(), [3]

    def learn(prefix):
        try:
            for number in range(rounds):
                verb = learner.learn_basis if number % 2 else learner.learn_task
                verb(f"{prefix}-{number}", blobs(number))
        finally:
            left[0] -= 1
            if not left[0]:
                done.set()

    def predict():
        while not done.is_set():
            for name in list(learner.tasks_):
                learner.predict(INPUTS, name)
            learner.infer_task(INPUTS)
            assert torch.allclose(learner.logits(INPUTS, "first"), expected, atol=1e-5)

    in_threads(*(lambda n=n: learn(f"t{n}") for n in range(3)), *[predict] * 3)


@pytest.mark.parametrize("bound", [False, True])
def test_threads_on_one_learner_while_another_saves(path, tmp_path, bound):
    learner, copy, saved = hasty(path) if bound else small_learner(), tmp_path / "copy", []

    def save():
        for _ in range(4):
            learner.save(copy, overwrite=True)
            saved.append(verify_store(copy)["tasks"])

    in_threads(lambda: busy(learner), save)
    in_threads(*[lambda: learner.save(copy, overwrite=True)] * 6)
    assert [name for name in files(tmp_path) if "copy" in name] == ["copy"]
    assert saved == sorted(saved)
    assert verify_store(copy) == {"tasks": 12, "masks": len(learner.bank_)}
    assert digests(copy) == digests(learner)
    learner.close()
    assert not bound or digests(path) == digests(copy)


def test_a_commit_in_memory_and_a_reader_do_not_wait_for_each_other(monkeypatch):
    store, masks_of = small_learner()._store, Rows.masks
    reading, committing = threading.Event(), threading.Event()
    names = []

    def masks(rows, first):
        if threading.current_thread().name == "reader":
            reading.set()
            assert committing.wait(10)
        yield from masks_of(rows, first)

    def commit():
        assert reading.wait(10)
        with store.committing, store.database.transaction():
            committing.set()
            names.append(store.bank.names)

    monkeypatch.setattr(Rows, "masks", masks)
    store._generation = None  # as if something had been committed since
    jobs = {"reader": lambda: names.append(store.bank.names), "writer": commit}
    threads = [threading.Thread(target=job, name=name, daemon=True) for name, job in jobs.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(names) == 2
    assert names[0] == names[1]


def test_a_store_that_is_closed_or_forgotten_leaves_no_log(path):
    learner = hasty(path)
    for _ in range(2):
        learner.close()
    learner = hasty(path)
    learner.learn_task("new", blobs(1))
    del learner
    gc.collect()
    assert files(path.parent) == ["a.impress"]


FORKED = """
import multiprocessing, os, sys
sys.path[:0] = sys.argv[2:]
from storekit import *
path, fork = sys.argv[1], multiprocessing.get_context("fork")

def child(work, *arguments):
    process = fork.Process(target=work, args=arguments)
    process.start()
    return process

def well(process):
    process.join()
    assert process.exitcode == 0

with hasty(path) as learner:
    first = digest(learner, "first")
    def work(name):
        assert digest(learner, "first") == first
        learner.learn_task(name, blobs(1))
        with hasty(path) as own:
            own.learn_task(name + " own", blobs(1))
    children = [child(work, f"child {n}") for n in range(3)]
    learner.learn_task("parent", blobs(2))
    for each in children:
        well(each)
    assert len(learner.tasks_) == 3 + 7
    with learner._store.database.transaction():
        learner.learn_task("within", blobs(1))
        well(child(print))
    learner.learn_task("after", blobs(2))
survivor, go, told = hasty(path), fork.Semaphore(0), fork.Semaphore(0)
def late():
    for name in ("late", "later"):
        go.acquire()
        survivor.learn_task(name, blobs(1))
        told.release()
    survivor.close()
last = child(late)
survivor.close()
go.release()
told.acquire()
assert os.path.exists(path + "-wal")
il.open_store(path).close()  # not the last one: it must leave the log alone
assert os.path.exists(path + "-wal")
go.release()
well(last)
"""


@pytest.mark.nightly
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_across_forks(path):
    in_a_new_process("-c", FORKED, str(path), *sys.path, OMP_NUM_THREADS="1")
    names = set(il.load(path).tasks_)
    assert {"child 0", "child 2 own", "parent", "within", "after", "late", "later"} <= names
    assert verify_store(path)["tasks"] == 14
    assert files(path.parent) == ["a.impress"]


def test_an_error_inside_a_transaction_changes_nothing(path):
    with hasty(path) as learner:
        before = digests(learner)
        for error in (RuntimeError, KeyboardInterrupt, MemoryError):
            with pytest.raises(error), learner._store.database.transaction():
                learner.learn_task("new", blobs(1))
                learner.learn_task("other", blobs(1))
                raise error
            assert digests(learner) == before
    assert verify_store(path) == {"tasks": 3, "masks": 4}


@pytest.mark.parametrize("place", ["add_masks", "add_task"])
def test_memory_and_file_stay_equal_when_a_commit_fails(path, monkeypatch, place):
    def fail(*_):
        raise il.StoreError("no")

    with hasty(path) as learner:
        with monkeypatch.context() as patch, pytest.raises(il.StoreError, match=r"^no$"):
            patch.setattr(Rows, place, fail)
            learner.learn_basis("new", blobs(1))
        for _ in range(2):
            assert learner.bank_.names == il.load(path).bank_.names
            assert digests(learner) == digests(path)
            if "new" not in learner.tasks_:
                learner.learn_basis("new", blobs(1))
