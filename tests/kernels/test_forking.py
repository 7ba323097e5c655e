"""A forked child finds locks free and uses one thread."""

import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from impresslearn.kernels import mask_sums, mix, pack
from impresslearn.kernels.compiling import forkable_lock

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def ends_well(work):
    """Whether a forked child does its work, within a few seconds."""
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(20)
    process.kill()
    return process.exitcode == 0


@needs_fork
def test_a_child_finds_the_lock_free_and_the_parent_does_not():
    lock, another = forkable_lock(), ThreadPoolExecutor(1)
    another.submit(lock.__enter__).result()  # as one that is in the middle of its work
    assert ends_well(lambda: lock.__enter__())
    assert not lock.acquire(blocking=False)
    another.submit(lock.release).result()
    with lock:
        pass


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
