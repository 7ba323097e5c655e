"""Opens and checks connections to a store.

Whoever may write turns the write-ahead log on, and marks an older file as one of the present
format. A file that cannot have a log because nothing may be written beside it is read as it is.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
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


def connect(file: StoreFile) -> tuple[sqlite3.Connection, Identity]:
    """A checked connection, and the identity of the file that it is to."""
    for _ in range(ATTEMPTS):
        identity = file.identity()
        connection = _connect(file)
        try:
            file.check_same(identity)  # else the file was replaced between the look and the open
            return connection, identity
        except StoreError:
            connection.close()
    raise StoreError(f"{file.path} is replaced again and again; try later")


def create(file: StoreFile) -> sqlite3.Connection:
    """A new store under a name that is not taken, with no log: it is whole once it is closed."""
    os.close(os.open(file.place, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
    with _opened(file, "rw") as connection:
        connection.execute("PRAGMA journal_mode = MEMORY")
        connection.execute("PRAGMA synchronous = OFF")  # one fsync when all is written
        schema.create_tables(connection)
        return connection


def allow_values(connection: sqlite3.Connection, longest: int) -> None:
    """Lets values be so long.

    A damaged file may claim that a value is long, and SQLite makes room before it looks.
    """
    if hasattr(connection, "setlimit"):  # Python 3.11
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(longest, LONGEST_VALUE))


def longest_value(file: StoreFile) -> int:
    """Bytes that a value of the file can take at most."""
    return max(MODEST_VALUE, file.nbytes())


def _connect(file: StoreFile) -> sqlite3.Connection:
    try:
        return _prepared(file, "ro" if file.readonly else "rw")
    except StoreError:
        if not file.readonly:
            raise
        if file.log("-journal").exists():
            other = replace(file, readonly=False)
            with _opened(other, "rw") as connection, closing(connection):
                connection.execute("PRAGMA user_version")  # undoes what a killed process left half
            return _prepared(file, "ro")
        log = file.log()
        if os.access(file.place.parent, os.W_OK) or (log.exists() and log.stat().st_size > 0):
            raise
    # Nothing can be written beside the file, and no log of it holds anything.
    return _prepared(file, "ro&immutable=1")


def _prepared(file: StoreFile, mode: str) -> sqlite3.Connection:
    with _opened(file, mode) as connection:
        schema.check(connection, file)
        for setting in DURABILITY:
            connection.execute(f"PRAGMA {setting}")
        if not file.readonly:
            schema.mark(connection)
            connection.execute("PRAGMA journal_mode = WAL")
            # What is committed goes into the file at once: who copies a store that is open, by
            # itself and between two commits, has all of it.
            connection.execute("PRAGMA wal_autocheckpoint = 1")
            # The first look opens the log; from then on nobody can put another file in place.
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
        return connection


@contextmanager
def _opened(file: StoreFile, mode: str) -> Iterator[sqlite3.Connection]:
    """A protected connection with clear errors, which is closed on one."""
    with file.clear_errors():
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
