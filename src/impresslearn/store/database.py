"""A store's file as rows: two connections, one to read and one to write, for all threads.

Any number of processes may read while one writes (SQLite's write-ahead log); a second writer waits
for `timeout` seconds. Inside a transaction a thread reads what it wrote; other threads read what
was committed. Commits are synchronous: what was committed survives a power cut.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from impresslearn.errors import InputError, StoreError
from impresslearn.store.connection import Line, Lines
from impresslearn.store.opening import (
    LONGEST_VALUE,
    allow_values,
    connect,
    create,
    longest_value,
)
from impresslearn.store.target import Target


class Database:
    """A store's file.

    readonly: refuse to write (and need no permission to). copy_old: as in `opening.connect`, for
    `readonly` only. Raises StoreError, here and in every method, for a file that is no store, is
    damaged, in use, gone, or cannot be written.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        *,
        readonly: bool = False,
        timeout: float = 60.0,
        copy_old: bool = False,
    ) -> None:
        self._begin(Target.of(path, readonly, timeout), copy_old)
        try:
            if not readonly:
                self._connection(self._lines.writing)
            self._connection(self._lines.reading)
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(cls, path: Path) -> Database:
        """A new, empty store, of which nothing is certain before it is closed and synchronised.

        Raises InputError for a path that is taken and StoreError where it cannot be written.
        """
        self = cls.__new__(cls)
        self._begin(Target.of(path, readonly=False, timeout=0.0), copy_old=False)
        try:
            self._lines.writing.connection = create(self.target)
        except FileExistsError:
            raise InputError(f"{path} exists already; choose another name") from None
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror or error}") from None
        self._lines.identity = self.target.identity()
        self._one_line = True
        return self

    @property
    def path(self) -> Path:
        """The file, as the caller named it."""
        return self.target.path

    @property
    def readonly(self) -> bool:
        """Whether writing is refused."""
        return self.target.readonly

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple]:
        """All rows of a statement."""
        line = self._line()
        with line.lock, self.target.clear_errors():
            return self._run(line, sql, values, sqlite3.Cursor.fetchall)

    def row(self, sql: str, values: Sequence[Any] = ()) -> tuple | None:
        """The first row of a statement, or None."""
        line = self._line()
        with line.lock, self.target.clear_errors():
            return self._run(line, sql, values, sqlite3.Cursor.fetchone)

    def write(self, sql: str, values: Sequence[Any] = ()) -> None:
        """Runs a statement, which must be inside `transaction`; sqlite3.IntegrityError passes."""
        line = self._lines.writing
        with line.lock, self.target.clear_errors():
            allow_values(self._connection(line), LONGEST_VALUE)
            self._connection(line).execute(sql, tuple(values))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside is written at the end, or on an error nothing; waits for its turn.

        Raises InputError where the file was opened for reading only.
        """
        self.check_writable()
        line = self._lines.writing
        with line.lock:
            connection = self._connection(line)
            if connection.in_transaction:  # a commit within a commit belongs to it
                yield
                return
            with self.target.clear_errors():
                connection.execute("BEGIN IMMEDIATE")
            self._writer = threading.get_ident()
            try:
                yield
                if self._connection(line) is not connection:
                    raise StoreError(f"{self.path} cannot be written by a forked process")
                with self.target.clear_errors():
                    connection.execute("COMMIT")
            finally:
                self._writer = None
                if line.connection is connection and connection.in_transaction:
                    with suppress(sqlite3.Error):  # the error that is on its way says more
                        connection.execute("ROLLBACK")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Everything that this thread reads inside is of one moment, whatever others write.

        Other threads wait with their reading.
        """
        line = self._line()
        with line.lock:
            connection = self._connection(line)
            if connection.in_transaction:
                yield
                return
            with self.target.clear_errors():
                connection.execute("BEGIN")
            try:
                yield
            finally:
                if line.connection is connection:
                    with suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Folds the log into the file; inside, nobody else has it open.

        Raises StoreError while others have it open.
        """
        with self._lines.both():
            with self.target.clear_errors():
                self._lines.fold(self.target)
                connection = self._connection(self._lines.writing)
                connection.execute("BEGIN EXCLUSIVE")
            self._writer = threading.get_ident()
            try:
                yield
            finally:
                self._writer = None
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")

    def vacuum(self) -> None:
        """Rewrites the file without its unused room. StoreError while others have it open."""
        with self._lines.both(), self.target.clear_errors():
            self._lines.fold(self.target)
            self._connection(self._lines.writing).execute("VACUUM")

    def check_writable(self) -> None:
        """Raises InputError where the file was opened for reading only."""
        if self.readonly:
            raise InputError(f"{self.path} was opened for reading only")

    def close(self) -> None:
        """Closes the file for all threads; the last one that may write leaves one plain file."""
        self._closed = True
        self._finalizer()

    def damaged(self, what: str) -> StoreError:
        """The error for content that is not as it was written."""
        return self.target.damaged(what)

    _lines: Lines
    _finalizer: weakref.finalize
    _writer: int | None  # the thread inside a transaction

    def _begin(self, target: Target, copy_old: bool) -> None:
        self.target = target
        self._copy_old = copy_old
        self._one_line = False
        self._closed = False
        self._writer = None
        self._lines = Lines()
        # Also where nobody calls `close`, at the latest when the process ends.
        self._finalizer = weakref.finalize(self, self._lines.close, target)

    def _run(
        self, line: Line, sql: str, values: Sequence[Any], fetch: Callable[[sqlite3.Cursor], Any]
    ) -> Any:
        """What a statement finds; with longer values if it needs them and the file has room."""
        connection = self._connection(line)
        try:
            return fetch(connection.execute(sql, tuple(values)))
        except sqlite3.DataError:
            if not allow_values(connection, longest_value(self.target)):
                raise
            return fetch(connection.execute(sql, tuple(values)))

    def _line(self) -> Line:
        """Where this thread reads: in its own transaction, what it wrote."""
        writing = self._one_line or self._writer == threading.get_ident()
        return self._lines.writing if writing else self._lines.reading

    def _connection(self, line: Line) -> sqlite3.Connection:
        """The connection of a line, whose lock is held; a new one at first and after a fork."""
        if self._closed:
            raise StoreError(f"{self.path} was closed; open it again")
        if self._lines.identity is not None:
            self.target.check_same(self._lines.identity)
        if line.connection is None:
            readonly = self.readonly or line is self._lines.reading
            target = replace(self.target, readonly=readonly)
            line.connection, identity = connect(target, self._copy_old)
            self._lines.identity = self._lines.identity or identity
            self.target.check_same(self._lines.identity)
        return line.connection
