"""A connection to a store's file: opened with care, one for each thread, errors in one line.

Any number of processes may read while one writes (SQLite's write-ahead log); a second writer
waits for `timeout` seconds. Commits are synchronous: what was committed survives a power cut.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from impresslearn.errors import InputError, StoreError
from impresslearn.store import schema

LONGEST_VALUE = 2**30
SETTINGS = (
    "trusted_schema = OFF",
    "cell_size_check = ON",
    "foreign_keys = ON",
    "synchronous = FULL",
)
MAGIC = b"SQLite format 3\0"


class Database:
    """A store's file.

    readonly: refuse to write (and need no permission to). Raises StoreError, here and in every
    method, for a file that is no store, is damaged, busy or cannot be written.
    """

    def __init__(self, path: str | os.PathLike, *, readonly: bool = False, timeout: float = 60.0):
        self.path = Path(path)
        self.readonly = readonly
        self.timeout = timeout
        self._local = threading.local()
        self._open: list[sqlite3.Connection] = []
        self._writing = threading.RLock()
        self._closed = False
        _check_file(self.path)
        with self.clear_errors():
            self._check_marks(self.connection)

    @classmethod
    def create(cls, path: Path) -> Database:
        """A new, empty store; the file must not exist."""
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
        except FileExistsError:
            raise InputError(f"{path} exists already; choose another name") from None
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror or error}") from None
        try:
            connection = sqlite3.connect(path, isolation_level=None)
            try:
                schema.create_tables(connection)
            finally:
                connection.close()
        except sqlite3.Error as error:
            path.unlink(missing_ok=True)
            raise StoreError(f"cannot write {path}: {error}") from None
        return cls(path)

    @property
    def connection(self) -> sqlite3.Connection:
        """This thread's connection; connections do not survive a fork either."""
        kept = getattr(self._local, "kept", None)
        if kept is None or kept[0] != os.getpid():
            if self._closed:
                raise StoreError(f"{self.path} was closed; open it again")
            kept = self._local.kept = (os.getpid(), self._connect())
            self._open.append(kept[1])
        return kept[1]

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple]:
        """All rows of a statement."""
        with self.clear_errors():
            return self.connection.execute(sql, tuple(values)).fetchall()

    def row(self, sql: str, values: Sequence[Any] = ()) -> tuple | None:
        """The first row of a statement, or None."""
        with self.clear_errors():
            return self.connection.execute(sql, tuple(values)).fetchone()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside is written at the end, or on an error nothing; waits for its turn."""
        with self._writing:
            if self.connection.in_transaction:  # a commit within a commit belongs to it
                yield
                return
            with self.clear_errors():
                self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                with self.clear_errors():
                    self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Everything read inside is of one moment, whatever others write meanwhile."""
        if self.connection.in_transaction:
            yield
            return
        with self.clear_errors():
            self.connection.execute("BEGIN")
        try:
            yield
        finally:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")

    def exclusive(self) -> None:
        """Folds the write-ahead log into the file. StoreError while others have the file open."""
        with self.clear_errors():
            mode = self.connection.execute("PRAGMA journal_mode = DELETE").fetchone()[0]
        if mode != "delete":
            raise StoreError(f"{self.path} is open in another process; close it there first")

    def close(self) -> None:
        """Closes every thread's connection; the last of all processes leaves one plain file."""
        if not self._closed and not self.readonly:
            with suppress(StoreError):  # others have it open, or the disk is full: the log stays
                connection = self.connection
                connection.execute("PRAGMA busy_timeout = 0")
                self.exclusive()
        self._closed = True
        while self._open:
            self._open.pop().close()
        self._local = threading.local()

    @contextmanager
    def clear_errors(self) -> Iterator[None]:
        """Turns SQLite's errors into one line that names the file."""
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            raise StoreError(self._explained(str(error))) from None
        except (OverflowError, UnicodeDecodeError) as error:
            raise self.damaged(str(error)) from None

    def damaged(self, what: str) -> StoreError:
        """The error for content that is not as it was written."""
        line = " ".join(what.split())
        return StoreError(f"{self.path} is damaged: {line}; restore it from a copy")

    def _explained(self, message: str) -> str:
        if "full" in message:
            return f"cannot write {self.path}: the disk is full; nothing of this commit was kept"
        if "locked" in message or "busy" in message:
            return (
                f"{self.path} is being written by another process; "
                f"gave up after {self.timeout:g} seconds"
            )
        if "readonly" in message or "unable to open" in message:
            return f"cannot open {self.path} for writing; open it with readonly=True"
        if "disk I/O" in message:
            return f"cannot read or write {self.path}: {message}"
        return str(self.damaged(message))

    def _connect(self) -> sqlite3.Connection:
        mode = "ro" if self.readonly else "rw"
        log = self.path.with_name(self.path.name + "-wal")
        if self.readonly and not log.exists() and not os.access(self.path.parent, os.W_OK):
            mode += "&immutable=1"  # nobody can write here, and no log can be made
        with self.clear_errors():
            connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode={mode}",
                uri=True,
                timeout=self.timeout,
                isolation_level=None,
                check_same_thread=False,  # closed by whoever closes the store
            )
            if hasattr(connection, "setlimit"):  # Python 3.11
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
            for setting in SETTINGS:
                connection.execute(f"PRAGMA {setting}")
            return connection

    def _check_marks(self, connection: sqlite3.Connection) -> None:
        mark = connection.execute("PRAGMA application_id").fetchone()[0]
        if mark != schema.APPLICATION_ID:
            raise StoreError(f"{self.path} is an SQLite file, but no store of impresslearn")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > schema.VERSION:
            raise StoreError(
                f"{self.path} was written by a newer impresslearn (format {version}, this one "
                f"reads up to {schema.VERSION}); upgrade impresslearn"
            )
        if version < schema.VERSION:
            self._migrate(connection, version)
        if schema.schema_of(connection) != schema.expected_schema():
            raise self.damaged("its tables are not those of a store")
        if not self.readonly:
            connection.execute("PRAGMA journal_mode = WAL")

    def _migrate(self, connection: sqlite3.Connection, version: int) -> None:
        if self.readonly:
            raise StoreError(
                f"{self.path} has the older format {version}; open it for writing once to bring "
                "it up to date, or load a copy"
            )
        while version < schema.VERSION:
            if version not in schema.MIGRATIONS:
                raise self.damaged(f"there is no format {version}")
            statements = schema.MIGRATIONS[version]
            mark = f"PRAGMA user_version = {version + 1};"
            connection.executescript(f"BEGIN IMMEDIATE;{statements}{mark}COMMIT;")
            version += 1


def _check_file(path: Path) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(len(MAGIC))
    except FileNotFoundError:
        raise StoreError(f"there is no store at {path}") from None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from None
    if start != MAGIC:
        raise StoreError(f"{path} is no store of impresslearn")
