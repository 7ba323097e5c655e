"""How loops are compiled, and what serves where they cannot be.

Numba and Triton compile from instructions and inner parts of theirs that a processor may lack and
another version may have moved. The compiled loops and the reference compute the same, so where the
first cannot be had the second serves.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

_warned: list[str] = []


class UnsupportedProcessorError(ImportError):
    """The processor lacks instructions that a module's loops are written in."""


def compiled(signature: Any) -> Callable[[Callable], Any]:
    """A decorator that compiles a loop for a signature: a loop that was imported can run.

    Without the GIL, and kept on disk for the next process where possible.
    """
    import numba  # the modules of compiled loops are imported only where it is usable

    if getattr(numba.config, "DISABLE_JIT", False):
        raise ImportError("NUMBA_DISABLE_JIT is set")  # its plain Python lacks the instructions
    decorate: Any = functools.partial(numba.njit, signature, nogil=True)

    def compile_loop(loop: Callable) -> Any:
        try:
            return decorate(cache=True)(loop)
        except Exception:  # nowhere to write, or the kept code is damaged
            return decorate()(loop)

    return compile_loop


@functools.cache
def usable(name: str) -> ModuleType | None:
    """A module of this package, imported once a process, or None where that fails.

    A package that is not installed and `UnsupportedProcessorError` pass in silence; the first of
    all other failures is a warning.
    """
    try:
        return import_module(f"impresslearn.kernels.{name}")
    except Exception as error:
        absent = isinstance(error, ModuleNotFoundError) and "." not in (error.name or "")
        if not (absent or isinstance(error, UnsupportedProcessorError) or _warned):
            line = str(error).strip().split("\n", 1)[0]
            _warned.append(line)
            warnings.warn(
                f"compiled loops cannot be used here ({line}); slower ones compute the same",
                RuntimeWarning,
                stacklevel=2,
            )
        return None
