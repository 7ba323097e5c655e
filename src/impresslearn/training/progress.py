"""Progress of long work: a bar on standard error, or numbers for a log.

A log is any function of (name, step, values): the training's title, such as "task rotated-30", the
steps taken, and the loss (nats, with the price of bits) and the learning rate by name. A log for
TensorBoard (Weights & Biases and MLflow take the same three lines):

    from torch.utils.tensorboard import SummaryWriter
    board = SummaryWriter("logs")
    learner.progress = lambda name, step, values: [
        board.add_scalar(f"{name}/{key}", value, step) for key, value in values.items()]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from impresslearn.errors import InputError, visible

# A function of the training's title, the steps taken, and numbers by their names.
Log = Callable[[str, int, dict[str, float]], Any]
# True, False, "auto" (a bar if standard error is a terminal), or a log in their place.
ProgressChoice = bool | str | Log


@dataclass(frozen=True)
class Progress:
    """Reports the progress of some work.

    - shown: whether a bar goes to standard error.
    - title: the name of the work, in bars and logs.
    - write: a log, if there is one; an exception that it raises ends the work.
    """

    shown: bool = False
    title: str = ""
    write: Log | None = None

    def titled(self, title: str) -> Progress:
        """The same, with another title."""
        return Progress(self.shown, title, self.write)

    @contextmanager
    def track(self, total: int) -> Iterator[Callable[[], None]]:
        """Gives a function to call once a step."""
        if not self.shown:
            yield lambda: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        console, title = Console(stderr=True), visible(self.title)
        name = TextColumn("{task.description}", markup=False)  # a name may have brackets
        with Progress(
            name, BarColumn(), TimeRemainingColumn(), console=console, transient=True
        ) as bar:
            task = bar.add_task(title, total=total)
            yield lambda: bar.advance(task)


silent = Progress()


def progress_for(choice: ProgressChoice) -> Progress:
    """The progress of a setting. Raises InputError for anything but a `ProgressChoice`."""
    if callable(choice):
        return Progress(write=choice)
    if choice == "auto":
        return Progress(sys.stderr.isatty())
    if not isinstance(choice, bool):
        line = 'progress must be True, False, "auto" or a function of (name, step, values)'
        raise InputError(f"{line}, got {choice!r}")
    return Progress(choice)
