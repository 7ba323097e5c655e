"""The path of a store: which file it names, and SQLite's errors as one line.

No byte of the file is read here: closing a handle of one's own would drop every lock that this
process has on the file (POSIX).
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from impresslearn.errors import InputError, StoreError, visible
from impresslearn.files import reason_of

Identity = tuple[int, int]
"""Device and number of a file, which a moved, deleted or replaced one does not keep."""

LOGS = ("-wal", "-shm", "-journal")
REASONS = {
    "database or disk is full": "cannot write {}: the disk is full; nothing of the commit was kept",
    "disk I/O error": "cannot read or write {}: the disk reports an error",
    "file is not a database": "{} is no store of impresslearn, or its start is damaged",
    "string or blob too big": "{} cannot hold or has not written a value of that length",
    "Cannot operate on a closed database.": "{} was closed; open it again",
}
"""What SQLite says, as a whole: a damaged text that it quotes could contain any word."""


@dataclass(frozen=True)
class StoreFile:
    """A store's path. path: as the caller wrote it; place: without links; timeout: seconds."""

    path: Path
    place: Path
    readonly: bool
    timeout: float

    @classmethod
    def at(
        cls, path: str | os.PathLike, readonly: bool = False, timeout: float = 60.0
    ) -> StoreFile:
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
            raise StoreError(f"cannot read {self.path}: {reason_of(error)}") from None
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

    def nbytes(self) -> int:
        """Bytes of the file and of its log."""
        return sum(each.stat().st_size for each in (self.place, self.log()) if each.exists())

    def damaged(self, what: str) -> StoreError:
        """The error for content that is not as it was written."""
        line = visible(" ".join(what.split()))[:300]
        return StoreError(f"{self.path} is damaged: {line}; restore it from a copy")

    @contextmanager
    def clear_errors(self) -> Iterator[None]:
        """Turns SQLite's errors into one line that names the file; lets broken constraints pass."""
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            raise self._explained(str(error)) from None
        except UnicodeEncodeError as error:
            text = error.object[:40]
            raise InputError(f"{text!r} cannot be stored: it is no valid Unicode") from None
        except (OverflowError, UnicodeDecodeError) as error:
            raise self.damaged(str(error)) from None
        except MemoryError:
            raise self.damaged("it has a value that does not fit in memory") from None

    def _explained(self, message: str) -> StoreError:
        if message in REASONS:
            return StoreError(REASONS[message].format(self.path))
        if message.startswith(("database is locked", "database schema is locked", "locking proto")):
            waited = f"waited up to {self.timeout:g} s"
            line = f"{self.path} is in use by another process ({waited})"
            return StoreError(f"{line}; try again once that one has closed it")
        if message == "attempt to write a readonly database" and not self.readonly:
            if os.access(self.place, os.W_OK) and os.access(self.place.parent, os.W_OK):
                return self.damaged("it is marked as one that cannot be written")
            return StoreError(f"cannot write {self.path}; open it with readonly=True")
        if message in ("unable to open database file", "attempt to write a readonly database"):
            return self._unopened()
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
            return StoreError(f"cannot write beside {self.path}; open it with readonly=True")
        return StoreError(f"cannot open {self.path}: no permission, or too many open files")
