"""How loops are compiled: without the GIL, and kept on disk for the next process where possible."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numba


def compiled(*signature: Any) -> Callable[[Callable], Any]:
    """A decorator that compiles a loop, at once for a signature, else for the first arguments."""

    decorate: Any = functools.partial(numba.njit, *signature, nogil=True)

    def compile_loop(loop: Callable) -> Any:
        try:
            return decorate(cache=True)(loop)
        except RuntimeError:  # nowhere to write: a read-only installation without a home folder
            return decorate()(loop)

    return compile_loop
