"""Progress of long work: a bar on a terminal, else a line of text now and then; or a log.

The library calls `progress.track(total)` and advances, and `progress.log(step, values)` where it
knows numbers; what becomes of them is the caller's choice. A log is any function of (name, step,
values): the training's title, such as "task rotated-30", the steps taken, and the loss (nats, with
the price of bits) and the learning rate by their names; of `evaluate` "evaluation", the tasks
learned, and their accuracies. TensorBoard, Weights & Biases and MLflow are three lines each:

    from torch.utils.tensorboard import SummaryWriter
    board = SummaryWriter("logs")
    learner.progress = lambda name, step, values: [
        board.add_scalar(f"{name}/{key}", value, step) for key, value in values.items()]

    import wandb
    run = wandb.init(project="digits")
    learner.progress = lambda name, step, values: run.log(
        {f"{name}/{key}": value for key, value in values.items()} | {f"{name}/step": step})

    import mlflow
    mlflow.start_run()
    learner.progress = lambda name, step, values: mlflow.log_metrics(
        {f"{name}/{key}": value for key, value in values.items()}, step=step)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from impresslearn.errors import InputError, visible

if TYPE_CHECKING:
    from rich.console import Console

FIRST_LINE, LINE_EVERY = 10.0, 30.0
"""Seconds. Short work says nothing, and a chain of it never more than a line in ten seconds."""


Log = Callable[[str, int, dict[str, float]], Any]
"""A function of what is trained, the steps taken, and numbers by their names."""
ProgressChoice = bool | str | Log
"""True, False, "auto" (a bar or lines if standard error is a terminal), or a log in their place."""


@dataclass(frozen=True)
class Progress:
    """Tells how far work titled `title` is if `shown`, and `write`, if given, its numbers."""

    shown: bool = False
    title: str = ""
    write: Log | None = None

    def titled(self, title: str) -> Progress:
        """The same, with another title."""
        return Progress(self.shown, title, self.write)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Hands numbers to the log, where there is one; what it raises ends the work."""
        if self.write is not None:
            self.write(self.title, step, dict(values))

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


def progress_for(choice: ProgressChoice) -> Progress:
    """What a choice stands for. Raises InputError for anything else."""
    if callable(choice):
        return Progress(write=choice)
    if choice == "auto":
        return Progress(sys.stderr.isatty())
    if not isinstance(choice, bool):
        raise InputError(
            'progress must be True, False, "auto" or a function of (name, step, values), '
            f"got {choice!r}"
        )
    return Progress(choice)
