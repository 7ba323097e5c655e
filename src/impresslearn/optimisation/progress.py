"""Progress of long work on standard error: a bar on a terminal, else a line of text now and then.

The library calls `progress.track(total)` and advances; whether it is shown is the caller's choice.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from threading import Event, Thread
from typing import TYPE_CHECKING

from impresslearn.errors import visible

if TYPE_CHECKING:
    from rich.console import Console

FIRST_LINE, LINE_EVERY = 10.0, 30.0
"""Seconds. Short work says nothing, and a chain of it never more than a line in ten seconds."""


@dataclass(frozen=True)
class Progress:
    """Tells how far work titled `title` is if `shown`, else does nothing."""

    shown: bool = False
    title: str = ""

    def titled(self, title: str) -> Progress:
        """The same, with another title."""
        return Progress(self.shown, title)

    @contextmanager
    def track(self, total: int) -> Iterator[Callable[[], None]]:
        """Gives a function to call once a step."""
        if not self.shown:
            yield lambda: None
            return
        from rich.console import Console

        console, title = Console(stderr=True), visible(self.title)
        drawn = console.is_interactive or console.is_jupyter
        with _bar(console, title, total) if drawn else _texts(title, total) as advance:
            yield advance


@contextmanager
def _bar(console: Console, title: str, total: int) -> Iterator[Callable[[], None]]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    name = TextColumn("{task.description}", markup=False)  # brackets in a name are no markup
    columns = (name, BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda: bar.advance(task)


@contextmanager
def _texts(title: str, total: int) -> Iterator[Callable[[], None]]:
    """Lines of text by the clock, for a single step may take long."""
    started, over = time.monotonic(), Event()
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1

    def tell() -> None:
        pause = FIRST_LINE
        while not over.wait(pause):
            print(_line(title, done, total, time.monotonic() - started), file=sys.stderr)
            pause = LINE_EVERY

    teller = Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield advance
    finally:
        over.set()
        teller.join()


def _line(title: str, done: int, total: int, seconds: float) -> str:
    """How far work is: "overlap: 3 of 22 after 0:01:10, about 0:07:23 left"."""
    line = f"{title}: {done} of {total} after {timedelta(seconds=round(seconds))}"
    if done:
        line += f", about {timedelta(seconds=round(seconds / done * (total - done)))} left"
    return line


silent = Progress()


def progress_for(choice: bool | str) -> Progress:
    """True, False, or "auto": shown if standard error is a terminal."""
    shown = sys.stderr.isatty() if choice == "auto" else bool(choice)
    return Progress(shown)
