"""Paths checked before they are read, and whatever goes wrong while reading in one line.

Every reader of this folder works inside `reading(path)`, so that no error of numpy, zipfile or
Pillow reaches the caller without the name of the file.
"""

from __future__ import annotations

import csv
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from zipfile import BadZipFile

from impresslearn.errors import ImpressLearnError, InputError, MissingDataError

DAMAGE = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    EOFError,
    SyntaxError,
    ArithmeticError,
    RuntimeError,  # NotImplementedError and RecursionError too
    MemoryError,
    BadZipFile,
    TokenError,
    csv.Error,
    struct.error,
    zlib.error,
)
"""What the readers of numpy, zipfile and Pillow raise for bytes that are not what they expect."""


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
        raise InputError(f"cannot read {path}: {_reason(error)}") from None
    if not path.is_file() and not path.is_dir():
        raise InputError(f"{path} is neither a file nor a folder")
    return path


def existing_file(path: str | Path, expected: str) -> Path:
    """Like `existing`, for a file; expected: what it should be, for the error about a folder."""
    path = existing(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder; expected {expected}")
    return path


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns whatever reading a file raises into one line that names it."""
    try:
        yield
    except ImpressLearnError as error:
        if str(path) in str(error):
            raise
        raise type(error)(f"{path}: {error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text; save it as UTF-8") from None
    except (OSError, *DAMAGE) as error:
        raise InputError(f"cannot read {path}: {_reason(error)}") from None


def some(values: list[str] | tuple[str, ...]) -> str:
    """Names for an error line, cut after the eighth."""
    shown = ", ".join(repr(shorten(value)) for value in values[:8])
    return shown + (", …" if len(values) > 8 else "")


def shorten(text: str) -> str:
    """A text for an error line, cut after forty characters."""
    return text if len(text) <= 40 else text[:39] + "…"


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).split("\n", 1)[0] or type(error).__name__
