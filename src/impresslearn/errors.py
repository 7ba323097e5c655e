"""The errors that a caller may meet: one line each, saying what was expected and what came.

They derive from the built-in error of the same meaning, so `except ValueError` works too; the
command line prints the line and exits with the class's `exit_status`. A label or a file's name may
hold anything: all that is shown goes through `visible`.
"""

import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unicodedata import category


class ImpressLearnError(Exception):
    """Base of every error that this library raises on purpose."""

    exit_status = 1  # of the command line

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # KeyError would print quotes around it


class InputError(ImpressLearnError, ValueError):
    """A value, shape, label or setting that cannot be used."""


class FixedSettingError(ImpressLearnError, AttributeError):
    """A setting that was changed after its owner was made."""


class UnknownTaskError(ImpressLearnError, KeyError):
    """A task name that was never learned."""


class MissingDependencyError(ImpressLearnError, ImportError):
    """An optional package is needed and is not installed."""


class MissingDataError(ImpressLearnError, FileNotFoundError):
    """A data set is neither at the given place nor downloadable."""


class TrainingError(ImpressLearnError, ArithmeticError):
    """Optimisation left the finite numbers."""


class StoreError(ImpressLearnError, ValueError):
    """A store file that cannot be used: damaged, foreign, busy, or with no room to write."""


class StoreReplacedError(StoreError):
    """Another file has taken the place of a store that is open."""


class StoreBusyError(StoreError):
    """A store that another process is using; the same call may work later."""

    exit_status = 4


class StoreFullError(StoreError):
    """A store that cannot be written, because the disk is full; nothing was changed."""

    exit_status = 5


class StoreDamagedError(StoreError):
    """A store whose content is not what was written."""

    exit_status = 6


class StoppedError(ImpressLearnError):
    """Work that nobody waits for any more."""


class TasksFailedError(InputError):
    """Some of many tasks could not be learned; all others are in the store.

    - errors: name -> its error.
    """

    exit_status = 3

    def __init__(self, errors: Mapping[str, ImpressLearnError], tasks: int) -> None:
        self.errors = dict(errors)
        name, error = next(iter(self.errors.items()))
        others = " (all of them are in .errors)" if len(errors) > 1 else ""
        line = f"{len(errors)} of {tasks} tasks were not learned, the others were: {name}: {error}"
        super().__init__(line + others)


class InputScaleWarning(UserWarning):
    """Inputs of a scale that networks learn badly from as they are."""


class NotLearnedWarning(UserWarning):
    """A task whose training ended no better than guessing."""


def warn_caller(message: str, kind: type[Warning] = UserWarning) -> None:
    """Warns at the line outside of this package that called into it."""
    package, frame, level = __name__.partition(".")[0], sys._getframe(1), 2
    while frame.f_back:
        module = frame.f_globals.get("__name__", "")
        # torch's decorators, such as no_grad, lie between our functions.
        if module.partition(".")[0] != package and module != "torch.utils._contextlib":
            break
        frame, level = frame.f_back, level + 1
    warnings.warn(message, kind, stacklevel=level)


def print_line(line: str) -> None:
    """Prints a message or progress to standard error."""
    print(visible(line), file=sys.stderr, flush=True)


@contextmanager
def error_prefix(place: str) -> Iterator[None]:
    """Puts the place in front of the message of an error that this library raises."""
    try:
        yield
    except ImpressLearnError as error:
        raise type(error)(f"{place}: {error}") from error


# Between letters of some scripts and parts of some emoji: the only format characters that stay.
JOINERS = "\u200c\u200d"


def visible(text: str) -> str:
    """The text with controls, line breaks and the like as in Python: \\t, \\x1b, \\u202e."""
    if text.isprintable():
        return text
    return "".join(
        each
        if each.isprintable() or each in JOINERS or category(each) == "Zs"
        else each.encode("unicode_escape").decode()
        for each in text
    )
