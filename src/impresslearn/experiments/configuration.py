"""Reads the configuration file of a user's own run: stream, network and methods, checked.

    [stream]     name = "permuted_digits" (a name of `list_streams`) or module = "file:function",
                 and the settings of that function
    [backbone]   name = "lenet_300_100" (a name of `list_backbones`) or module = "file:function",
                 and its settings
    [[method]]   name = "impresslearn" (a name of `list_methods`) or module = "file:function", its
                 settings, basis, label, and in backbone what is different in its network
    [run]        seeds = [0], out = "results", order = "shuffled" or "given", tensorboard

Paths are relative to the folder of the file. Every mistake is one line that names the file and the
key. What needs the stream or the network itself is checked by `configured_run.plan_run`.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from impresslearn.errors import ImpressLearnError, InputError, MissingDependencyError
from impresslearn.experiments.run_tables import (
    METHODS,
    ConfigurationFile,
    MethodTable,
    RecipeMethod,
    UserMethod,
)
from impresslearn.methods import list_methods, method_settings
from impresslearn.report.findings import FILE as FINDINGS

FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
OF_THE_RUN = ("name", "module", "label", "backbone", "basis")
"""Keys of a [[method]] that are not settings of the method itself."""
NO_METHOD = "there is no [[method]]; give at least one"
KINDS = {
    "string_type": "a text",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "model_type": "a table",
}
LISTS = {
    "list[int]": "a list of integers",
    "list[str]": "a list of texts",
    "list[typing.Any]": "[[method]] tables",
}
"""What pydantic's types of errors ask for."""


@dataclass(frozen=True)
class Entry:
    """One [[method]]: its label, what the method is, and what its network has of its own.

    method: name or module, settings with defaults filled in, and basis where there is one, as they
    stand in the jobs' keys.
    """

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
    with error_prefix(str(path)):
        tables = _parsed(path)
        if not FILE_NAME.fullmatch(path.stem):
            raise InputError("the file's name must be plain, like 'my-run.toml', for the record")
        if f"{path.stem}.json" == FINDINGS:
            raise InputError(f"its record would be {FINDINGS}, which holds findings; rename it")
        run = _checked(ConfigurationFile, tables, "the file").run
        entries = tuple(_entry(table, i) for i, table in enumerate(tables["method"], start=1))
        if not entries:
            raise InputError(NO_METHOD)
        labels = [entry.label for entry in entries]
        for label in labels:
            if labels.count(label) > 1:
                raise InputError(f'two [[method]] are called {label!r}; give one a label = "…"')
    return Configuration(
        path=path,
        stream=tables["stream"],
        backbone=tables["backbone"],
        entries=entries,
        seeds=tuple(run.seeds),
        out=path.parent / run.out,
        order=run.order,
        tensorboard=None if run.tensorboard is None else path.parent / run.tensorboard,
    )


@contextmanager
def error_prefix(place: str) -> Iterator[None]:
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


def _entry(table: Any, number: int) -> Entry:
    place = f"[[method]] {number}"
    if not isinstance(table, dict):
        raise InputError(f"{place} must be a table, got {table!r}")
    name = table.get("name")
    if ("module" in table) == (name is not None):
        raise InputError(
            f"{place} has no name; choose from {', '.join(list_methods())}, or give module = "
            '"file:function" instead'
        )
    if name is None:
        model: type[MethodTable] = UserMethod
    elif name in list_methods():
        model = METHODS.get(name, UserMethod)
    else:
        raise InputError(f"{place}: no method {name!r}; choose from {', '.join(list_methods())}")
    place = f"{place} ({name or table['module']})"
    checked = _checked(model, table, place)
    settings = {key: value for key, value in table.items() if key not in OF_THE_RUN}
    basis = {"basis": table.get("basis", 0)} if "basis" in model.model_fields else {}
    with error_prefix(place):
        if name is None:
            method = {"module": table["module"], "settings": settings}
        else:
            method = stored_method(name, method_settings(name, **settings))
    label = checked.label or name or table["module"]
    return Entry(label, method | basis, table.get("backbone", {}))


def stored_method(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """A method's settings, defaults filled in, as they stand in the keys of jobs."""
    rest, table = method_settings(name, **settings), METHODS.get(name, UserMethod)
    found: dict[str, Any] = {"name": name}
    if "recipe" in rest:
        found["task_recipe"] = rest.pop("recipe")
    found |= {key: rest.pop(key) for key in ("basis_recipe", "task_recipe") if key in rest}
    if "random_masks" in table.model_fields:
        found["random_masks"] = rest.pop("random_masks", 0)
    return found if table is RecipeMethod else found | {"settings": rest}


def restored_settings(method: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of `create_method` behind what `stored_method` gave."""
    kept = ("basis_recipe", "task_recipe", "random_masks")
    found = dict(method.get("settings", {})) | {key: method[key] for key in kept if key in method}
    if "recipe" in method_settings(method["name"]):
        found["recipe"] = found.pop("task_recipe")
    return found


def _checked(model: type[Any], table: Any, place: str) -> Any:
    """The table as its model. Raises InputError naming table and key of the first mistake."""
    try:
        return model.model_validate(table)
    except ValidationError as error:
        raise InputError(_line(model, error.errors()[0], place)) from None


def _line(model: Any, error: Any, place: str) -> str:
    """What is wrong, in one line: "PLACE: KEY must be …, got …"."""
    kind = error["type"]
    names = [part for part in error["loc"] if isinstance(part, str)]
    while names and (inner := _table_of(model, names[0])) is not None:
        if len(names) == 1 and kind != "value_error":
            break
        place = f"[{names[0]}]" if model is ConfigurationFile else f"{place} {names[0]}"
        model, names = inner, names[1:]
    key = names[0] if names else ""
    if kind == "missing":
        return NO_METHOD if key == "method" else f"the table [{key}] is missing"
    if kind == "extra_forbidden":
        keys = list(model.model_fields)
        close = difflib.get_close_matches(key, keys, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(keys)}"
        return f"{place} has no {'table' if model is ConfigurationFile else 'key'} {key!r}; {hint}"
    if kind == "value_error":
        return f"{place}: {f'{key} ' if key else ''}{error['ctx']['error']}"
    if kind == "literal_error":
        words = error["ctx"]["expected"].replace("'", "")
    else:
        asked = str(model.model_fields[key].annotation)
        words = next((LISTS[k] for k in LISTS if asked.startswith(k)), KINDS.get(kind, kind))
    return f"{place}: {key} must be {words}, got {error['input']!r}"


def _table_of(model: Any, key: str) -> Any:
    """The model of a table inside a table, or None."""
    field = model.model_fields.get(key)
    kinds = () if field is None else (field.annotation, *get_args(field.annotation))
    return next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)
