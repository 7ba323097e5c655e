"""The SQLite database of a store: rows and transactions for all threads of a process.

Two connections, one to read and one to write, serve all threads. Any number of processes may read
while one writes; a second writer waits for `timeout` seconds. Inside a transaction a thread reads
what it wrote, others what was committed, which survives a power cut.

SQLite must not be used across a fork: a child inherits the notes that SQLite keeps on its locks,
but not the locks, so another process could take its log away. A fork therefore waits until no
thread is inside a statement; the child lets go of what it inherited and connects anew.
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
    allow_values,
    connect,
    create,
    longest_value,
)
from impresslearn.store.file import Identity, StoreFile

PATIENCE = 10.0
"""Seconds that a fork waits for each connection."""


class Slot:
    """A place for a connection, None until it is needed, and its lock."""

    def __init__(self) -> None:
        self.connection: sqlite3.Connection | None = None
        self.lock = threading.RLock()

    def close(self) -> None:
        """Closes the connection, if there is one."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()


class Database:
    """A store's file; new: make it, of which nothing is certain before it is closed.

    Raises StoreError, here and in every method, for a file that is no store, is damaged, in use,
    gone, or cannot be written; OSError where a new one cannot be made.
    """

    def __init__(self, file: StoreFile, new: bool = False) -> None:
        self.file = file
        self._closed = False
        self._writer: int | None = None  # the thread inside a transaction
        self._identity: Identity | None = None  # of the file that was opened first
        self.reading, self.writing = Slot(), Slot()
        with _listing:
            _open.add(self)
        try:
            if new:
                self.writing.connection, self._identity = create(file), file.identity()
                return
            if not file.readonly:
                self._connection(self.writing)
            self._connection(self.reading)
        except BaseException:
            self.close()
            raise

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple]:
        """All rows of a statement; with longer values if it needs them and the file has room."""
        slot = self._slot()
        with slot.lock, self.file.clear_errors():
            connection = self._connection(slot)
            try:
                return connection.execute(sql, tuple(values)).fetchall()
            except sqlite3.DataError:
                allow_values(connection, longest_value(self.file))
                return connection.execute(sql, tuple(values)).fetchall()

    def row(self, sql: str, values: Sequence[Any] = ()) -> tuple | None:
        """The first row of a statement, or None."""
        return next(iter(self.rows(sql, values)), None)

    def write(self, sql: str, *values: Any) -> None:
        """Runs a statement, which must be inside `transaction`; sqlite3.IntegrityError passes."""
        with self.writing.lock, self.file.clear_errors():
            connection = self._connection(self.writing)
            allow_values(connection, LONGEST_VALUE)
            connection.execute(sql, values)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside is written at the end, or on an error nothing; waits for its turn."""
        self.check_writable()
        with self._begun(self.writing):
            yield

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Everything that this thread reads inside is of one moment, whatever others write.

        Other threads wait with their reading.
        """
        with self._begun(self._slot()):
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Folds the log into the file; inside, nobody else has it open, nor can write to it.

        Raises StoreError while others have it open.
        """
        with self.writing.lock, self.reading.lock:
            with self.file.clear_errors():
                self._fold()
                connection = self._connection(self.writing)
                connection.execute("BEGIN EXCLUSIVE")
            try:
                yield
            finally:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")

    def vacuum(self) -> None:
        """Rewrites the file without its unused room. StoreError while others have it open."""
        with self.writing.lock, self.reading.lock, self.file.clear_errors():
            self._fold()
            self._connection(self.writing).execute("VACUUM")

    def check_writable(self) -> None:
        """Raises InputError where the file was opened for reading only."""
        if self.file.readonly:
            raise InputError(f"{self.file.path} was opened for reading only")

    def close(self) -> None:
        """Closes the file for all threads; the last one that may write leaves one plain file."""
        self._closed = True
        with self.writing.lock, self.reading.lock:
            with suppress(sqlite3.Error, StoreError):  # in use elsewhere, or full: the log stays
                if self.writing.connection is not None:
                    self.writing.connection.execute("PRAGMA busy_timeout = 0")
                    self._fold()
            self.reading.close()
            self.writing.close()

    @contextmanager
    def _begun(self, slot: Slot) -> Iterator[None]:
        """A transaction to write or to read; one within another belongs to it."""
        writes = slot is self.writing
        with slot.lock:
            connection = self._connection(slot)
            if connection.in_transaction:
                yield
                return
            with self.file.clear_errors():
                connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            if writes:
                self._writer = threading.get_ident()
            try:
                yield
                if writes:
                    if self._connection(slot) is not connection:
                        raise StoreError(f"{self.file.path} cannot be written by a forked process")
                    with self.file.clear_errors():
                        connection.execute("COMMIT")
            finally:
                if writes:
                    self._writer = None
                if slot.connection is connection and connection.in_transaction:
                    with suppress(sqlite3.Error):  # the error that is on its way says more
                        connection.execute("ROLLBACK")

    def _fold(self) -> None:
        """Writes the log into the file and leaves no log. sqlite3.Error while others use the file.

        A file that was moved keeps its log: the one at its old name may be another's.
        """
        self.reading.close()
        if self.writing.connection is not None and self._identity is not None:
            self.file.check_same(self._identity)
            mode = self.writing.connection.execute("PRAGMA journal_mode = DELETE").fetchone()
            if mode != ("delete",):
                raise sqlite3.OperationalError("database is locked")

    def _slot(self) -> Slot:
        """Where this thread reads: in its own transaction, what it wrote."""
        return self.writing if self._writer == threading.get_ident() else self.reading

    def _connection(self, slot: Slot) -> sqlite3.Connection:
        """The connection of a slot, whose lock is held; a new one at first and after a fork."""
        if self._closed:
            raise StoreError(f"{self.file.path} was closed; open it again")
        if self._identity is not None:
            self.file.check_same(self._identity)
        if slot.connection is None:
            readonly = self.file.readonly or slot is self.reading
            slot.connection, found = connect(replace(self.file, readonly=readonly))
            self._identity = self._identity or found
            self.file.check_same(self._identity)
        return slot.connection


_open: weakref.WeakSet[Database] = weakref.WeakSet()
_listing = threading.RLock()
_held: list[Slot] = []
_abandoned: list[sqlite3.Connection] = []


def _before_fork() -> None:
    _listing.acquire()
    for each in list(_open):
        slots = (each.writing, each.reading)  # in the order in which a commit takes them
        _held.extend(slot for slot in slots if slot.lock.acquire(timeout=PATIENCE))


def _after_in_parent() -> None:
    while _held:
        _held.pop().lock.release()
    _listing.release()


def _after_in_child() -> None:
    for each in list(_open):
        for slot in (each.writing, each.reading):
            connection = slot.connection
            if connection is not None and (slot not in _held or connection.in_transaction):
                _abandoned.append(connection)  # closing it could disturb the parent's work
                slot.connection = None
            slot.close()
            slot.lock = threading.RLock()
    _held.clear()
    _listing.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_in_parent,
        after_in_child=_after_in_child,
    )
