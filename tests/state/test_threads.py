"""Forks and threads while something is committed or predicted."""

import multiprocessing
import os
import threading
import time
from contextlib import ExitStack, contextmanager

import pytest
import torch

from impresslearn.masks import random_bank
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
