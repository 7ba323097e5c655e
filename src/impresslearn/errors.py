"""The errors of this library. Each has a message of one line.

They derive from the built-in error with the same meaning, so `except ValueError` works too. The
command line prints the message and exits with the class's `exit_status`. Labels and file names may
contain control characters, so messages are passed through `visible`.
"""

import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unicodedata import category


class ImpressLearnError(Exception):
    """The base class of all errors that this library raises on purpose."""

    exit_status = 1  # of the command line

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # KeyError would print quotes around it


class InputError(ImpressLearnError, ValueError):
    """A value, shape, label or setting that cannot be used."""


class FixedSettingError(ImpressLearnError, AttributeError):
    """A setting that was changed after its owner was made."""


class UnknownTaskError(ImpressLearnError, KeyError):
    """No task has this name."""


class MissingDependencyError(ImpressLearnError, ImportError):
    """An optional package is needed and is not installed."""


class MissingDataError(ImpressLearnError, FileNotFoundError):
    """A data set is not at the given place and cannot be downloaded."""


class TrainingError(ImpressLearnError, ArithmeticError):
    """Training gave NaN or infinite numbers."""


class StoreError(ImpressLearnError, ValueError):
    """A store file that cannot be used: not a store, damaged, busy, or on a full disk."""


class StoreReplacedError(StoreError):
    """Another file has taken the place of a store that is open."""


class StoreBusyError(StoreError):
    """A store that another process is using; the same call may work later."""

    exit_status = 4


class StoreFullError(StoreError):
    """A store that cannot be written, because the disk is full; nothing was changed."""

    exit_status = 5


class StoreDamagedError(StoreError):
    """A store whose content differs from what was written."""

    exit_status = 6


class StoppedError(ImpressLearnError):
    """Work was stopped because nobody waits for it any more."""


class TasksFailedError(InputError):
    """Some tasks could not be learned; the others are in the store. errors: task name -> error."""

    exit_status = 3

    def __init__(self, errors: Mapping[str, ImpressLearnError], tasks: int) -> None:
        self.errors = dict(errors)
        name, error = next(iter(self.errors.items()))
        others = " (all of them are in .errors)" if len(errors) > 1 else ""
        line = f"{len(errors)} of {tasks} tasks were not learned, the others were: {name}: {error}"
        super().__init__(line + others)


class InputScaleWarning(UserWarning):
    """Inputs are on a scale from which networks learn badly."""


class NotLearnedWarning(UserWarning):
    """After training, a task does not predict better than guessing."""


def warn_caller(message: str, kind: type[Warning] = UserWarning) -> None:
    """Warns at the line of the user's code that called into this package."""
    package, frame, level = __name__.partition(".")[0], sys._getframe(1), 2
    while frame.f_back:
        module = frame.f_globals.get("__name__", "")
        # Skip torch's decorators too, such as no_grad, which come between our functions.
        if module.partition(".")[0] != package and module != "torch.utils._contextlib":
            break
        frame, level = frame.f_back, level + 1
    warnings.warn(message, kind, stacklevel=level)


def print_line(line: str) -> None:
    """Prints a message or progress to standard error."""
    print(visible(line), file=sys.stderr, flush=True)


@contextmanager
def error_prefix(place: str) -> Iterator[None]:
    """Puts `place` before the message of an error that this library raises."""
    try:
        yield
    except ImpressLearnError as error:
        raise type(error)(f"{place}: {error}") from error


# Characters that join letters of some scripts and parts of emoji: format characters to keep.
JOINERS = "\u200c\u200d"


def visible(text: str) -> str:
    """The text with control characters escaped as in Python: \\t, \\n, \\x1b, \\u202e."""
    if text.isprintable():
        return text
    return "".join(
        each
        if each.isprintable() or each in JOINERS or category(each) == "Zs"
        else each.encode("unicode_escape").decode()
        for each in text
    )
