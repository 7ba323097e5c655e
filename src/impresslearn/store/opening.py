"""A connection to a store, after everything that can be checked before its first row is read.

Whoever may write brings an older file up to date, in one transaction, and turns the write-ahead
log on. A file that cannot have a log because nothing may be written beside it is read as it is.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import replace

from impresslearn.errors import StoreError
from impresslearn.store import schema
from impresslearn.store.target import Identity, Target

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


def connect(target: Target, copy_old: bool = False) -> tuple[sqlite3.Connection, Identity]:
    """A checked connection, and the identity of the file that it is to.

    copy_old: bring a file of an older format up to date in memory, and leave it as it is. Raises
    StoreError for a file that is no store, is damaged or in use, or may not be written.
    """
    for _ in range(ATTEMPTS):
        identity = target.identity()
        connection = _connect(target, copy_old)
        try:
            target.check_same(identity)  # else the file was replaced between the look and the open
            return connection, identity
        except StoreError:
            connection.close()
    raise StoreError(f"{target.path} is replaced again and again; try later")


def create(target: Target) -> sqlite3.Connection:
    """A new store under a name that is not taken, with no log: it is whole once it is closed."""
    os.close(os.open(target.place, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
    with target.clear_errors():
        connection = _raw(target, "rw")
        try:
            connection.execute("PRAGMA journal_mode = MEMORY")
            connection.execute("PRAGMA synchronous = OFF")  # one fsync when all is written
            allow_values(connection, LONGEST_VALUE)
            schema.create_tables(connection)
        except BaseException:
            connection.close()
            raise
        return connection


def allow_values(connection: sqlite3.Connection, longest: int) -> bool:
    """Lets values be so long; returns whether that is more than before.

    A damaged file may claim that a value is long, and SQLite makes room before it looks.
    """
    if not hasattr(connection, "setlimit"):  # Python 3.11
        return False
    before = connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(longest, LONGEST_VALUE))
    return before < min(longest, LONGEST_VALUE)


def longest_value(target: Target) -> int:
    """Bytes that a value of the file can take at most."""
    files = (target.place, target.log())
    return max(MODEST_VALUE, sum(os.path.getsize(file) for file in files if file.exists()))


def _connect(target: Target, copy_old: bool) -> sqlite3.Connection:
    try:
        return _prepared(target, "ro" if target.readonly else "rw", copy_old)
    except StoreError:
        if not target.readonly:
            raise
        if target.log("-journal").exists():
            with (
                target.clear_errors(),
                closing(_raw(replace(target, readonly=False), "rw")) as other,
            ):
                other.execute("PRAGMA user_version")  # takes back what a killed process left half
            return _prepared(target, "ro", copy_old)
        if not _sealed(target):
            raise
    return _prepared(target, "ro&immutable=1", copy_old)


def _sealed(target: Target) -> bool:
    """Whether nothing can be written beside the file, and no log of it holds anything."""
    log = target.log()
    empty = not log.exists() or log.stat().st_size == 0
    return empty and not os.access(target.place.parent, os.W_OK)


def _prepared(target: Target, mode: str, copy_old: bool) -> sqlite3.Connection:
    with target.clear_errors():
        connection = _raw(target, mode)
        try:
            connection = _checked(connection, target, copy_old)
            for setting in DURABILITY:
                connection.execute(f"PRAGMA {setting}")
            if not target.readonly:
                connection.execute("PRAGMA journal_mode = WAL")
                # The first look opens the log; from then on nobody can put another file in place.
                connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
            return connection
        except BaseException:
            connection.close()
            raise


def _raw(target: Target, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{target.place.as_uri()}?mode={mode}",
        uri=True,
        timeout=target.timeout,
        isolation_level=None,
        check_same_thread=False,  # a lock is held around every use
    )
    try:
        allow_values(connection, longest_value(target))
        for setting in PROTECTION:
            connection.execute(f"PRAGMA {setting}")
        return connection
    except BaseException:
        connection.close()
        raise


def _checked(connection: sqlite3.Connection, target: Target, copy_old: bool) -> sqlite3.Connection:
    mark = connection.execute("PRAGMA application_id").fetchone()[0]
    if mark != schema.APPLICATION_ID:
        raise StoreError(f"{target.path} is an SQLite file, but no store of impresslearn")
    version = schema.version_of(connection)
    if version > schema.VERSION:
        raise StoreError(
            f"{target.path} was written by a newer impresslearn (format {version}, this one reads "
            f"up to {schema.VERSION}); upgrade impresslearn"
        )
    as_it_is = target.readonly and version in schema.SAME_TABLES
    if version < schema.VERSION and not as_it_is:
        if target.readonly and not copy_old:
            raise StoreError(
                f"{target.path} has the older format {version}; open it for writing once to bring "
                "it up to date, or load it into memory"
            )
        migrated = _in_memory(connection) if target.readonly else connection
        _migrate(migrated, target)
        connection = migrated
    _check_tables(connection, target)
    return connection


def _check_tables(connection: sqlite3.Connection, target: Target) -> None:
    if schema.schema_of(connection) != schema.expected_schema():
        raise target.damaged("its tables are not those of a store")


def _in_memory(connection: sqlite3.Connection) -> sqlite3.Connection:
    copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.backup(copy)
    allow_values(copy, MODEST_VALUE)
    connection.close()
    return copy


def _migrate(connection: sqlite3.Connection, target: Target) -> None:
    """All steps to the present format in one transaction, unless another process took them."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for version in range(schema.version_of(connection), schema.VERSION):
            if version not in schema.MIGRATIONS:
                raise target.damaged(f"there is no format {version}")
            schema.MIGRATIONS[version](connection)
            connection.execute(f"PRAGMA user_version = {version + 1}")
        _check_tables(connection, target)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
