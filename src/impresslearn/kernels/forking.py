"""Keeps forked processes from hanging: locks are free in a child, and torch uses one thread there.

A fork copies memory but only one thread. A lock that another thread held would stay locked for
ever, and a child that hands work to OpenMP's threads, which are gone, waits for ever.
"""

from __future__ import annotations

import os
import threading
import weakref

import torch


class ForkableLock:
    """A reentrant lock that is free in a forked child.

    The fork may come while another thread changes what the lock guards, so the guarded data must
    be usable after every single step.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_locks: weakref.WeakSet[ForkableLock] = weakref.WeakSet()


def _begin_child() -> None:
    for lock in list(_locks):
        lock._lock = threading.RLock()
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_child)
