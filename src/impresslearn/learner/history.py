"""How long learning took and how it ended: the metrics that are kept with a task."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from impresslearn.errors import InputError
from impresslearn.optimisation.loop import FitResult
from impresslearn.validation import plain_json

Note = Mapping[str, Any]
"""What a caller wants to keep in a task's history: JSON values."""


class Stopwatch:
    """Started before something is learned from so many examples.

    note: kept with the metrics. Raises InputError for one that cannot be written as JSON.
    """

    def __init__(self, examples: int, note: Note | None = None) -> None:
        self.examples = examples
        if note is not None and not isinstance(note, Mapping):
            raise InputError(f"a note must be a mapping of JSON values, got {type(note).__name__}")
        self.note = None if note is None else plain_json(dict(note), "a note")
        self._started = time.perf_counter()

    def metrics(self, result: FitResult | None = None) -> dict[str, Any]:
        """examples, seconds so far, where known the steps and the final loss (nats), the note."""
        seconds = float(f"{time.perf_counter() - self._started:.3g}")
        found: dict[str, Any] = {"examples": self.examples, "seconds": seconds}
        if result is not None and result.steps:
            found |= {"steps": result.steps, "loss": float(f"{result.final_loss:.4g}")}
        return found | ({"note": self.note} if self.note else {})
