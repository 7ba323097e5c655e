"""The tables of a store, its marks, and how older files are brought up to date.

A store is one SQLite file. `head` says once and for all what network the tasks belong to; `state`
counts what was committed; `documents` holds JSON texts that many rows share (recipes, label maps).
Checksums are those of `checks`. A file whose schema is not literally ours is refused: a foreign
trigger or view would run when we write.
"""

from __future__ import annotations

import functools
import sqlite3

APPLICATION_ID = 0x494D5052  # "IMPR"
VERSION = 1

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

MIGRATIONS: dict[int, str] = {}
"""Version -> the statements that bring a file of that version to the next one."""

Schema = frozenset[tuple[str, str, str, str | None]]


def create_tables(connection: sqlite3.Connection) -> None:
    """Makes an empty file a store of the present version, without head and state."""
    connection.executescript(f"BEGIN;{TABLES}COMMIT;")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def schema_of(connection: sqlite3.Connection) -> Schema:
    """Everything that the file defines: tables, indices, triggers, views."""
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema")
    return frozenset(rows.fetchall())


@functools.cache
def expected_schema() -> Schema:
    """What a store of the present version defines."""
    connection = sqlite3.connect(":memory:")
    try:
        create_tables(connection)
        return schema_of(connection)
    finally:
        connection.close()
