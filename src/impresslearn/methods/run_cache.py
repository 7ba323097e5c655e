"""Finished runs on disk, and a digest of everything that a run depends on.

The digest is joblib's, of a pickle, but with code by value. For your own functions and classes it
takes the compiled code, with the values that they close over and the globals that they name, so an
edit changes the digest and a comment does not. Installed code (this package, torch, ...) counts by
its name only.
"""

import json
import os
import sys
import sysconfig
from collections.abc import Mapping
from contextlib import suppress
from copyreg import dispatch_table
from dataclasses import asdict
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any

import numpy as np
import torch
from joblib.hashing import NumpyHasher

from impresslearn.files import write_file
from impresslearn.methods.evaluation import Evaluation
from impresslearn.networks import Backbone

INSTALLED = [str(Path(__file__).parents[1])]
INSTALLED += [sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")]
CODE = (FunctionType, staticmethod, classmethod, property, type(cache(len)))
PLAIN = (str, bytes, int, float, bool, list, tuple, dict, type(None))


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
    """A digest (hex) of values and of the code in them."""
    hasher = _Hasher("md5")
    hasher.dump(values)
    for value in hasher.waiting:  # grows meanwhile
        hasher.dump(_contents(value))
    return hasher.hash(None)


class _Hasher(NumpyHasher):
    """joblib's hasher, which puts numbers for code and the like, and leaves them for later.

    So functions may name each other, and a long chain of them needs no deep recursion.
    """

    def __init__(self, hash_name: str) -> None:
        super().__init__(hash_name)
        self.waiting: list[Any] = []
        self._numbers: dict[int, int] = {}

    def reducer_override(self, value: Any) -> Any:
        """What the pickler asks first about every value."""
        if value is _number or type(value) in PLAIN or _contents(value) is None:
            return NotImplemented
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self.waiting)
            self.waiting.append(value)
        return _number, (self._numbers[id(value)],)


def _number(place: int) -> int:
    """Takes the place of a value in the pickle, which nobody loads."""
    return place


def _contents(value: Any) -> list[Any] | None:
    """What a value depends on; None if its pickle says it."""
    if isinstance(value, torch.Tensor):
        with suppress(RuntimeError):  # the pickle of a sparse tensor says it
            plain = value.detach().cpu().contiguous()
            return [str(plain.dtype), list(plain.shape), plain.flatten().view(torch.uint8).numpy()]
    if isinstance(value, Path):
        # Not its content: reading all images of a folder would take long.
        about = value.stat() if value.is_file() else None
        return [str(value), about and [about.st_size, about.st_mtime_ns]]
    if isinstance(value, Backbone):
        # Not its attributes: some are filled at the first use, and the key must stay the same.
        return [value.fingerprint(), value.norm, value.num_classes, value.head]
    if isinstance(value, CodeType):
        return [value.co_code, value.co_names, value.co_varnames, list(value.co_consts)]
    if isinstance(value, ModuleType):
        file = None if _is_installed(value.__name__) else getattr(value, "__file__", None)
        return [value.__name__, Path(file).read_bytes() if file else None]
    if isinstance(value, (FunctionType, type)):
        named = [value.__module__, value.__qualname__]
        if _is_installed(value.__module__):
            return named
        if isinstance(value, FunctionType):
            return named + _parts_of(value)
        # Python's other attributes say where a class was written but not what it does.
        own = sorted(name for name in vars(value) if not name.startswith(("__", "_abc")))
        verbs = [each for each in vars(value).values() if isinstance(each, CODE)]
        return [*named, list(value.__bases__), {name: vars(value)[name] for name in own}, verbs]
    if isinstance(value, CODE):
        parts = [getattr(value, name, None) for name in ("__wrapped__", "fget", "fset")]
        return [type(value).__name__, *parts]
    if isinstance(value, torch.nn.Module):
        return [type(value), vars(value) | {"training": None}]
    if isinstance(value, (set, frozenset)):
        return sorted(map(digest, value))  # their order differs between processes
    if isinstance(value, MappingProxyType):
        return [dict(value)]
    if type(value) in dispatch_table:  # patterns, functions of numpy
        return None
    try:
        value.__reduce_ex__(4)
    except Exception:  # locks, handles and the like do not change what a method computes
        return []
    return None


def _parts_of(function: FunctionType) -> list[Any]:
    """The code of a function, its defaults, and the values that it closes over or names."""
    cells = []
    for cell in function.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:  # not filled yet: a function that is defined further below
            cells.append("empty cell")
    names = sorted(_names_in(function.__code__) & set(function.__globals__))
    named = {name: function.__globals__[name] for name in names}
    return [function.__code__, function.__defaults__, function.__kwdefaults__, cells, named]


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
