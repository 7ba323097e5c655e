"""Finished runs on disk, found again by what they depend on.

A run's key is a digest of the method's code, its settings, the stream, the seed and the version of
this package. `digest` walks a value: of your own functions and classes it takes the compiled code,
with the values that they close over and the globals that they name, so an edit changes the key and
a comment does not. Code that is installed (this package, torch, ...) counts by its name only.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from math import isnan, nan
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

from impresslearn.files import write_file
from impresslearn.methods.evaluation import Evaluation
from impresslearn.networks import Backbone

FORMAT = 1
INSTALLED = tuple(
    f"{Path(folder).resolve()}{os.sep}"
    for folder in (
        *[sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")],
        str(Path(__file__).parents[1]),
    )
)
# What Python adds to classes by itself, which says where they were written but not what they do.
NOT_CODE = {
    *("__doc__", "__module__", "__dict__", "__weakref__", "__firstlineno__"),
    *("__static_attributes__", "__annotations__", "__annotate_func__", "__annotations_cache__"),
    *("__abstractmethods__", "_abc_impl", "__qualname__"),
}


@dataclass(frozen=True)
class RunCache:
    """A folder with one file per finished run.

    - folder: made with the first run
    """

    folder: Path

    def path(self, label: str, seed: int, key: str) -> Path:
        """Where a run is kept; the label and the seed are there for people to read."""
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", label)[:60].strip("-.") or "run"
        return self.folder / f"{name}-seed{seed}-{key[:16]}.json"

    def load(self, path: Path, key: str) -> Evaluation | None:
        """The evaluation in a file; None where there is none, or none of this key."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["format"] != FORMAT or content["key"] != key:
                return None
            values = content["evaluation"]
            matrix = [
                [nan if value is None else value for value in row] for row in values["matrix"]
            ]
            values["matrix"] = tuple(map(tuple, matrix))
            values["tasks"] = tuple(values["tasks"])
            return Evaluation(**values)
        except (OSError, ValueError, KeyError, TypeError):
            return None  # missing or damaged: the run is done again and replaces it

    def save(self, path: Path, key: str, about: Mapping[str, Any], evaluation: Evaluation) -> None:
        """Writes a run, whole or not at all.

        - about: what people want to know of it, as JSON values
        """
        values = asdict(evaluation)
        values["matrix"] = [[None if isnan(v) else v for v in row] for row in evaluation.matrix]
        content = {"format": FORMAT, "key": key, **about, "evaluation": values}
        write_file(path, json.dumps(content, default=_plain, indent=1), folders=True)


def digest(*values: Any) -> str:
    """SHA-256 (hex) of values and of the code in them."""
    walk = _Walk()
    for value in values:
        walk.add(value)
    return walk.hexdigest()


class _Walk:
    """Feeds a hash with values, each object once: networks and closures may hold themselves."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._seen: dict[int, int] = {}
        self._alive: list[Any] = []  # an id is unique only while its object lives

    def hexdigest(self) -> str:
        return self._hash.hexdigest()

    def add(self, value: Any) -> None:
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            self._write(type(value).__name__, repr(value))
            return
        if id(value) in self._seen:
            self._write("seen", str(self._seen[id(value)]))
            return
        self._seen[id(value)] = len(self._seen)
        self._alive.append(value)
        self._add_object(value)

    def _add_object(self, value: Any) -> None:
        if isinstance(value, Mapping):
            self._write("mapping", str(len(value)))
            for key in value:
                self.add(key)
                self.add(value[key])
        elif isinstance(value, (list, tuple)):
            self._write("sequence", str(len(value)))
            for part in value:
                self.add(part)
        elif isinstance(value, (set, frozenset)):
            self._write("set", *sorted(map(digest, value)))  # their order differs between processes
        elif isinstance(value, torch.Tensor):
            self.add(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
            self._write("tensor", str(value.dtype), str(tuple(value.shape)))
        elif isinstance(value, np.ndarray) and value.dtype != object:
            self._write("array", str(value.dtype), str(value.shape))
            self._hash.update(np.ascontiguousarray(value).tobytes())
        elif isinstance(value, Path):
            self._write("path", str(value))
            if value.is_file():  # of images and tables: reading them all would take long
                self._write(str(value.stat().st_size), str(value.stat().st_mtime_ns))
        elif isinstance(value, ModuleType):
            self._add_module(value)
        elif isinstance(value, partial):
            self.add([value.func, value.args, value.keywords])
        elif isinstance(value, MethodType):
            self.add([value.__func__, value.__self__])
        elif isinstance(value, FunctionType):
            self._add_function(value)
        elif isinstance(value, CodeType):
            self._add_code(value)
        elif isinstance(value, BuiltinFunctionType):
            self._write("builtin", value.__qualname__)
        elif isinstance(value, type):
            self._add_class(value)
        elif isinstance(value, (staticmethod, classmethod)):
            self.add(value.__func__)
        elif isinstance(value, property):
            self.add([value.fget, value.fset])
        else:
            self._add_instance(value)

    def _add_module(self, module: ModuleType) -> None:
        self._write("module", module.__name__)
        if not _is_installed(module.__name__) and module.__file__:
            self._hash.update(Path(module.__file__).read_bytes())

    def _add_function(self, function: FunctionType) -> None:
        self._write("function", function.__qualname__)
        if _is_installed(function.__module__):
            self._write(function.__module__)
            return
        self._add_code(function.__code__)
        self.add([function.__defaults__, function.__kwdefaults__])
        for cell in function.__closure__ or ():
            try:
                self.add(cell.cell_contents)
            except ValueError:  # not filled yet: a function that is defined further below
                self._write("empty cell")
        for name in sorted(_names_in(function.__code__)):
            if name in function.__globals__:
                self._write("global", name)
                self.add(function.__globals__[name])

    def _add_code(self, code: CodeType) -> None:
        self._write("code", code.co_code.hex(), str(code.co_names), str(code.co_varnames))
        for constant in code.co_consts:
            self.add(constant)

    def _add_class(self, kind: type) -> None:
        self._write("class", kind.__qualname__)
        if _is_installed(kind.__module__):
            self._write(kind.__module__)
            return
        for base in kind.__bases__:
            self.add(base)
        for name in sorted(vars(kind)):
            if name not in NOT_CODE:
                self._write("attribute", name)
                self.add(vars(kind)[name])

    def _add_instance(self, value: Any) -> None:
        self.add(type(value))
        if isinstance(value, Backbone):
            # Not its attributes: some are filled at the first use, and the key must stay the same.
            self.add([value.fingerprint(), value.norm, value.num_classes, value.head])
            return
        if hasattr(value, "__dict__"):
            changing = {"training"} if isinstance(value, torch.nn.Module) else set()
            self.add({name: vars(value)[name] for name in vars(value) if name not in changing})
            return
        slots = [name for name in getattr(type(value), "__slots__", ()) if hasattr(value, name)]
        if slots:
            self.add([getattr(value, name) for name in slots])
            return
        try:
            self._hash.update(pickle.dumps(value, protocol=4))
        except Exception:  # locks, handles and the like do not change what a method computes
            self._write("opaque")

    def _write(self, *texts: str) -> None:
        for text in texts:
            data = text.encode(errors="surrogatepass")
            self._hash.update(f"{len(data)}:".encode() + data)


def _names_in(code: CodeType) -> set[str]:
    """The names that a function and those inside it look up."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names_in(constant)
    return names


def _is_installed(module: str | None) -> bool:
    """Whether code is part of Python, of this package or of another installed one."""
    found = sys.modules.get(module or "")
    if found is None:
        return module != "__main__"
    file = getattr(found, "__file__", None)
    if file is None:  # built in, or typed at a prompt
        return module != "__main__"
    return str(Path(file).resolve()).startswith(INSTALLED)


def _plain(value: Any) -> Any:
    """A value that JSON has no word for."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    return repr(value)
