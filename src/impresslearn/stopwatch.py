"""How long learning took and how it ended: the metrics that are kept with a task."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from impresslearn.errors import InputError
from impresslearn.training import FitResult

Note = Mapping[str, Any]
"""What a caller wants to keep in a task's history: JSON values."""
DEEPEST_NOTE = 32
"""Reading deep JSON needs room on the stack, of which a later reader may have less."""


class Stopwatch:
    """Started before something is learned from so many examples.

    note: kept with the metrics. Raises InputError for one that cannot be written as JSON.
    """

    def __init__(self, examples: int, note: Note | None = None) -> None:
        self.examples = examples
        self.note = _checked(note)
        self._started = time.perf_counter()

    def metrics(self, result: FitResult | None = None) -> dict[str, Any]:
        """examples, seconds so far, where known the steps and the final loss (nats), the note."""
        seconds = float(f"{time.perf_counter() - self._started:.3g}")
        found: dict[str, Any] = {"examples": self.examples, "seconds": seconds}
        if result is not None and result.steps:
            found |= {"steps": result.steps, "loss": float(f"{result.final_loss:.4g}")}
        return found | ({"note": self.note} if self.note else {})


def _checked(note: Note | None) -> dict[str, Any] | None:
    """The note as it will be read again: what a store cannot write is refused before training."""
    if note is None:
        return None
    try:
        text = json.dumps(dict(note), allow_nan=False, ensure_ascii=False).encode()
        plain = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"a note must be a mapping of JSON values: {error}") from None
    if not _nests(plain, DEEPEST_NOTE):
        raise InputError(f"a note must not nest deeper than {DEEPEST_NOTE} levels")
    return plain


def _nests(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels >= 0 and all(_nests(each, levels - 1) for each in inner)
