"""Opens and checks connections to a store, and keeps them safe across forks.

Whoever may write brings an older file up to date, in one transaction, and turns the write-ahead
log on. A file that cannot have a log because nothing may be written beside it is read as it is.

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
from contextlib import closing, contextmanager, suppress
from dataclasses import replace

from impresslearn.errors import StoreError
from impresslearn.store import schema
from impresslearn.store.file import Identity, StoreFile

LONGEST_VALUE = 2**30
MODEST_VALUE = 2**25
"""Bytes that a value may always take; a longer one must at least fit into its file."""
PROTECTION = (
    "trusted_schema = OFF",
    "cell_size_check = ON",
    "mmap_size = 0",  # a file that another program cuts short would end the process
)
DURABILITY = (
    "foreign_keys = ON",
    "synchronous = FULL",
    "fullfsync = ON",  # macOS otherwise leaves commits in the disk's own cache
    "checkpoint_fullfsync = ON",
)
ATTEMPTS = 5
PATIENCE = 10.0
"""Seconds that a fork waits for each connection."""


def connect(file: StoreFile, copy_old: bool = False) -> tuple[sqlite3.Connection, Identity]:
    """A checked connection, and the identity of the file that it is to.

    copy_old: bring a file of an older format up to date in memory, and leave it as it is. Raises
    StoreError for a file that is no store, is damaged or in use, or may not be written.
    """
    for _ in range(ATTEMPTS):
        identity = file.identity()
        connection = _connect(file, copy_old)
        try:
            file.check_same(identity)  # else the file was replaced between the look and the open
            return connection, identity
        except StoreError:
            connection.close()
    raise StoreError(f"{file.path} is replaced again and again; try later")


def create(file: StoreFile) -> sqlite3.Connection:
    """A new store under a name that is not taken, with no log: it is whole once it is closed."""
    os.close(os.open(file.place, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
    with file.clear_errors(), _opened(file, "rw") as connection:
        connection.execute("PRAGMA journal_mode = MEMORY")
        connection.execute("PRAGMA synchronous = OFF")  # one fsync when all is written
        allow_values(connection, LONGEST_VALUE)
        schema.create_tables(connection)
        return connection


def allow_values(connection: sqlite3.Connection, longest: int) -> bool:
    """Lets values be so long; returns whether that is more than before.

    A damaged file may claim that a value is long, and SQLite makes room before it looks.
    """
    if not hasattr(connection, "setlimit"):  # Python 3.11
        return False
    before = connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(longest, LONGEST_VALUE))
    return before < min(longest, LONGEST_VALUE)


def longest_value(file: StoreFile) -> int:
    """Bytes that a value of the file can take at most."""
    return max(MODEST_VALUE, file.nbytes())


def _connect(file: StoreFile, copy_old: bool) -> sqlite3.Connection:
    try:
        return _prepared(file, "ro" if file.readonly else "rw", copy_old)
    except StoreError:
        if not file.readonly:
            raise
        if file.log("-journal").exists():
            other = replace(file, readonly=False)
            with file.clear_errors(), _opened(other, "rw") as connection, closing(connection):
                connection.execute("PRAGMA user_version")  # undoes what a killed process left half
            return _prepared(file, "ro", copy_old)
        log = file.log()
        if os.access(file.place.parent, os.W_OK) or (log.exists() and log.stat().st_size > 0):
            raise
    # Nothing can be written beside the file, and no log of it holds anything.
    return _prepared(file, "ro&immutable=1", copy_old)


def _prepared(file: StoreFile, mode: str, copy_old: bool) -> sqlite3.Connection:
    with file.clear_errors(), _opened(file, mode) as connection:
        if schema.is_older(connection, file):
            if file.readonly and not copy_old:
                raise StoreError(
                    f"{file.path} has the older format {schema.version_of(connection)}; open it "
                    "for writing once to bring it up to date, or load it into memory"
                )
            if file.readonly:
                connection = _copy_in_memory(connection)
            schema.migrate(connection, file)
        schema.check_tables(connection, file)
        for setting in DURABILITY:
            connection.execute(f"PRAGMA {setting}")
        if not file.readonly:
            connection.execute("PRAGMA journal_mode = WAL")
            # The first look opens the log; from then on nobody can put another file in place.
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
        return connection


@contextmanager
def _opened(file: StoreFile, mode: str) -> Iterator[sqlite3.Connection]:
    """A protected connection, which is closed on an error."""
    connection = sqlite3.connect(
        f"{file.place.as_uri()}?mode={mode}",
        uri=True,
        timeout=file.timeout,
        isolation_level=None,
        check_same_thread=False,  # a lock is held around every use
    )
    try:
        allow_values(connection, longest_value(file))
        for setting in PROTECTION:
            connection.execute(f"PRAGMA {setting}")
        yield connection
    except BaseException:
        connection.close()
        raise


def _copy_in_memory(connection: sqlite3.Connection) -> sqlite3.Connection:
    copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.backup(copy)
    allow_values(copy, MODEST_VALUE)
    connection.close()
    return copy


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


class Connections:
    """The connections to one file; identity: of the file that the first of them opened."""

    def __init__(self) -> None:
        self.reading, self.writing = Slot(), Slot()
        self.identity: Identity | None = None
        with _listing:
            _open.add(self)

    @contextmanager
    def both(self) -> Iterator[None]:
        """Waits until no other thread uses either; in the order in which a commit takes them."""
        with self.writing.lock, self.reading.lock:
            yield

    def fold(self, file: StoreFile) -> None:
        """Writes the log into the file and leaves no log. sqlite3.Error while others use the file.

        A file that was moved keeps its log: the one at its old name may be another's.
        """
        with self.both():
            self.reading.close()
            if self.writing.connection is not None and self.identity is not None:
                file.check_same(self.identity)
                mode = self.writing.connection.execute("PRAGMA journal_mode = DELETE").fetchone()
                if mode != ("delete",):
                    raise sqlite3.OperationalError("database is locked")

    def close(self, file: StoreFile) -> None:
        """Closes both connections, after folding the log in where nobody else has the file open."""
        with self.both():
            with suppress(sqlite3.Error, StoreError):  # in use elsewhere, or full: the log stays
                if self.writing.connection is not None:
                    self.writing.connection.execute("PRAGMA busy_timeout = 0")
                    self.fold(file)
            self.reading.close()
            self.writing.close()


_open: weakref.WeakSet[Connections] = weakref.WeakSet()
_listing = threading.RLock()
_held: list[Slot] = []
_abandoned: list[sqlite3.Connection] = []


def _before_fork() -> None:
    _listing.acquire()
    for each in list(_open):
        slots = (each.writing, each.reading)
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
