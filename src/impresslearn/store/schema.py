"""The tables of a store and its marks.

A store is one SQLite file. `head` says once and for all what network the tasks belong to; `state`
counts what was committed and has the checksum of the statistics in `shared`; `documents` holds JSON
texts that many rows share (recipes, label maps). Checksums are those of `rows`. A file whose schema
is not ours is refused: a foreign trigger or view would run when we write.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from functools import cache

from impresslearn.errors import StoreError
from impresslearn.store.file import StoreFile

APPLICATION_ID = 0x494D5052  # "IMPR"
VERSION = 5
"""The format. Older ones have the same tables, so whoever only reads takes them as they are;
whoever writes marks them, as older software would pass over settings of a later head (2:
preprocessing), parts of a task (3: heads, small parameters, coded norm statistics) or its former
versions (4), and would not understand what is kept of narrow inputs (5)."""

TABLES = """
CREATE TABLE head (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    uuid TEXT NOT NULL,
    created_at TEXT NOT NULL,
    library_version TEXT NOT NULL,
    backbone TEXT NOT NULL,
    settings TEXT NOT NULL,
    checksum BLOB NOT NULL
);
CREATE TABLE state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    masks INTEGER NOT NULL,
    tasks INTEGER NOT NULL,
    masks_sum BLOB NOT NULL,
    tasks_sum BLOB NOT NULL,
    shared BLOB,
    checksum BLOB NOT NULL
);
CREATE TABLE shared (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    statistics BLOB NOT NULL
);
CREATE TABLE tensors (
    name TEXT PRIMARY KEY,
    data BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE documents (
    id INTEGER PRIMARY KEY,
    text TEXT NOT NULL UNIQUE
);
CREATE TABLE masks (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    source TEXT NOT NULL,
    recipe TEXT NOT NULL,
    bits BLOB,
    digest BLOB NOT NULL,
    checksum BLOB NOT NULL
);
CREATE TABLE tasks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    mask TEXT REFERENCES masks (name),
    num_masks INTEGER NOT NULL,
    classes INTEGER NOT NULL REFERENCES documents (id),
    form INTEGER REFERENCES documents (id),
    coefficients BLOB,
    statistics BLOB,
    profile BLOB,
    recipe INTEGER NOT NULL REFERENCES documents (id),
    metrics TEXT NOT NULL,
    created_at TEXT NOT NULL,
    checksum BLOB NOT NULL
);
"""


def create_tables(connection: sqlite3.Connection) -> None:
    """Makes an empty file a store of the present format, without head and state."""
    connection.executescript(f"BEGIN;{TABLES}COMMIT;")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    mark(connection)


def mark(connection: sqlite3.Connection) -> None:
    """Marks a file as one of the present format, unless it is."""
    if connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
        connection.execute(f"PRAGMA user_version = {VERSION}")


def check(connection: sqlite3.Connection, file: StoreFile) -> None:
    """Raises StoreError unless the file has our marks and defines exactly what a store does."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise StoreError(f"{file.path} is an SQLite file, but no store of impresslearn")
    if version > VERSION:
        raise StoreError(
            f"{file.path} was written by a newer impresslearn (format {version}, this one reads "
            f"up to {VERSION}); upgrade impresslearn"
        )
    if version < 1:
        raise file.damaged(f"there is no format {version}")
    if _schema_of(connection) != _expected_schema():
        raise file.damaged("its tables are not those of a store")


def _schema_of(connection: sqlite3.Connection) -> frozenset[tuple]:
    """Tables, indices, triggers and views, without the spaces and quotes that ALTER TABLE sets."""
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")
    return frozenset(
        (kind, name, table, None if sql is None else re.sub(r'[\s"]+', "", str(sql)))
        for kind, name, table, sql in rows
    )


@cache
def _expected_schema() -> frozenset[tuple]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(TABLES)
        return _schema_of(connection)
