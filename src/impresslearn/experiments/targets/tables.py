"""Reads the package's TOML files; a table in them changes what it says of those that it is like."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache, reduce
from importlib.resources import files
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Table = dict[str, Any]


@lru_cache
def read_tables(file: str) -> Table:
    """What a file beside this one holds."""
    return tomllib.loads(files(__package__).joinpath(file).read_text("utf-8"))


def table_of(tables: Mapping[str, Any], path: str) -> Table:
    """The table of a path with dots, `like` resolved."""
    return resolved(tables, reduce(lambda table, key: table[key], path.split("."), tables))


def resolved(tables: Mapping[str, Any], table: Mapping[str, Any]) -> Table:
    """The table on top of those that `like` names."""
    own = dict(table)
    like = own.pop("like", [])
    found: Table = {}
    for path in [like] if isinstance(like, str) else like:
        found = changed(found, table_of(tables, path))
    return changed(found, own)


def changed(table: Mapping[str, Any], change: Mapping[str, Any]) -> Table:
    """The table with entries replaced, those of inner tables one by one."""
    found = dict(table)
    for key, value in change.items():
        inner = found.get(key)
        if isinstance(inner, dict) and isinstance(value, dict):
            value = changed(inner, value)
        found[key] = value
    return found


def filled(value: Any, word: str, name: str) -> Any:
    """The value with a name for "{word}" in its texts."""
    if isinstance(value, dict):
        return {key: filled(inner, word, name) for key, inner in value.items()}
    return value.replace(f"{{{word}}}", name) if isinstance(value, str) else value
