"""Writes files whole or not at all.

The content is written to a new file in the same folder, which is then renamed in one step. So an
error or a full disk neither leaves half a file nor damages an older file.
"""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from impresslearn.errors import InputError


def check_place(path: str | os.PathLike) -> Path:
    """Checks a path before work is done, and returns it with links resolved, for writing a file.

    Raises InputError for another type, a missing folder, and a path that is not a regular file.
    """
    if not isinstance(path, (str, os.PathLike)) or isinstance(os.fspath(path), bytes):
        raise InputError(f"path must be a string or Path, got {type(path).__name__}")
    problem = ""
    try:
        place = Path(os.path.realpath(path))
        if place.exists() and not place.is_file():
            problem = "it is a folder" if place.is_dir() else "it is not a regular file"
        elif not place.parent.is_dir():
            problem = f"there is no folder {place.parent}"
    except (OSError, ValueError) as error:
        problem = reason_of(error)
    if problem:
        raise InputError(f"cannot write {path}: {problem}")
    return place


def write_file(path: str | os.PathLike, content: bytes | str, *, folders: bool = False) -> Path:
    """Writes a file, in place of an older file at this path. Returns the path.

    - `content`: bytes, or text, which is written as UTF-8 with lone surrogates escaped.
    - `folders`: whether to make missing folders; default False.

    Raises InputError ("cannot write PATH: reason"); an older file is then not changed.
    """
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    try:
        if folders:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        with new_file(check_place(path)) as temporary:
            temporary.write_bytes(data)
    except OSError as error:
        raise InputError(f"cannot write {os.fspath(path)}: {reason_of(error)}") from None
    return Path(path)


@contextmanager
def new_file(place: Path, *, overwrite: bool = True) -> Iterator[Path]:
    """Yields an unused path beside `place`. At the end the file written there becomes `place`.

    By then the file is on the disk, with the permissions of the file that it replaces. Raises
    OSError if this fails, and FileExistsError if `place` exists and overwrite is False. After an
    error the unused path is free again.
    """
    temporary = place.with_name(f".impresslearn-{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
        _synchronise(temporary)
        if place.exists() and not overwrite:  # made by another process meanwhile
            raise FileExistsError(place)
        with suppress(FileNotFoundError):
            temporary.chmod(place.stat().st_mode & 0o777)
        os.replace(temporary, place)
        with suppress(OSError):  # some network file systems refuse this for folders
            _synchronise(place.parent)
    finally:
        with suppress(OSError):
            for left in place.parent.glob(f"{temporary.name}*"):
                left.unlink(missing_ok=True)


def reason_of(error: BaseException) -> str:
    """The reason for an error, in one line: the system's message if there is one."""
    text = str(getattr(error, "strerror", None) or error).strip()
    line = "".join(text.splitlines()[:1]).partition(" <_io.")[0]
    return line.rpartition("C error: ")[2] or type(error).__name__


def _synchronise(path: Path) -> None:
    """Waits until a file (on POSIX also the names in a folder) is on the disk."""
    if path.is_dir() and os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
