"""Checks paths, and puts a file's name into whatever goes wrong while the file is read."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from impresslearn.errors import ImpressLearnError, InputError, MissingDataError
from impresslearn.files import reason_of


def existing(path: str | Path) -> Path:
    """The path of a file or folder that is there.

    Raises MissingDataError where there is none, InputError for anything else than a path and for
    what is neither file nor folder.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"expected the path of a file or folder, got {type(path).__name__}")
    path = Path(path)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise MissingDataError(f"there is no file or folder {path}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {reason_of(error)}") from None
    if not path.is_file() and not path.is_dir():
        raise InputError(f"{path} is neither a file nor a folder")
    return path


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turns whatever is raised while a file or folder is read into one line that names it."""
    try:
        yield
    except ImpressLearnError as error:
        if str(path) in str(error):
            raise
        raise type(error)(f"{path}: {error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text; save it as UTF-8") from None
    except Exception as error:  # NumPy, zipfile and Pillow raise almost anything for damaged bytes
        raise InputError(f"cannot read {path}: {reason_of(error)}") from None


@contextmanager
def users_code(what: Callable[[], str]) -> Iterator[None]:
    """Turns whatever a user's own data set raises into one line; what: could not be read."""
    try:
        yield
    except ImpressLearnError:
        raise
    except Exception as error:
        raise InputError(f"{what()}: {type(error).__name__}: {reason_of(error)}") from error


def some(values: Sequence[str | int]) -> str:
    """Names for an error line, cut after the eighth."""
    shown = (repr(shorten(each) if isinstance(each, str) else each) for each in values[:8])
    return ", ".join(shown) + (", …" if len(values) > 8 else "")


def shorten(text: str) -> str:
    """A text for an error line, cut after forty characters."""
    return text if len(text) <= 40 else text[:39] + "…"
