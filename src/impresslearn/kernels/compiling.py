"""Keeps kernels usable everywhere: without a compiler, and in forked processes.

Numba and Triton use parts of themselves that another version may have moved, and instructions that
a processor may lack. The compiled loops and the reference compute the same, so the reference serves
wherever the loops cannot be compiled.
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
    """A decorator that compiles a loop at import, for Numba's types of its result and arguments.

    Compiling at import and not at the first call puts a failure where `usable` catches it.
    """
    import numba  # modules of compiled loops are imported only where Numba is installed

    if getattr(numba.config, "DISABLE_JIT", False):
        # Without a compiler Numba would run the plain Python, which cannot address memory.
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

    A package that is not installed passes silently; any other failure is a warning, because it
    makes learning slower.
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

    The fork may come while another thread changes what the lock guards, so the guarded data must
    be usable after every single step.
    """
    # A fork copies memory but only one thread: a lock that another thread held would stay locked.
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def _begin_child() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()  # as the locks of the standard library are
    # OpenMP's threads are gone in the child, which would wait for them for ever.
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_child)
