"""Progress of long work: a bar on standard error, or numbers for a log.

A log is a function of (name, step, values): the training's title, such as "task rotated-30", the
number of steps, and a mapping with the loss (nats, including the price of bits) and the learning
rate. This is a log for TensorBoard; Weights & Biases and MLflow need the same three lines:

    from torch.utils.tensorboard import SummaryWriter
    board = SummaryWriter("logs")
    learner.progress = lambda name, step, values: [
        board.add_scalar(f"{name}/{key}", value, step) for key, value in values.items()]
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from impresslearn.errors import InputError, visible

# A function of the training's title, the number of steps, and numbers by name.
Log = Callable[[str, int, dict[str, float]], Any]
# Whether to show a bar: True, False or "auto" (if standard error is a terminal); or a log.
ProgressChoice = bool | str | Log


@dataclass(frozen=True)
class Progress:
    """Reports the progress of some work.

    - shown: whether to show a bar on standard error.
    - title: the name of the work, in bars and logs.
    - write: a log, or None; an exception that it raises ends the work.
    """

    shown: bool = False
    title: str = ""
    write: Log | None = None

    def titled(self, title: str) -> "Progress":
        return Progress(self.shown, title, self.write)

    @contextmanager
    def track(self, total: int) -> Iterator[Callable[[], None]]:
        """Yields a function to call once per step."""
        if not self.shown:
            yield lambda: None
            return
        from rich import progress as rich
        from rich.console import Console

        name = rich.TextColumn("{task.description}", markup=False)  # brackets are not markup
        times = "after", rich.TimeElapsedColumn(), rich.TimeRemainingColumn(), "left"
        columns = name, rich.BarColumn(12), rich.MofNCompleteColumn(), *times
        # Lines printed meanwhile go above the bar, unless standard output is not the terminal.
        how: Any = {"transient": True, "redirect_stdout": sys.stdout.isatty()}
        with rich.Progress(*columns, console=Console(stderr=True), **how) as bar:
            task = bar.add_task(visible(self.title)[:30], total=total)  # fits in 80 columns
            yield lambda: bar.advance(task)


silent = Progress()


def progress_for(choice: ProgressChoice) -> Progress:
    """The `Progress` for a setting. Raises InputError for anything but a `ProgressChoice`."""
    if callable(choice):
        return Progress(write=choice)
    if choice == "auto":
        return Progress(sys.stderr.isatty())
    if not isinstance(choice, bool):
        line = 'progress must be True, False, "auto" or a function of (name, step, values)'
        raise InputError(f"{line}, got {choice!r}")
    return Progress(choice)
