"""`Database`: the SQLite database of a store, in a file or in memory.

For a file, all threads of a process share two connections, one that reads and one that writes. A
database in memory has a single connection. Any number of processes may read a file while one
process writes; a second writer waits up to `timeout` seconds. Inside a transaction a thread reads
its own writes; other threads read the last commit. A commit survives a power cut.
"""

import hashlib
import os
import sqlite3
import stat
import tempfile
import threading
import time
import weakref
from collections.abc import Hashable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from impresslearn.checks import check_number
from impresslearn.errors import (
    InputError,
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreFullError,
    StoreReplacedError,
    visible,
)
from impresslearn.files import reason_of

APPLICATION_ID = 0x494D5052  # "IMPR"
FORMAT = 8
# Two writes within this number of seconds may leave the file with the same modification time.
SETTLED = 0.05
FULL = "cannot write {where}: the disk is full; nothing was changed"
BUSY = (
    "{where} is in use by another process (waited up to {seconds:g} s); try again after that "
    "process has closed it"
)
DENIED = (
    "cannot open {where}: the file, its log or their folder do not permit it; open it with "
    "readonly=True if you did not, or copy it with its log (-wal, -journal) to another folder"
)
# The start of SQLite's message, the error to raise, and its text.
REASONS: tuple[tuple[str | tuple[str, ...], type[StoreError], str], ...] = (
    ("database or disk is full", StoreFullError, FULL),
    ("disk I/O error", StoreFullError, "cannot use {where}: the disk is full or reports an error"),
    ("file is not a database", StoreError, "{where} is not an impresslearn store"),
    ("string or blob too big", StoreError, "{where} cannot hold a value of that length"),
    (("database is locked", "database schema is locked", "locking"), StoreBusyError, BUSY),
    (("unable to open", "attempt to write a readonly"), StoreError, DENIED),
)
# Errors that decoding may raise, for example for a row of another network.
UNREADABLE = (ValueError, KeyError, TypeError, IndexError, AttributeError)
# Every table and index takes at least one page, so small pages keep a small store small.
SCHEMA = f"""
PRAGMA page_size = 1024;
BEGIN;
CREATE TABLE meta (name TEXT PRIMARY KEY, content BLOB NOT NULL, checksum BLOB NOT NULL);
CREATE TABLE tensors (name TEXT PRIMARY KEY, content BLOB NOT NULL, checksum BLOB NOT NULL);
CREATE TABLE documents (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE projections (
    number INTEGER PRIMARY KEY, num_masks INTEGER NOT NULL,
    content BLOB NOT NULL, checksum BLOB NOT NULL
);
CREATE TABLE masks (
    position INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, source TEXT NOT NULL,
    recipe TEXT NOT NULL, bits BLOB, digest BLOB NOT NULL, checksum BLOB NOT NULL
);
CREATE TABLE tasks (
    id INTEGER PRIMARY KEY AUTOINCREMENT, number INTEGER NOT NULL,
    name TEXT NOT NULL, version INTEGER NOT NULL, current INTEGER,
    mask TEXT, num_masks INTEGER NOT NULL, form INTEGER NOT NULL REFERENCES documents (id),
    coefficients BLOB, statistics BLOB, profile BLOB, history TEXT NOT NULL,
    checksum BLOB NOT NULL, UNIQUE (name, version)
);
CREATE UNIQUE INDEX present_names ON tasks (name) WHERE current;
CREATE INDEX present_order ON tasks (number) WHERE current;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
COMMIT;
"""
# Without fullfsync, macOS leaves commits in the disk's cache. wal_autocheckpoint = 1 moves each
# commit from the log into the file at once, so that a plain copy of the file is complete.
DURABLE = """
PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA fullfsync = ON;
PRAGMA wal_autocheckpoint = 1;
"""


class Slot:
    """A connection, None until it is needed, and the lock to hold while using it."""

    def __init__(self) -> None:
        self.connection: sqlite3.Connection | None = None
        self.lock = threading.RLock()

    def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()


class Database:
    """The tables of one store.

    - path: a file that is a store; None (default) for a new store in memory.
    - readonly: whether commits are refused; default False.
    - timeout: seconds to wait for another process's commit; default 60.
    - copy_of: the database to copy into the new store in memory; by default that store is empty.

    Every method raises StoreError if the file is not a store, is damaged, in use or gone, or cannot
    be written.
    """

    def __init__(
        self,
        path: str | os.PathLike | None = None,
        readonly: bool = False,
        timeout: float = 60.0,
        copy_of: "Database | None" = None,
    ) -> None:
        self.readonly = readonly
        # SQLite counts milliseconds in 32 bits.
        self.timeout = check_number("timeout", timeout, 0.0, 1e6)
        self._closed = False
        self._writer: int | None = None  # the thread inside a transaction
        self._seen: tuple[int, ...] | None = None  # times and size of the file at the last look
        self._seen_at, self._settled = 0.0, False  # when they changed, and whether SETTLED ago
        self._looks = 0  # how often SQLite had to read the file again
        self.path: Path | None = None
        self._place: Path | None = None
        self.writing = self.reading = Slot()
        with _listing:
            _open.add(self)
        if path is None:
            self.where: str = "the store in memory" if copy_of is None else copy_of.where
            memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            self.writing.connection = memory
            weakref.finalize(self, self.writing.close)  # Python 3.13 warns of connections left open
            if copy_of is None:
                memory.executescript(SCHEMA)
            else:
                copy_of.copy_to(memory)
            return
        try:
            self.path, self._place = Path(path), Path(os.path.realpath(path))
            self._named = Path(os.path.abspath(path))  # may be a link, which may change
        except (TypeError, ValueError):
            raise InputError(f"a store's path must be a string or Path, got {path!r}") from None
        self.where, self.reading = str(self.path), Slot()
        self._opened = _status(self._place, self.where)
        # Also called when this object is deleted, at the latest when the process ends.
        self._release = weakref.finalize(
            self, _release, self.writing, self.reading, self._place, self._opened
        )
        try:
            if not readonly:
                self._connection(self.writing)
            self._connection(self.reading)
        except BaseException:
            self.close()
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the path of a file, which is opened again, or the bytes of a store in memory."""
        if self.path is not None:
            return Database, (self.path, self.readonly, self.timeout)
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder, "copy")
            with closing(sqlite3.connect(place)) as copy:
                self.copy_to(copy)
            return _from_bytes, (place.read_bytes(),)

    def rows(self, sql: str, *values: Any) -> list[tuple]:
        slot = self._slot()
        with slot.lock, self.clear_errors():
            return self._connection(slot).execute(sql, values).fetchall()

    def row(self, sql: str, *values: Any) -> tuple | None:
        return next(iter(self.rows(sql, *values)), None)

    def content(self, table: str, key: str | int) -> bytes:
        """The content of a row. Raises StoreError if it is missing or its checksum is wrong."""
        column = "number" if table == "projections" else "name"
        row = self.row(f"SELECT content, checksum FROM {table} WHERE {column} = ?", key)
        if row is None or checksum(row[0]) != row[1]:
            raise self.damaged(f"row {key!r} of its {table} is not what was written")
        return row[0]

    def write(self, sql: str, *values: Any) -> sqlite3.Cursor:
        """Runs a statement inside a `transaction`. Does not translate sqlite3.IntegrityError."""
        with self.writing.lock, self.clear_errors():
            return self._connection(self.writing).execute(sql, values)

    def generation(self) -> Hashable:
        """A value that changes whenever the database changes; None inside a transaction."""
        if self._writer == threading.get_ident():
            return None  # what is read now may be rolled back
        status = self._check_place()
        slot = self.reading
        with slot.lock, self.clear_errors():
            connection = self._connection(slot)
            if status is None:
                return connection.total_changes
            seen = status.st_mtime_ns, status.st_ctime_ns, status.st_size
            if seen != self._seen:
                self._seen, self._seen_at, self._settled = seen, time.monotonic(), False
            if not self._settled:
                # SQLite notices commits, but not another file that was copied over this one. So
                # make it drop its cached pages: it then reads them from the file again.
                connection.execute("PRAGMA shrink_memory")
                self._settled = time.monotonic() - self._seen_at >= SETTLED
                self._looks += 1
            return connection.execute("PRAGMA data_version").fetchone()[0], self._looks

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commits all writes inside at the end, or none after an error. Waits for other writers."""
        self.check_writable()
        slot = self.writing
        with slot.lock:
            connection = self._connection(slot)
            if connection.in_transaction:  # a nested transaction is part of the outer one
                yield
                return
            self._check_place()
            try:
                # Ctrl-C while this waits for another process is raised once BEGIN has succeeded.
                with self.clear_errors():
                    connection.execute("BEGIN IMMEDIATE")
                self._writer = threading.get_ident()
                yield
                if slot.connection is not connection:
                    raise StoreError(f"{self.where} cannot be written by a forked process")
                with self.clear_errors():
                    connection.execute("COMMIT")
                if self.path is not None:
                    _empty_log(connection, self.timeout)
            finally:
                self._writer = None
                if slot.connection is connection and connection.in_transaction:
                    with suppress(sqlite3.Error):  # the first error says more
                        connection.execute("ROLLBACK")

    def copy_to(self, connection: sqlite3.Connection) -> None:
        """Copies a consistent snapshot of all commits into another database.

        Does not translate sqlite3.Error, because the error concerns the other database.
        """
        slot = self._slot()
        with slot.lock:
            self._connection(slot).backup(connection)
        connection.execute("PRAGMA journal_mode = DELETE")  # a copy needs no log

    def vacuum(self) -> None:
        """Rewrites the file without unused space. Raises StoreError while others have it open."""
        with self.writing.lock, self.reading.lock, self.clear_errors():
            connection = self._connection(self.writing)
            if self.path is not None:
                self.reading.close()
                if connection.execute("PRAGMA journal_mode = DELETE").fetchone() != ("delete",):
                    raise sqlite3.OperationalError("database is locked")
            connection.execute("VACUUM")

    def check_writable(self) -> None:
        """Raises InputError if the file was opened for reading only."""
        if self.readonly:
            raise InputError(f"{self.path} was opened for reading only; leave out readonly=True")

    def close(self) -> None:
        """Closes the file for all threads; the last process to close it removes the log."""
        if self._place is not None:  # a store in memory stays usable
            self._closed = True
            self._release()

    def damaged(self, what: str) -> StoreError:
        """The error to raise for damaged content; what: one line that describes the damage."""
        line = visible(" ".join(what.split()))[:300]
        return StoreDamagedError(f"{self.where} is damaged: {line}; restore it from a copy")

    @contextmanager
    def clear_errors(self) -> Iterator[None]:
        """Turns SQLite's errors, except IntegrityError, into one line that names the file."""
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            message = str(error)
            for start, kind, line in REASONS:
                if message.startswith(start):
                    raise kind(line.format(where=self.where, seconds=self.timeout)) from None
            what = "SQLite cannot read it" if "malformed" in message else message
            raise self.damaged(what) from None
        except UnicodeEncodeError as error:
            raise InputError(f"{error.object[:40]!r} is not valid Unicode") from None
        except (OverflowError, UnicodeDecodeError) as error:
            raise self.damaged(str(error)) from None

    @contextmanager
    def decoding(self, what: str) -> Iterator[None]:
        """Turns errors in decoding stored content into StoreError. what: the content's name."""
        try:
            yield
        except StoreError:
            raise
        except UNREADABLE as error:
            raise self.damaged(f"{what}: {error}") from None

    def _slot(self) -> Slot:
        """The slot this thread reads with: inside its own transaction the one that writes."""
        return self.writing if self._writer == threading.get_ident() else self.reading

    def _connection(self, slot: Slot) -> sqlite3.Connection:
        """A slot's connection, opened at first use and after a fork. The caller holds the lock."""
        if self._closed:
            raise StoreError(f"{self.where} was closed; open it again")
        if slot.connection is None:
            assert self._place is not None
            self._check_place()
            log = self._place.with_name(f"{self._place.name}-wal")
            with self.clear_errors():
                try:
                    # Readers need write access too: if a killed process has left half a commit,
                    # SQLite rolls it back when it reads.
                    slot.connection = self._open("rw", slot is self.writing)
                except sqlite3.OperationalError:
                    has_log = log.exists() and log.stat().st_size > 0
                    if has_log or not self.readonly or os.access(log.parent, os.W_OK):
                        raise
                    # The folder is read-only, so not even a log can be made: read the file alone.
                    slot.connection = self._open("ro&immutable=1", False)
        return slot.connection

    def _open(self, mode: str, writes: bool) -> sqlite3.Connection:
        """Connects to the file and opens its log. Raises StoreError unless it is a store."""
        assert self._place is not None
        has_log = os.path.exists(f"{self._place}-wal")
        uri = f"{self._place.as_uri()}?mode={mode}"
        connection = sqlite3.connect(
            uri, uri=True, timeout=self.timeout, isolation_level=None, check_same_thread=False
        )
        try:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if application != APPLICATION_ID:
                raise StoreError(f"{self.where} is an SQLite file, but not an impresslearn store")
            if version != FORMAT:
                age = "a newer" if version > FORMAT else "an older"
                line = f"{self.where} was written by {age} impresslearn (format {version}, not"
                raise StoreError(f"{line} {FORMAT}): use that version, or learn its tasks again")
            connection.execute("PRAGMA mmap_size = 0")  # mapped, a truncated file would crash
            deadline = time.monotonic() + self.timeout
            while True:
                try:
                    journal = connection.execute("PRAGMA journal_mode").fetchone()[0]
                    if journal == "wal" and not has_log:
                        # A reader closed it last, or it is a copy of the file alone (`cp`), made
                        # while another process used the store: it may mix old and new pages.
                        state = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
                        if state != "ok":
                            raise self.damaged("it seems to be copied by cp while in use")
                    connection.executescript(DURABLE if writes else "")
                    connection.execute("SELECT 1 FROM meta LIMIT 1").fetchone()
                    return connection
                except sqlite3.OperationalError as error:
                    # SQLite itself does not wait while another process opens or removes the log.
                    if "locked" not in str(error) or time.monotonic() > deadline:
                        raise
                    time.sleep(0.01)
        except BaseException:
            connection.close()
            raise

    def _check_place(self) -> os.stat_result | None:
        """The file's status. Raises StoreError if its path now names another file, or none."""
        if self._place is None or self._closed:
            return None
        try:
            status = _status(self._named, self.where)
        except StoreError:
            raise StoreError(f"{self.where} was moved or deleted while it was open") from None
        if not os.path.samestat(status, self._opened):
            line = "was replaced by another file while it was open; open it again"
            raise StoreReplacedError(f"{self.where} {line}")
        return status


def checksum(*contents: str | bytes | None) -> bytes:
    """A checksum of 8 bytes: BLAKE2b over the contents and their lengths."""
    digest = hashlib.blake2b(digest_size=8)
    for content in contents:
        encoded = content.encode() if isinstance(content, str) else content
        # Without the lengths, ("ab", "c") would equal ("a", "bc"). No content has None's length.
        length = 2**64 - 1 if encoded is None else len(encoded)
        digest.update(length.to_bytes(8, "little"))
        digest.update(encoded or b"")
    return digest.digest()


def _from_bytes(content: bytes) -> Database:
    """The store in memory whose bytes `Database.__reduce__` pickled."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "copy")
        place.write_bytes(content)
        with closing(Database(place, readonly=True)) as file:
            return Database(copy_of=file)


def _release(writing: Slot, reading: Slot, place: Path, opened: os.stat_result) -> None:
    """Closes both connections, and removes the log if nobody else uses the file."""
    with writing.lock, reading.lock:
        reading.close()
        # The log stays if the file is in use elsewhere or the disk is full. It also stays if the
        # file was moved, because a log at the old path may now belong to another file.
        with suppress(sqlite3.Error, StoreError):
            if writing.connection and os.path.samestat(_status(place, ""), opened):
                writing.connection.execute("PRAGMA busy_timeout = 0")
                writing.connection.execute("PRAGMA journal_mode = DELETE").fetchone()
        writing.close()


def _empty_log(connection: sqlite3.Connection, timeout: float) -> None:
    """Empties the log, unless somebody is reading it now. Its commits are already in the file.

    SQLite would apply a log that is left behind to any other file put in the store's place.
    """
    try:
        with suppress(sqlite3.Error):
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {int(1000 * timeout)}")


def _status(place: Path, where: str) -> os.stat_result:
    try:
        status = os.stat(place)
    except (FileNotFoundError, NotADirectoryError):
        line = "check the path, or make one with learner.save or impresslearn new"
        raise StoreError(f"there is no store at {where}; {line}") from None
    except OSError as error:
        raise StoreError(f"cannot read {where}: {reason_of(error)}") from None
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise StoreError(f"cannot read {where}: it is {kind}")
    if status.st_size == 0:
        raise StoreError(f"{where} is not an impresslearn store: it is empty")
    return status


# An SQLite connection must not be used across a fork. A child inherits SQLite's record of its file
# locks, but not the locks, so another process could remove the log that the child uses. Therefore
# a fork waits until no thread is inside a statement. The child then closes the inherited
# connections at once and opens new ones. Closing does not remove the log, as the parent locks it.
_open: weakref.WeakSet[Database] = weakref.WeakSet()
_listing = threading.RLock()
_held: list[Slot] = []


def _before_fork() -> None:
    _listing.acquire()
    for database in list(_open):
        # Locks are taken in the order in which a commit takes them.
        for slot in (database.writing, database.reading):
            if slot.lock.acquire(timeout=10.0):  # seconds a fork waits
                _held.append(slot)


def _after_in_parent() -> None:
    while _held:
        _held.pop().lock.release()
    _listing.release()


def _after_in_child() -> None:
    for database in list(_open):
        for slot in (database.writing, database.reading):
            with suppress(sqlite3.Error):
                if database.path is not None:
                    # SQLite's record of an open connection would block all locks of this process.
                    slot.close()
                elif slot.connection is not None:
                    # A thread that was committing does not exist here: undo its half commit.
                    slot.connection.rollback()
            slot.lock = threading.RLock()
        database._writer = None
    _held.clear()
    _listing.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
