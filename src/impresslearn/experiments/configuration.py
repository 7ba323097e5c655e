"""Reads the configuration file of a user's own run: stream, network and methods, checked.

    [stream]     name = "permuted_digits" (a name of `list_streams`) or module = "file:function",
                 and the settings of that function
    [backbone]   name = "lenet_300_100" (a name of `list_backbones`) or module = "file:function",
                 and its settings
    [[method]]   name = "impresslearn" (a name of `list_methods`) or module = "file:function", its
                 settings, basis, label, in backbone what is different in its network, and in grid
                 lists of settings, of which each combination is a method
    [run]        seeds = [0], out = "results", order = "shuffled" or "given", validation = 0.2,
                 task_inference = 10, reference (a label), tensorboard

Paths are relative to the folder of the file. Every mistake is one line that names the file and the
key. What needs the stream or the network itself is checked by `configured_run.plan_run`.
"""

from __future__ import annotations

import re
import sys
from itertools import product
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    StringConstraints,
    ValidationError,
    model_validator,
)

from impresslearn.checks import check_integer, did_you_mean
from impresslearn.errors import InputError, error_prefix
from impresslearn.methods import method_settings
from impresslearn.report.quantities import said
from impresslearn.report.records import FINDINGS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
MODULE = re.compile(r"[^\W\d]\w*:[^\W\d]\w*")
OVER_MASKS = ("impresslearn", "hybrid", "best_mask")
"""Methods of the library that learn over masks: of `basis` tasks, or `random_masks`."""
WITHOUT_BASIS = (
    "supsup",
    "single_mask",
    "finetuning",
    "separate",
    "bitfit",
    "lora",
    "vera",
    "unilora",
    "randlora",
    "vblora",
    "fourierft",
    "pranc",
    "nola",
    "pruned",
    "linear_probe",
    "logistic_regression",
    "svc",
)
RECIPE_ALONE = ("finetuning", "separate")
"""Methods whose keys hold no settings but their recipe."""


def _plain(value: Any) -> Any:
    """No dates and no infinite numbers: the values are kept as JSON."""
    if isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            _plain(part)
    elif not (isinstance(value, (str, int)) or (isinstance(value, float) and isfinite(value))):
        raise ValueError(f"must be a text, a finite number, or such in a list, got {value}")
    return value


def _reference(text: str) -> str:
    if not MODULE.fullmatch(text):
        raise ValueError(
            f'must be "file:function", the file without .py and beside this one, got {text!r}'
        )
    return text


def _distinct(seeds: list[int]) -> list[int]:
    if not seeds or len(set(seeds)) != len(seeds):
        raise ValueError(f"must be distinct, and at least one, got {seeds}")
    return seeds


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    def written(self) -> dict[str, Any]:
        """The keys that the file has, with their values."""
        return self.model_dump(exclude_unset=True)


class _Open(_Table):
    """A table that also holds the settings of some function, which checks them itself."""

    model_config = ConfigDict(extra="allow", strict=True)
    __pydantic_extra__: dict[str, Annotated[Any, AfterValidator(_plain)]] = Field(init=False)


class SourceTable(_Open):
    """[stream]: a standard stream, or the user's."""

    name: str | None = None
    module: Annotated[str, AfterValidator(_reference)] | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> SourceTable:
        if (self.name is None) == (self.module is None):
            raise ValueError('needs name = "…" or module = "file:function", one of them')
        return self


class NetworkTable(_Open):
    """What is different in the network of one method; `adapt`'s settings, or the network's own."""

    norm: str | None = None
    input_shape: list[int] | None = None
    num_classes: int | None = None
    skip: list[str] | None = None

    @model_validator(mode="after")
    def _without_seed_and_source(self) -> NetworkTable:
        given = self.model_extra or {}
        if "seed" in given:
            raise ValueError("seed is given by [run] seeds, leave it out here")
        if "name" in given or "module" in given:
            raise ValueError("name and module stand in [backbone] only")
        return self


class BackboneTable(SourceTable, NetworkTable):
    """[backbone]: a network of the library, or the user's."""


class MethodTable(SourceTable):
    """[[method]]: a method of the library, one that was registered, or the user's."""

    label: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)] = ""
    backbone: NetworkTable = NetworkTable()
    basis: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _usable(self) -> MethodTable:
        self.label = self.label or self.name or str(self.module)
        kept, settings = self.in_keys(), self.model_extra or {}
        if self.name in WITHOUT_BASIS and self.basis:
            raise ValueError("it has no masks of basis tasks, leave basis out")
        if self.name in (*OVER_MASKS, *WITHOUT_BASIS) and "preprocessing" in settings:
            raise ValueError("preprocessing is that of the stream, leave it out here")
        over_masks = self.name in OVER_MASKS and kept["settings"].get("granularity") != "weight"
        if over_masks and not self.basis + kept["random_masks"]:
            raise ValueError("needs basis or random_masks, a number of at least 1")
        return self

    def in_keys(self) -> dict[str, Any]:
        """The method as it stands in the keys of jobs, with defaults filled in: name or module,
        settings, recipes, and basis where there is one. Raises InputError for its settings.
        """
        rest = dict(self.model_extra or {})
        if self.name is None:
            return {"module": self.module, "settings": rest, "basis": self.basis}
        rest = method_settings(self.name, **rest)
        found: dict[str, Any] = {"name": self.name}
        if "recipe" in rest:
            found["task_recipe"] = rest.pop("recipe")
        found |= {key: rest.pop(key) for key in ("basis_recipe", "task_recipe") if key in rest}
        if self.name in OVER_MASKS:
            found["random_masks"] = check_integer("random_masks", rest.pop("random_masks", 0), 0)
        if self.name not in RECIPE_ALONE:
            found["settings"] = rest
        return found if self.name in WITHOUT_BASIS else found | {"basis": self.basis}


class RunTable(_Table):
    """[run]."""

    seeds: Annotated[list[Annotated[int, Field(ge=0, lt=2**32)]], AfterValidator(_distinct)] = [0]
    out: str = "results"
    order: Literal["shuffled", "given"] = "shuffled"
    validation: Annotated[float, Field(gt=0, lt=1)] | None = None
    task_inference: Annotated[int, Field(gt=0)] | None = None
    reference: str | None = None
    tensorboard: str | None = None


class Configuration(_Table):
    """A checked file."""

    stream: SourceTable
    backbone: BackboneTable
    method: Annotated[list[MethodTable], Field(min_length=1)]
    run: RunTable = RunTable()
    _path: Path = PrivateAttr()

    @property
    def path(self) -> Path:
        """The file; its stem is the record's name."""
        return self._path

    @property
    def out(self) -> Path:
        """Where the record goes."""
        return self.path.parent / self.run.out

    @model_validator(mode="before")
    @classmethod
    def _with_grids(cls, tables: dict[str, Any]) -> dict[str, Any]:
        methods = tables.get("method")
        if not isinstance(methods, list) or not all(isinstance(each, dict) for each in methods):
            return tables
        return tables | {"method": [one for each in methods for one in _combinations(each)]}

    @model_validator(mode="after")
    def _labels(self) -> Configuration:
        labels = [method.label for method in self.method]
        for label in labels:
            if labels.count(label) > 1:
                raise ValueError(f'two [[method]] are called {label!r}; give one a label = "…"')
        if self.run.reference not in (None, *labels):
            known = ", ".join(labels)
            raise ValueError(f"[run]: reference is {self.run.reference!r}, the methods are {known}")
        return self


def _combinations(method: dict[str, Any]) -> list[dict[str, Any]]:
    """A [[method]] as it stands, or one for each combination of what its grid lists."""
    if "grid" not in method:
        return [method]
    rest = {key: value for key, value in method.items() if key != "grid"}
    grid = method["grid"]
    if not isinstance(grid, dict) or not all(isinstance(v, list) and v for v in grid.values()):
        raise ValueError(f"[[method]]: grid lists values, as {{ lr = [0.01, 0.03] }}, got {grid!r}")
    if twice := sorted(grid.keys() & rest.keys()):
        raise ValueError(f"[[method]]: {twice[0]} stands in it and in its grid")
    called = rest.get("label") or rest.get("name") or rest.get("module")
    found = (dict(zip(grid, values, strict=True)) for values in product(*grid.values()))
    return [rest | each | {"label": f"{called}, {said(each)}"} for each in found]


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
            found = Configuration.model_validate(tables)
        except ValidationError as error:
            raise InputError(_line(error.errors()[0])) from None
    found._path = path
    return found


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError("is no text in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"is no TOML: {error}") from None


def _line(error: Any) -> str:
    """What pydantic found wrong, in one line: "TABLE: KEY must be …, got …"."""
    said = str(error["ctx"]["error"]) if error["type"] == "value_error" else ""
    if not error["loc"]:
        return said
    table, *keys = error["loc"]
    if error["type"] == "missing":
        return f"the table [{table}] is missing" if table != "method" else "there is no [[method]]"
    if error["type"] == "extra_forbidden":
        model: type[BaseModel] = RunTable if keys else Configuration
        place, key = (f"[{table}]", keys[0]) if keys else ("the file", table)
        hint = did_you_mean(key, model.model_fields)
        hint = hint or f"; choose from {', '.join(model.model_fields)}"
        return f"{place} has no key {key!r}{hint}"
    place = f"[{table}]"
    if table == "method" and keys:
        place = f"[[method]] {keys.pop(0) + 1}"
        if said and not keys:  # about the method as a whole
            given = error["input"]
            place += f" ({name})" if (name := given.get("name") or given.get("module")) else ""
    if error["type"] == "model_type":
        said = f"must be a table, got {error['input']!r}"
    said = said or f"must {error['msg'].split(' should ')[-1]}, got {error['input']!r}"
    return f"{place}: {''.join(f'{key} ' for key in keys)}{said}"
