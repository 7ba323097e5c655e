"""The two connections of a `Database`, each with the lock of whoever uses it, and what a fork does.

SQLite must not be used across a fork: a child inherits the notes that SQLite keeps on its locks,
but not the locks, so another process could take its log away. A fork therefore waits until no
thread is inside a statement; the child lets go of what it inherited and connects anew.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from impresslearn.errors import StoreError
from impresslearn.store.target import Identity, Target

PATIENCE = 10.0
"""Seconds that a fork waits for each connection."""


class Line:
    """A connection, None until it is needed, and its lock."""

    def __init__(self) -> None:
        self.connection: sqlite3.Connection | None = None
        self.lock = threading.RLock()


class Lines:
    """The connections to one file; identity: of the file that the first of them opened."""

    def __init__(self) -> None:
        self.reading, self.writing = Line(), Line()
        self.identity: Identity | None = None
        with _listing:
            _open.add(self)

    @contextmanager
    def both(self) -> Iterator[None]:
        """Waits until no other thread uses either; in the order in which a commit takes them."""
        with self.writing.lock, self.reading.lock:
            yield

    def fold(self, target: Target) -> None:
        """Writes the log into the file and leaves no log. sqlite3.Error while others use the file.

        A file that was moved keeps its log: the one at its old name may be another's.
        """
        with self.both():
            _close(self.reading)
            if self.writing.connection is not None and self.identity is not None:
                target.check_same(self.identity)
                mode = self.writing.connection.execute("PRAGMA journal_mode = DELETE").fetchone()
                if mode != ("delete",):
                    raise sqlite3.OperationalError("database is locked")

    def close(self, target: Target) -> None:
        """Closes both connections, after folding the log in where nobody else has the file open."""
        with self.both():
            with suppress(sqlite3.Error, StoreError):  # in use elsewhere, or full: the log stays
                if self.writing.connection is not None:
                    self.writing.connection.execute("PRAGMA busy_timeout = 0")
                    self.fold(target)
            _close(self.reading)
            _close(self.writing)


_open: weakref.WeakSet[Lines] = weakref.WeakSet()
_listing = threading.RLock()
_held: list[Line] = []
_abandoned: list[sqlite3.Connection] = []


def _close(line: Line) -> None:
    connection, line.connection = line.connection, None
    if connection is not None:
        connection.close()


def _before_fork() -> None:
    _listing.acquire()
    for lines in list(_open):
        both = (lines.writing, lines.reading)
        _held.extend(line for line in both if line.lock.acquire(timeout=PATIENCE))


def _after_in_parent() -> None:
    while _held:
        _held.pop().lock.release()
    _listing.release()


def _after_in_child() -> None:
    for lines in list(_open):
        for line in (lines.writing, lines.reading):
            connection = line.connection
            if connection is not None and (line not in _held or connection.in_transaction):
                _abandoned.append(connection)  # closing it could disturb the parent's work
                line.connection = None
            _close(line)
            line.lock = threading.RLock()
    _held.clear()
    _listing.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_in_parent,
        after_in_child=_after_in_child,
    )
