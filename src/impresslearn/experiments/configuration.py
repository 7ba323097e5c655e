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
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from impresslearn.errors import ImpressLearnError, InputError
from impresslearn.experiments.run_tables import ConfigurationFile, MethodTable, RunTable
from impresslearn.methods import method_settings
from impresslearn.report.records import FINDINGS
from impresslearn.validation import check_integer

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
OVER_MASKS = ("impresslearn", "hybrid")
"""Methods of the library that learn over masks: of `basis` tasks, or `random_masks`."""
WITHOUT_BASIS = ("supsup", "single_mask", "finetuning", "separate", "lora", "vera")
RECIPE_ALONE = ("finetuning", "separate")
"""Methods whose keys hold no settings but their recipe."""


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
        try:
            file = ConfigurationFile.model_validate(tables)
        except ValidationError as error:
            raise InputError(_line(error.errors()[0])) from None
        entries = tuple(
            _entry(table, tables["method"][place].get("backbone", {}), place + 1)
            for place, table in enumerate(file.method)
        )
        labels = [entry.label for entry in entries]
        for label in labels:
            if labels.count(label) > 1:
                raise InputError(f'two [[method]] are called {label!r}; give one a label = "…"')
    run = file.run
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
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError("is no text in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"is no TOML: {error}") from None


def _entry(table: MethodTable, backbone: Mapping[str, Any], number: int) -> Entry:
    name, settings = table.name, dict(table.model_extra or {})
    with error_prefix(f"[[method]] {number} ({name or table.module})"):
        if name is None:
            method: dict[str, Any] = {"module": table.module, "settings": settings}
        else:
            method = stored_method(name, settings)
        if name in WITHOUT_BASIS:
            if table.basis:
                raise InputError("it has no masks of basis tasks, leave basis out")
        else:
            method["basis"] = table.basis
        if name in (*OVER_MASKS, *WITHOUT_BASIS) and "preprocessing" in settings:
            raise InputError("preprocessing is that of the stream, leave it out here")
        if name in OVER_MASKS and not table.basis + method["random_masks"]:
            raise InputError("needs basis or random_masks, a number of at least 1")
    label = table.label or name or str(table.module)
    return Entry(label, method, backbone)


def stored_method(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """A method's settings, defaults filled in, as they stand in the keys of jobs."""
    rest = method_settings(name, **settings)
    found: dict[str, Any] = {"name": name}
    if "recipe" in rest:
        found["task_recipe"] = rest.pop("recipe")
    found |= {key: rest.pop(key) for key in ("basis_recipe", "task_recipe") if key in rest}
    if name in OVER_MASKS:
        found["random_masks"] = check_integer("random_masks", rest.pop("random_masks", 0), 0)
    return found if name in RECIPE_ALONE else found | {"settings": rest}


def restored_settings(method: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of `create_method` behind what `stored_method` gave."""
    kept = ("basis_recipe", "task_recipe", "random_masks")
    found = dict(method.get("settings", {})) | {key: method[key] for key in kept if key in method}
    if "recipe" in method_settings(method["name"]):
        found["recipe"] = found.pop("task_recipe")
    return found


def _line(error: Any) -> str:
    """What pydantic found wrong, in one line: "TABLE: KEY must be …, got …"."""
    table, *keys = error["loc"]
    if error["type"] == "missing":
        return f"the table [{table}] is missing" if table != "method" else "there is no [[method]]"
    if error["type"] == "extra_forbidden":
        model: type[BaseModel] = RunTable if keys else ConfigurationFile
        place, key = (f"[{table}]", keys[0]) if keys else ("the file", table)
        close = difflib.get_close_matches(key, model.model_fields, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"choose from {list(model.model_fields)}"
        return f"{place} has no key {key!r}; {hint}"
    place = f"[{table}]"
    if table == "method" and keys:
        place, keys = f"[[method]] {keys[0] + 1}", keys[1:]
    if error["type"] == "value_error":
        said = str(error["ctx"]["error"])
    elif error["type"] == "model_type":
        said = f"must be a table, got {error['input']!r}"
    else:
        said = f"must {error['msg'].split(' should ')[-1]}, got {error['input']!r}"
    return f"{place}: {''.join(f'{key} ' for key in keys)}{said}"
