"""Progress of long work: a bar on a terminal, or nothing.

The library calls `progress.track(total)` and advances; what is shown is the caller's choice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """Shows a bar titled `title` if `shown`, else does nothing."""

    shown: bool = False
    title: str = ""

    def titled(self, title: str) -> Progress:
        """The same choice under another title."""
        return Progress(self.shown, title)

    @contextmanager
    def track(self, total: int) -> Iterator[Callable[[], None]]:
        """Gives a function to call once a step."""
        if not self.shown:
            yield lambda: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(self.title, total=total)
            yield lambda: bar.advance(task)


silent = Progress()


def progress_for(choice: bool | str) -> Progress:
    """True, False, or "auto": shown if standard error is a terminal."""
    shown = sys.stderr.isatty() if choice == "auto" else bool(choice)
    return Progress(shown)
