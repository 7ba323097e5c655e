"""Which file is meant, whether it is still the same one, and how its errors read: in one line.

SQLite's own words are recognised whole, never by a part: a damaged text that it quotes could
contain any word. No byte of the file is read here: closing a handle of one's own would drop every
lock that this process has on the file (POSIX).
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from impresslearn.errors import InputError, StoreError

Identity = tuple[int, int]
"""Device and number of a file, which a moved, deleted or replaced one does not keep."""

LOGS = ("-wal", "-shm", "-journal")


@dataclass(frozen=True)
class Target:
    """A store's file. path: as the caller wrote it; place: without links; timeout: seconds."""

    path: Path
    place: Path
    readonly: bool
    timeout: float

    @classmethod
    def of(cls, path: str | os.PathLike, readonly: bool, timeout: float) -> Target:
        """Raises InputError for what is no path or no number of seconds."""
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout >= 0:
            raise InputError(f"timeout must be a number of seconds, got {timeout!r}")
        try:
            return cls(Path(path), Path(os.path.realpath(path)), readonly, min(timeout, 1e6))
        except (TypeError, ValueError) as error:
            raise InputError(f"the path of a store cannot be {path!r}: {error}") from None

    def identity(self) -> Identity:
        """The file that is there now. Raises StoreError unless it is an ordinary one."""
        try:
            found = os.stat(self.place)
        except (FileNotFoundError, NotADirectoryError):
            raise StoreError(f"there is no store at {self.path}") from None
        except (OSError, ValueError) as error:
            raise StoreError(f"cannot read {self.path}: {_reason(error)}") from None
        if not stat.S_ISREG(found.st_mode):
            kind = "a folder" if stat.S_ISDIR(found.st_mode) else "no ordinary file"
            raise StoreError(f"cannot read {self.path}: it is {kind}")
        if found.st_size == 0:
            raise StoreError(f"{self.path} is no store of impresslearn: it is empty")
        return found.st_dev, found.st_ino

    def check_same(self, known: Identity) -> None:
        """Raises StoreError unless the path still names the file that was opened."""
        try:
            found = os.stat(self.place)
        except OSError:
            raise StoreError(f"{self.path} was moved or deleted while it was open") from None
        if (found.st_dev, found.st_ino) != known:
            raise StoreError(
                f"{self.path} was replaced by another file while it was open; open it again"
            )

    def log(self, suffix: str = "-wal") -> Path:
        """SQLite's log beside the file."""
        return self.place.with_name(self.place.name + suffix)

    def damaged(self, what: str) -> StoreError:
        """The error for content that is not as it was written."""
        return StoreError(f"{self.path} is damaged: {_line(what)}; restore it from a copy")

    @contextmanager
    def clear_errors(self) -> Iterator[None]:
        """Turns SQLite's errors into one line that names the file; lets broken constraints pass."""
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            raise self._explained(error) from None
        except UnicodeEncodeError as error:
            text = error.object[:40]
            raise InputError(f"{text!r} cannot be stored: it is no valid Unicode") from None
        except (OverflowError, UnicodeDecodeError) as error:
            raise self.damaged(str(error)) from None
        except MemoryError:
            raise StoreError(
                f"{self.path} has a value that does not fit in memory, or is damaged"
            ) from None

    def _explained(self, error: sqlite3.Error) -> StoreError:
        message = str(error)
        if message == "database or disk is full":
            return StoreError(
                f"cannot write {self.path}: the disk is full; nothing of this commit was kept"
            )
        if message.startswith(("database is locked", "database schema is locked", "locking proto")):
            return StoreError(
                f"{self.path} is in use by another process; gave up after {self.timeout:g} seconds"
            )
        if message == "attempt to write a readonly database" and not self.readonly:
            if os.access(self.place, os.W_OK) and os.access(self.place.parent, os.W_OK):
                return self.damaged("it is marked as one that cannot be written")
            return StoreError(f"cannot write {self.path}; open it with readonly=True")
        if message in ("unable to open database file", "attempt to write a readonly database"):
            return self._unopened()
        if message == "disk I/O error":
            return StoreError(f"cannot read or write {self.path}: the disk reports an error")
        if message == "file is not a database":
            return StoreError(f"{self.path} is no store of impresslearn, or its start is damaged")
        if message == "string or blob too big":
            return StoreError(f"{self.path} cannot hold or has not written a value of that length")
        if isinstance(error, sqlite3.ProgrammingError) and "closed" in message:
            return StoreError(f"{self.path} was closed; open it again")
        return self.damaged(message)

    def _unopened(self) -> StoreError:
        for log in (self.log("-journal"), self.log()):
            if log.exists():
                return StoreError(
                    f"cannot open {self.path}: its log {log.name} has not been folded in, which "
                    "needs a folder that can be written; copy both files to one"
                )
        if not os.access(self.place, os.R_OK):
            return StoreError(f"cannot read {self.path}: permission denied")
        if not self.readonly and not os.access(self.place.parent, os.W_OK):
            return StoreError(
                f"cannot write to the folder of {self.path}; open it with readonly=True"
            )
        return StoreError(f"cannot open {self.path}: no permission, or too many open files")


def _line(text: str) -> str:
    """One line of printable characters."""
    line = " ".join(text.split())
    return "".join(each if each.isprintable() else "?" for each in line)[:300]


def _reason(error: OSError | ValueError) -> str:
    return str(getattr(error, "strerror", None) or error)
