"""Finished runs on disk, and a digest of everything that a run depends on.

`digest` walks values. For your own functions and classes it takes the compiled code, with the
values that they close over and the globals that they name, so an edit changes the digest and a
comment does not. Installed code (this package, torch, ...) counts by its name only.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

from impresslearn.files import write_file
from impresslearn.methods.evaluation import Evaluation
from impresslearn.networks import Backbone

INSTALLED = [str(Path(__file__).parents[1])]
INSTALLED += [sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")]
# Attributes that Python adds to classes, which say where they were written but not what they do.
NOT_CODE = {
    *("__doc__", "__module__", "__dict__", "__weakref__", "__firstlineno__"),
    *("__static_attributes__", "__annotations__", "__annotate_func__", "__annotations_cache__"),
    *("__abstractmethods__", "_abc_impl", "__qualname__"),
}


def load_run(file: Path) -> Evaluation | None:
    """The evaluation in a file; None if it is missing or damaged, and the run is done again."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))["evaluation"]
        values["matrix"] = tuple(map(tuple, values["matrix"]))
        values["tasks"] = tuple(values["tasks"])
        return Evaluation(**values)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save_run(file: Path, about: Mapping[str, Any], evaluation: Evaluation) -> None:
    """Writes a run, whole or not at all; `about` is for people who read the file."""
    content = {**about, "evaluation": asdict(evaluation)}
    write_file(file, json.dumps(content, default=_plain, indent=1), folders=True)


def digest(*values: Any) -> str:
    """SHA-256 (hex) of values and of the code in them."""
    walk = _Walk()
    for value in values:
        walk.add(value)
    return walk.hash.hexdigest()


class _Walk:
    """Feeds a hash with values, each object once: networks and closures may hold themselves."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self._seen: dict[int, int] = {}
        self._alive: list[Any] = []  # an id is unique only while its object lives

    def add(self, value: Any) -> None:
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            self._write(type(value).__name__, repr(value))
            return
        if id(value) in self._seen:
            self._write("seen", str(self._seen[id(value)]))
            return
        self._seen[id(value)] = len(self._seen)
        self._alive.append(value)
        if isinstance(value, (torch.Tensor, np.ndarray, Path)):
            self._add_data(value)
        elif isinstance(value, (ModuleType, FunctionType, CodeType, type)):
            self._add_code(value)
        else:
            self._add_object(value)

    def _add_data(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            self._write("tensor", str(value.dtype), str(tuple(value.shape)))
            value = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        if isinstance(value, np.ndarray):
            self._write("array", str(value.dtype), str(value.shape))
            # An array of objects holds addresses, so its pickle stands for it.
            plain = value.dtype != object
            self.hash.update(np.ascontiguousarray(value).tobytes() if plain else value.dumps())
            return
        self._write("path", str(value))
        if value.is_file():  # an image or a table: reading all of them would take long
            self._write(str(value.stat().st_size), str(value.stat().st_mtime_ns))

    def _add_code(self, value: Any) -> None:
        if isinstance(value, CodeType):
            names = str(value.co_names) + str(value.co_varnames)
            self._write("code", value.co_code.hex(), names)
            self.add(value.co_consts)
            return
        name = value.__name__ if isinstance(value, ModuleType) else value.__module__
        self._write(type(value).__name__, name or "", getattr(value, "__qualname__", ""))
        if _is_installed(name):
            return
        if isinstance(value, ModuleType):
            if value.__file__:
                self.hash.update(Path(value.__file__).read_bytes())
        elif isinstance(value, FunctionType):
            self._add_function(value)
        else:
            self.add(value.__bases__)
            for attribute in sorted(set(vars(value)) - NOT_CODE):
                self._write(attribute)
                self.add(vars(value)[attribute])

    def _add_function(self, function: FunctionType) -> None:
        self.add(function.__code__)
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
        elif isinstance(value, partial):
            self.add([value.func, value.args, value.keywords])
        elif isinstance(value, MethodType):
            self.add([value.__func__, value.__self__])
        elif isinstance(value, (staticmethod, classmethod)):
            self.add(value.__func__)
        elif isinstance(value, property):
            self.add([value.fget, value.fset])
        elif isinstance(value, BuiltinFunctionType):
            self._write("builtin", value.__qualname__)
        elif isinstance(value, Backbone):
            # Not its attributes: some are filled at the first use, and the key must stay the same.
            self.add([value.fingerprint(), value.norm, value.num_classes, value.head])
        elif hasattr(value, "__dict__"):
            ignored = {"training"} if isinstance(value, torch.nn.Module) else set()
            self.add(type(value))
            self.add({name: part for name, part in vars(value).items() if name not in ignored})
        else:
            self.add(type(value))
            try:
                self.hash.update(pickle.dumps(value, protocol=4))
            except Exception:  # locks, handles and the like do not change what a method computes
                self._write("opaque")

    def _write(self, *texts: str) -> None:
        for text in texts:
            data = text.encode(errors="surrogatepass")
            self.hash.update(f"{len(data)}:".encode() + data)


def _names_in(code: CodeType) -> set[str]:
    """The names that a function and the functions inside it look up."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names_in(constant)
    return names


def _is_installed(name: str | None) -> bool:
    """Whether a module is part of Python, of this package or of another installed package."""
    module = sys.modules.get(name or "")
    file = getattr(module, "__file__", None)
    if file is None:  # built in, or typed at a prompt
        return name != "__main__"
    path = str(Path(file).resolve())
    return any(path.startswith(f"{Path(folder).resolve()}{os.sep}") for folder in INSTALLED)


def _plain(value: Any) -> Any:
    """A value that JSON has no word for."""
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else repr(value)
