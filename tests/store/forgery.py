"""Rows that somebody forged: rewritten with right checksums and sums."""

from __future__ import annotations

import json
import sqlite3
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import impresslearn as il
from impresslearn.store.contents import Contents
from impresslearn.store.file import StoreFile
from impresslearn.store.rows import new_sum, row_checksum


@contextmanager
def sql(path: Path) -> Iterator[sqlite3.Connection]:
    """A plain connection, which commits and is closed at the end."""
    with closing(sqlite3.connect(path)) as connection, connection:
        yield connection


def forge_head(path: Path, change: Callable[[dict, dict], tuple[Any, Any]]) -> None:
    """Rewrites the head; change: of the network's description and of the settings."""
    with sql(path) as connection:
        row = connection.execute("SELECT * FROM head").fetchone()
        changed = change(json.loads(row[4]), json.loads(row[5]))
        texts = [json.dumps(each) if isinstance(each, dict) else each for each in changed]
        checksum = row_checksum("head", (*row[1:4], *texts))
        command = "UPDATE head SET backbone = ?, settings = ?, checksum = ?"
        connection.execute(command, (*texts, checksum))


def forge_task(path: Path, name: str, /, **columns: Any) -> None:
    """Rewrites a task."""
    with closing(Contents(StoreFile.at(path))) as contents, contents.database.transaction():
        row = contents.task(name)
        contents.remove_task(row)
        contents.add_task(replace(row, **columns))


def forge_mask(path: Path, number: int, /, **columns: Any) -> None:
    """Rewrites the mask of a number, counted from 1."""
    with sql(path) as connection:
        for column, value in columns.items():
            connection.execute(f"UPDATE masks SET {column} = ? WHERE id = ?", (value, number))
        query = "SELECT * FROM masks WHERE id = ?"
        position, *row, old = connection.execute(query, [number]).fetchone()
        new = row_checksum("masks", (position - 1, *row))
        connection.execute("UPDATE masks SET checksum = ? WHERE id = ?", (new, number))
        (total,) = connection.execute("SELECT masks_sum FROM state").fetchone()
    forge_state(path, masks_sum=new_sum(total, [new], [old]))


def forge_state(path: Path, /, **columns: Any) -> None:
    """Rewrites the counts."""
    with sql(path) as connection:
        for column, value in columns.items():
            connection.execute(f"UPDATE state SET {column} = ?", (value,))
        state = connection.execute("SELECT * FROM state").fetchone()[1:-1]
        connection.execute("UPDATE state SET checksum = ?", (row_checksum("state", state),))


def refused(path: Any, verb: Callable[[Any], Any] = il.load, seconds: float = 10) -> str:
    """The single line of the error that a verb gives, fast and in less than 64 MB."""
    tracemalloc.start()
    start = time.perf_counter()
    with pytest.raises(il.ImpressLearnError) as caught:
        verb(path)
    assert time.perf_counter() - start < seconds
    assert tracemalloc.get_traced_memory()[1] < 64e6
    tracemalloc.stop()
    line = str(caught.value)
    assert len(line.splitlines()) == 1
    assert len(line) < 600
    return line
