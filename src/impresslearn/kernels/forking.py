"""Makes forked processes safe: free locks, finished imports, and torch with a single thread.

A fork copies memory but only one thread. A lock that another one held would stay locked for ever,
so a `ForkableLock` is made anew; what it guards must make sense at any moment, for a fork may come
at any. The same goes for modules that another thread was importing. The threads of torch (OpenMP's)
are gone, and a child that hands them work hangs.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import weakref
from contextlib import suppress

import torch


class ForkableLock:
    """A reentrant lock, which a forked child finds free."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _all.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_all: weakref.WeakSet[ForkableLock] = weakref.WeakSet()


def _begin_child() -> None:
    for lock in list(_all):
        lock._lock = threading.RLock()
    torch.set_num_threads(1)


def _finish_imports() -> None:
    """Waits for what other threads are importing: a child would wait for them for ever."""
    own: set[str] = set()  # what this very thread imports stays unfinished
    while names := [name for name in list(sys.modules) if _begun(name) and name not in own]:
        for name in names:
            with suppress(Exception):  # that thread's own affair
                importlib.import_module(name)
            if _begun(name):
                own.add(name)


def _begun(name: str) -> bool:
    return getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_finish_imports, after_in_child=_begin_child)
