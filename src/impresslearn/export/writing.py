"""Files that are there whole or not at all.

The bytes go to a new file in the same folder, which then takes the place of the old one in one
step, so that neither an error nor a full disk leaves half a file or harms an older export.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path

from impresslearn.errors import InputError


def checked_target(path: str | os.PathLike) -> Path:
    """The place that a file is to be written to, before work is spent on it.

    Raises InputError for what is no path, a folder that does not exist, and a path that is taken by
    something else than a file.
    """
    if not isinstance(path, (str, os.PathLike)) or isinstance(os.fspath(path), bytes):
        raise InputError(f"path must be a string or Path, got {type(path).__name__}")
    try:
        target = Path(os.path.realpath(path))  # a link is followed, not replaced
        if target.is_dir():
            raise InputError(f"cannot write {path}: it is a folder")
        if target.exists() and not target.is_file():
            raise InputError(f"cannot write {path}: it is not a regular file")
        if not target.parent.is_dir():
            raise InputError(f"cannot write {path}: there is no folder {target.parent}")
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise _cannot_write(path, error) from None
    return target


def replace_file(path: str | os.PathLike, data: bytes) -> Path:
    """Writes `data` to `path`, in the place of what was there, and returns the path.

    Raises InputError ("cannot write PATH: reason"); what was there is then still there.
    """
    target = checked_target(path)
    part = target.with_name(f".{uuid.uuid4().hex}.part")
    try:
        with part.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())  # a file that is renamed before it is on disk may end empty
        os.replace(part, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _cannot_write(path, error) from None
        raise
    return Path(path)


def _cannot_write(path: str | os.PathLike, error: OSError | ValueError) -> InputError:
    reason = getattr(error, "strerror", None) or str(error)
    return InputError(f"cannot write {os.fspath(path)!s}: {reason}")
