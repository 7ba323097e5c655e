"""The SQLite database of a store: rows and transactions for all threads of a process.

Two connections, one to read and one to write, serve all threads. Any number of processes may read
while one writes (SQLite's write-ahead log); a second writer waits for `timeout` seconds. Inside a
transaction a thread reads what it wrote; other threads read what was committed. Commits are
synchronous: what was committed survives a power cut.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from impresslearn.errors import InputError, StoreError
from impresslearn.store.connections import (
    LONGEST_VALUE,
    Connections,
    Slot,
    allow_values,
    connect,
    create,
    longest_value,
)
from impresslearn.store.file import StoreFile


class Database:
    """A store's file.

    readonly: refuse to write (and need no permission to). copy_old: as in `connections.connect`,
    for `readonly` only. Raises StoreError, here and in every method, for a file that is no store,
    is damaged, in use, gone, or cannot be written.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        *,
        readonly: bool = False,
        timeout: float = 60.0,
        copy_old: bool = False,
    ) -> None:
        self._begin(StoreFile.at(path, readonly, timeout), copy_old)
        try:
            if not readonly:
                self._connection(self._connections.writing)
            self._connection(self._connections.reading)
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(cls, file: StoreFile) -> Database:
        """A new, empty store, of which nothing is certain before it is closed and synchronised.

        Raises OSError where a file cannot be made there.
        """
        self = cls.__new__(cls)
        self._begin(file, copy_old=False)
        self._connections.writing.connection = create(file)
        self._connections.identity = file.identity()
        self._only_writes = True
        return self

    def _begin(self, file: StoreFile, copy_old: bool) -> None:
        self.file = file
        self._copy_old = copy_old
        self._only_writes = False
        self._closed = False
        self._writer: int | None = None  # the thread inside a transaction
        self._connections = Connections()
        # Also where nobody calls `close`, at the latest when the process ends.
        self._finalizer = weakref.finalize(self, self._connections.close, file)

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple]:
        """All rows of a statement; with longer values if it needs them and the file has room."""
        slot = self._slot()
        with slot.lock, self.file.clear_errors():
            connection = self._connection(slot)
            try:
                return connection.execute(sql, tuple(values)).fetchall()
            except sqlite3.DataError:
                if not allow_values(connection, longest_value(self.file)):
                    raise
                return connection.execute(sql, tuple(values)).fetchall()

    def row(self, sql: str, values: Sequence[Any] = ()) -> tuple | None:
        """The first row of a statement, or None."""
        return next(iter(self.rows(sql, values)), None)

    def write(self, sql: str, *values: Any) -> None:
        """Runs a statement, which must be inside `transaction`; sqlite3.IntegrityError passes."""
        slot = self._connections.writing
        with slot.lock, self.file.clear_errors():
            allow_values(self._connection(slot), LONGEST_VALUE)
            self._connection(slot).execute(sql, values)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside is written at the end, or on an error nothing; waits for its turn.

        Raises InputError where the file was opened for reading only.
        """
        self.check_writable()
        slot = self._connections.writing
        with slot.lock:
            connection = self._connection(slot)
            if connection.in_transaction:  # a commit within a commit belongs to it
                yield
                return
            with self.file.clear_errors():
                connection.execute("BEGIN IMMEDIATE")
            self._writer = threading.get_ident()
            try:
                yield
                if self._connection(slot) is not connection:
                    raise StoreError(f"{self.file.path} cannot be written by a forked process")
                with self.file.clear_errors():
                    connection.execute("COMMIT")
            finally:
                self._writer = None
                if slot.connection is connection and connection.in_transaction:
                    with suppress(sqlite3.Error):  # the error that is on its way says more
                        connection.execute("ROLLBACK")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Everything that this thread reads inside is of one moment, whatever others write.

        Other threads wait with their reading.
        """
        slot = self._slot()
        with slot.lock:
            connection = self._connection(slot)
            if connection.in_transaction:
                yield
                return
            with self.file.clear_errors():
                connection.execute("BEGIN")
            try:
                yield
            finally:
                if slot.connection is connection:
                    with suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Folds the log into the file; inside, nobody else has it open, nor can write to it.

        Raises StoreError while others have it open.
        """
        with self._connections.both():
            with self.file.clear_errors():
                self._connections.fold(self.file)
                connection = self._connection(self._connections.writing)
                connection.execute("BEGIN EXCLUSIVE")
            try:
                yield
            finally:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")

    def vacuum(self) -> None:
        """Rewrites the file without its unused room. StoreError while others have it open."""
        with self._connections.both(), self.file.clear_errors():
            self._connections.fold(self.file)
            self._connection(self._connections.writing).execute("VACUUM")

    def check_writable(self) -> None:
        """Raises InputError where the file was opened for reading only."""
        if self.file.readonly:
            raise InputError(f"{self.file.path} was opened for reading only")

    def close(self) -> None:
        """Closes the file for all threads; the last one that may write leaves one plain file."""
        self._closed = True
        self._finalizer()

    def _slot(self) -> Slot:
        """Where this thread reads: in its own transaction, what it wrote."""
        writing = self._only_writes or self._writer == threading.get_ident()
        return self._connections.writing if writing else self._connections.reading

    def _connection(self, slot: Slot) -> sqlite3.Connection:
        """The connection of a slot, whose lock is held; a new one at first and after a fork."""
        if self._closed:
            raise StoreError(f"{self.file.path} was closed; open it again")
        connections = self._connections
        if connections.identity is not None:
            self.file.check_same(connections.identity)
        if slot.connection is None:
            readonly = self.file.readonly or slot is connections.reading
            slot.connection, found = connect(replace(self.file, readonly=readonly), self._copy_old)
            connections.identity = connections.identity or found
            self.file.check_same(connections.identity)
        return slot.connection
