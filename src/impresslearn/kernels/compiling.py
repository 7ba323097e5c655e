"""Keeps the kernels usable without a compiler and in forked processes.

The compiled loops need internals of Numba and Triton, which other versions may lack, and processor
instructions, which a machine may lack. If the loops cannot be compiled, the reference is used. It
computes the same results more slowly.
"""

import functools
import os
import threading
import warnings
import weakref
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import torch


def compiled(signature: Any) -> Callable[[Callable], Any]:
    """A decorator that compiles a loop with Numba at import; signature: its Numba types.

    A failure at import, not at the first call, can be caught by `usable`.
    """
    import numba  # optional, so it is imported only with the compiled loops

    if getattr(numba.config, "DISABLE_JIT", False):
        # Numba would then run the loops as plain Python, which cannot address memory.
        raise ImportError("NUMBA_DISABLE_JIT is set")

    def compile_loop(loop: Callable) -> Any:
        try:
            return numba.njit(signature, nogil=True, cache=True)(loop)
        except Exception:
            # The cache folder cannot be written, or its content is damaged.
            return numba.njit(signature, nogil=True)(loop)

    return compile_loop


@functools.cache
def usable(name: str) -> ModuleType | None:
    """A module of this folder, imported once per process, or None if the import fails.

    A failed import gives a warning, because learning becomes slower, unless a package is missing.
    """
    try:
        return import_module(f"impresslearn.kernels.{name}")
    except Exception as error:
        if not isinstance(error, ModuleNotFoundError) or "." in (error.name or ""):
            line = str(error).strip().split("\n", 1)[0]
            warnings.warn(
                f"compiled loops cannot be used here ({line}); slower ones compute the same",
                RuntimeWarning,
                stacklevel=2,
            )
        return None


_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def forkable_lock() -> Any:
    """A reentrant lock that is free in a forked child.

    A fork may happen while another thread changes the data that the lock protects, so these data
    must be usable after every single step.
    """
    # A fork copies only one thread. A lock held by another thread would stay locked in the child.
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def _begin_child() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()  # as the standard library does with its locks
    # The child has no OpenMP threads and would wait for them for ever.
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_child)
