"""A configuration file: one's own stream, network and methods, read and checked before work begins.

    [stream]     name = "permuted_digits" (a name of `list_streams`) or module = "file:function",
                 and the settings of that function
    [backbone]   name = "lenet_300_100" (a name of `list_backbones`) or module = "file:function",
                 and its settings
    [[method]]   name = "impresslearn" (a name of `contenders.KEYS`) and its settings, label
    [run]        seeds = [0], out = "results", order = "shuffled" or "given", tensorboard

Paths are relative to the folder of the file. Every mistake is one line that names the file and the
key. What needs the stream or the network itself is checked by `own.plan_run`.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from math import isfinite
from pathlib import Path
from typing import Any

from impresslearn.errors import ImpressLearnError, InputError, MissingDependencyError
from impresslearn.experiments.methods import (
    FLAG,
    KEYS,
    NUMBER,
    RECIPE_KEYS,
    RECIPES,
    TABLE,
    TEXT,
    WHOLE,
    settled,
)
from impresslearn.report.findings import FILE as FINDINGS

ORDERS = ("shuffled", "given")
WHOLES = "a list of integers"
RUN_KEYS = {"seeds": WHOLES, "out": TEXT, "order": TEXT, "tensorboard": TEXT}
ADAPT_KEYS = {"norm": TEXT, "input_shape": WHOLES, "num_classes": WHOLE, "skip": "a list of texts"}
LARGEST_SEED = 2**32 - 1
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Entry:
    """One [[method]]: its label, its settled values, and what its network has of its own."""

    label: str
    method: Mapping[str, Any]
    backbone: Mapping[str, Any]


@dataclass(frozen=True)
class Configuration:
    """A checked file; the tables are plain values, as written."""

    path: Path
    stream: Mapping[str, Any]
    backbone: Mapping[str, Any]
    entries: tuple[Entry, ...]
    seeds: tuple[int, ...]
    out: Path
    order: str
    tensorboard: Path | None

    @property
    def name(self) -> str:
        """The record's name: that of the file."""
        return self.path.stem

    @property
    def folder(self) -> Path:
        """Where relative paths and one's own modules start."""
        return self.path.parent


def read_configuration(path: str | Path) -> Configuration:
    """The configuration in a file. Raises InputError for what is missing, unknown or unusable."""
    path = Path(path)
    with placed(str(path)):
        tables = _parsed(path)
        if not NAME.fullmatch(path.stem):
            raise InputError("the file's name must be plain, like 'my-run.toml', for the record")
        if f"{path.stem}.json" == FINDINGS:
            raise InputError(f"its record would be {FINDINGS}, which holds findings; rename it")
        _check_keys(
            tables,
            {"stream": TABLE, "backbone": TABLE, "method": "[[method]] tables", "run": TABLE},
            "the file",
            "table",
        )
        for name, shown in (("stream", "[stream]"), ("backbone", "[backbone]")):
            if name not in tables:
                raise InputError(f"the table {shown} is missing")
            _check_source(tables[name], shown)
        if not tables.get("method"):
            raise InputError("there is no [[method]]; give at least one")
        entries = tuple(_entry(table, i) for i, table in enumerate(tables["method"], start=1))
        _check_labels(entries)
        _check_network(tables["backbone"], "[backbone]")
        run = {"seeds": [0], "out": "results", "order": "shuffled"} | tables.get("run", {})
        _check_run(run)
    folder = path.parent
    board = run.get("tensorboard")
    return Configuration(
        path=path,
        stream=tables["stream"],
        backbone=tables["backbone"],
        entries=entries,
        seeds=tuple(run["seeds"]),
        out=folder / run["out"],
        order=run["order"],
        tensorboard=None if board is None else folder / board,
    )


@contextmanager
def placed(place: str) -> Iterator[None]:
    """Puts the place in front of the message of an error that this library raises."""
    try:
        yield
    except ImpressLearnError as error:
        raise type(error)(f"{place}: {error}") from error


def _parsed(path: Path) -> dict[str, Any]:
    name = "tomllib" if sys.version_info >= (3, 11) else "tomli"
    try:
        toml = import_module(name)
    except ModuleNotFoundError:
        raise MissingDependencyError(
            "reading TOML under Python 3.10 needs tomli: pip install tomli"
        ) from None
    try:
        return toml.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError("is no text in UTF-8") from None
    except toml.TOMLDecodeError as error:
        raise InputError(f"is no TOML: {error}") from None


def _check_source(table: Mapping[str, Any], place: str) -> None:
    """name or module, one of them, and otherwise plain values."""
    if ("name" in table) == ("module" in table):
        raise InputError(f'{place} needs name = "…" or module = "file:function", one of them')
    key = "name" if "name" in table else "module"
    _check_kind(table[key], TEXT, f"{place}: {key}")
    if key == "module" and not re.fullmatch(r"[^\W\d]\w*:[^\W\d]\w*", table["module"]):
        raise InputError(
            f'{place}: module must be "file:function", the file without .py and beside this one, '
            f"got {table['module']!r}"
        )
    for key, value in table.items():
        _check_plain(value, f"{place}: {key}")


def _check_network(table: Mapping[str, Any], place: str) -> None:
    if "seed" in table:
        raise InputError(f"{place}: seed is given by [run] seeds, leave it out here")
    if "module" in table:
        for key, kind in ADAPT_KEYS.items():
            if key in table:
                _check_kind(table[key], kind, f"{place}: {key}")


def _entry(table: Any, number: int) -> Entry:
    place = f"[[method]] {number}"
    if not isinstance(table, dict):
        raise InputError(f"{place} must be a table, got {table!r}")
    if "name" not in table:
        raise InputError(f"{place} has no name; choose from {', '.join(KEYS)}")
    name = table["name"]
    if not isinstance(name, str) or name not in KEYS:
        raise InputError(f"{place}: no method {name!r}; choose from {', '.join(KEYS)}")
    place = f"{place} ({name})"
    _check_keys(table, KEYS[name], place)
    for key in RECIPES:
        if key in table:
            _check_keys(table[key], RECIPE_KEYS, f"{place} {key}")
    backbone = table.get("backbone", {})
    for key, value in backbone.items():
        _check_plain(value, f"{place} backbone: {key}")
    _check_network(backbone, f"{place} backbone")
    if not backbone.keys().isdisjoint({"name", "module"}):
        raise InputError(f"{place} backbone: name and module stand in [backbone] only")
    label = table.get("label", name)
    if not label.strip():
        raise InputError(f"{place}: label must not be empty")
    with placed(place):
        return Entry(label, settled(table), backbone)


def _check_labels(entries: tuple[Entry, ...]) -> None:
    labels = [entry.label for entry in entries]
    for label in labels:
        if labels.count(label) > 1:
            raise InputError(f'two [[method]] are called {label!r}; give one a label = "…"')


def _check_run(run: Mapping[str, Any]) -> None:
    _check_keys(run, RUN_KEYS, "[run]")
    seeds = run["seeds"]
    if not seeds or len(set(seeds)) != len(seeds):
        raise InputError(f"[run]: seeds must be distinct, and at least one, got {seeds}")
    if not all(0 <= seed <= LARGEST_SEED for seed in seeds):
        raise InputError(f"[run]: seeds must lie in 0 to {LARGEST_SEED}, got {seeds}")
    if run["order"] not in ORDERS:
        raise InputError(f"[run]: order must be {' or '.join(ORDERS)}, got {run['order']!r}")


def _check_keys(
    table: Mapping[str, Any], keys: Mapping[str, str], place: str, word: str = "key"
) -> None:
    """All keys known, all values of the kind that is asked for."""
    for key, value in table.items():
        if key not in keys:
            close = difflib.get_close_matches(key, keys, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(keys)}"
            raise InputError(f"{place} has no {word} {key!r}; {hint}")
        _check_kind(value, keys[key], f"{place}: {key}")


def _check_kind(value: Any, kind: str, place: str) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    good = {
        TEXT: isinstance(value, str),
        WHOLE: whole,
        NUMBER: whole or (isinstance(value, float) and isfinite(value)),
        FLAG: isinstance(value, bool),
        TABLE: isinstance(value, dict),
        WHOLES: _all(value, int),
        "a list of texts": _all(value, str),
        "[[method]] tables": isinstance(value, list),
    }
    if not good[kind]:
        raise InputError(f"{place} must be {kind}, got {value!r}")


def _all(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, kind) and not isinstance(each, bool) for each in value
    )


def _check_plain(value: Any, place: str) -> None:
    """No dates and no infinite numbers: the values are kept as JSON."""
    if isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            _check_plain(part, place)
    elif not (isinstance(value, (str, int)) or (isinstance(value, float) and isfinite(value))):
        raise InputError(f"{place} must be a text, a finite number, or such in a list, got {value}")
