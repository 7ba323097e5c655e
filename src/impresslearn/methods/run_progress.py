"""Shows how far a comparison is: method, seed and task of every run, and done of all.

A run may be in another process, so each writes where it is to a small file, and a thread of the
main process reads these. On a terminal it draws a bar; elsewhere it prints plain lines.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from impresslearn.errors import visible

LOOK_EVERY = 0.5
LINE_EVERY = 5.0  # seconds between plain lines, so that a log stays readable


class RunProgress:
    """A display of runs, as a context manager.

    - total, done: runs of the comparison, and those that are finished
    - shown: whether anything is printed
    """

    def __init__(self, total: int, done: int, shown: bool) -> None:
        self.total, self.done = total, done
        self._shown = shown
        self._over = threading.Event()
        self._folder = tempfile.TemporaryDirectory(prefix="impresslearn-")
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> RunProgress:
        if self._shown:
            if sys.stderr.isatty():
                self._start_bar()
            self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._bar is not None:
            self._bar.stop()
        self._folder.cleanup()

    def file_of(self, number: int) -> Path:
        """Where run `number` writes where it is."""
        return Path(self._folder.name) / str(number)

    def say(self, line: str) -> None:
        """Prints a line, above the bar where there is one."""
        if not self._shown:
            return
        if self._bar is not None:
            self._bar.console.print(visible(line), markup=False, highlight=False)
        else:
            print(visible(line), file=sys.stderr, flush=True)

    def finish(self, number: int, line: str) -> None:
        """Counts a run as done."""
        self.file_of(number).unlink(missing_ok=True)
        self.done += 1
        self.say(f"[{self.done}/{self.total}] {line}")
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done)

    def _start_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        text = TextColumn("{task.description}", markup=False)  # brackets in names are no markup
        columns = (MofNCompleteColumn(), BarColumn(bar_width=20), text)
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("starting", total=self.total, completed=self.done)
        self._bar.start()

    def _watch(self) -> None:
        last, waited = "", LINE_EVERY  # the first line comes at once
        while not self._over.wait(LOOK_EVERY):
            waited += LOOK_EVERY
            now = self._running()
            if not now or now == last:
                continue
            if self._bar is not None:
                self._bar.update(self._task, description=now)
            elif waited >= LINE_EVERY:
                self.say(f"[{self.done}/{self.total}] {now}")
                waited = 0.0
            last = now

    def _running(self) -> str:
        texts = []
        for file in sorted(Path(self._folder.name).iterdir()):
            with suppress(OSError):  # its run has just ended
                texts.append(file.read_text(encoding="utf-8"))
        return "; ".join(text for text in texts if text)


def task_writer(file: Path, run: str, tasks: int) -> Callable[[int, str], None]:
    """A function that writes which task a run is at.

    - run: what the run is called
    - tasks: how many it has
    """

    def write(learned: int, name: str) -> None:
        # On a worker of another machine the folder is missing: only done / all is shown then.
        with suppress(OSError):
            file.write_text(f"{run}: task {learned + 1}/{tasks} {name}", encoding="utf-8")

    return write
