"""Forks and threads while something is committed or predicted."""

import multiprocessing
import os
import threading
import time
from contextlib import ExitStack, contextmanager

import pytest
import torch

from impresslearn.kernels import mask_sums, mix, pack
from impresslearn.kernels.forking import ForkableLock
from impresslearn.masks import random_bank
from impresslearn.networks.weight_cache import WeightCache
from impresslearn.state.backends import MemoryBackend
from impresslearn.training.loop import Recipe
from toys import blobs, lenet, pictures, quick_learner, resnet

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def ends_well(work):
    """Whether a forked child does its work, within a few seconds."""
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(20)
    process.kill()
    return process.exitcode == 0


@contextmanager
def held(*locks):
    """Keeps locks in another thread, as one does that is in the middle of its work."""
    begun, over = threading.Event(), threading.Event()

    def hold():
        with ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            begun.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    begun.wait()
    yield
    over.set()
    thread.join()


@needs_fork
def test_a_child_finds_the_lock_free_and_the_parent_does_not():
    lock = ForkableLock()
    with held(lock):
        assert ends_well(lambda: lock.__enter__())
        assert not lock._lock.acquire(blocking=False)
    with lock:
        pass


@needs_fork
def test_children_predict_and_learn_while_another_thread_predicts_and_commits():
    backbone = lenet()
    learner = quick_learner(backbone, bank=random_bank(backbone.layers, 3, 0.5))
    inputs, labels = blobs()
    learner.learn_task("a", (inputs, labels))
    expected = learner.logits(inputs, "a")

    def work():
        assert torch.equal(learner.logits(inputs, "a"), expected)
        assert learner.infer_task(inputs).best == "a"
        learner.learn_basis("b", (inputs, labels))

    state = learner._state
    with held(state._committing, state._adopting, state._cache._lock):
        assert ends_well(work)
    assert list(learner.tasks_) == ["a"]


@needs_fork
def test_a_child_does_not_wait_for_threads_that_only_the_parent_has():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    bits = pack(torch.ones(64, 16, 784, dtype=torch.bool))  # enough for more threads than one
    alpha, weight = torch.ones(64), torch.ones(16, 784)

    def work():
        assert torch.ones(1000, 1000).sum() == 1_000_000
        assert (mix(bits, alpha, weight) == 64).all()
        assert (mask_sums(bits, weight, weight) == 16 * 784).all()

    try:
        work()
        assert ends_well(work)
    finally:
        torch.set_num_threads(threads)


def test_a_fork_in_the_middle_of_adopting_a_mask_leaves_room_for_it():
    backbone = lenet()
    bank, other = (random_bank(backbone.layers, count, 0.5) for count in (2, 3))
    info, packed = other.packed(2)
    bank._position[info.name] = 2  # what a child finds whose parent got no further
    assert info.name not in bank
    bank.adopt(info, packed)
    assert bank.index(info.name) == 2


@pytest.mark.parametrize("norm", ["batch", "shared"])
def test_nobody_sees_a_task_before_what_it_needs(norm, monkeypatch):
    """Every thread that sees a task predicts at once what it predicts ever after."""
    inputs, labels = pictures()
    hasty = Recipe(epochs=0, min_steps=2)
    learner = quick_learner(resnet(norm), basis_recipe=hasty, task_recipe=hasty)
    learner.add_random_masks(2)
    seen, failures, over = {}, [], threading.Event()

    def look():
        try:
            while not over.is_set():
                for name in learner.tasks_:
                    seen.setdefault(name, learner.logits(inputs, name))
        except Exception as error:  # the thread's own error, told by the test
            failures.append(error)

    real = MemoryBackend.add_task

    def slow(*arguments):
        real(*arguments)
        time.sleep(0.1)

    monkeypatch.setattr(MemoryBackend, "add_task", slow)
    thread = threading.Thread(target=look)
    thread.start()
    learner.learn_task("a", (inputs, labels))
    learner.learn_basis("b", (inputs, labels))
    over.set()
    thread.join()
    assert not failures
    assert set(seen) == {"a", "b"}
    for name, logits in seen.items():
        torch.testing.assert_close(logits, learner.logits(inputs, name))


def test_others_are_served_while_weights_are_mixed():
    cache, mixing, over = WeightCache(limit=1000), threading.Event(), threading.Event()
    kept = cache.get("quick", lambda: {"w": torch.zeros(2)})

    def mix():
        mixing.set()
        assert over.wait(5)
        return {"w": torch.ones(2)}

    found = []
    thread = threading.Thread(target=lambda: found.append(cache.get("slow", mix)))
    thread.start()
    mixing.wait()
    others = threading.Thread(target=lambda: found.append(cache.get("quick", dict)))
    others.start()
    others.join(2)
    served, own = list(found), cache.get("slow", lambda: {"w": torch.zeros(3)})
    over.set()
    thread.join()
    assert len(served) == 1
    assert served[0] is kept
    assert found[1] is own
    assert cache.get("slow", dict) is own


@needs_fork
def test_a_child_can_import_what_another_thread_was_importing(tmp_path, monkeypatch):
    (tmp_path / "slow_inner.py").write_text("import time; time.sleep(0.5)")
    (tmp_path / "slow_outer.py").write_text("import time; time.sleep(0.5); import slow_inner")
    monkeypatch.syspath_prepend(tmp_path)
    thread = threading.Thread(target=lambda: __import__("slow_outer"))
    thread.start()
    time.sleep(0.2)
    assert ends_well(lambda: __import__("slow_outer"))
    thread.join()
