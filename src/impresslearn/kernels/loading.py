"""Fast implementations where they work on this machine; their callers have a plain one beside them.

Numba and Triton compile from instructions and inner parts of theirs that a processor may lack and
another version may have moved. Loops over tables, loops over tiles and the reference compute the
same, so where one cannot be had the next one serves.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from types import ModuleType

_told: list[str] = []


def none_if_unusable(load: Callable[[], ModuleType | None]) -> Callable[[], ModuleType | None]:
    """A decorator: what `load` imports, once a process, or None where that fails.

    A package that is not installed passes in silence; the first of all other failures is told.
    """

    @functools.cache
    def loaded() -> ModuleType | None:
        try:
            return load()
        except Exception as error:
            absent = isinstance(error, ModuleNotFoundError) and "." not in (error.name or "")
            if not absent and not _told:
                line = str(error).strip().split("\n", 1)[0]
                _told.append(line)
                warnings.warn(
                    f"compiled loops cannot be used here ({line}); slower ones compute the same",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return None

    return loaded
