"""How loops are compiled: without the GIL, and kept on disk for the next process where possible."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numba

if getattr(numba.config, "DISABLE_JIT", False):
    raise ImportError("NUMBA_DISABLE_JIT is set")  # its plain Python lacks the instructions


def compiled(signature: Any) -> Callable[[Callable], Any]:
    """A decorator that compiles a loop for a signature: a loop that was imported can run."""

    decorate: Any = functools.partial(numba.njit, signature, nogil=True)

    def compile_loop(loop: Callable) -> Any:
        try:
            return decorate(cache=True)(loop)
        except Exception:  # nowhere to write, or the kept code is damaged
            return decorate()(loop)

    return compile_loop
