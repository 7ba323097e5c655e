"""Finished runs on disk, and a digest of everything that a run depends on.

The digest is of what a pickle would hold, but with code by value. Your own functions and classes
count by their compiled code, with the values that they close over and the globals that they name,
so an edit changes the digest and a comment does not. Installed code (this package, torch, ...)
counts by its name only.
"""

import hashlib
import json
import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copyreg import dispatch_table
from dataclasses import asdict
from functools import cache
from operator import methodcaller
from pathlib import Path
from types import CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any

import numpy as np
import torch

from impresslearn.data.examples import bytes_of
from impresslearn.files import write_file
from impresslearn.methods.evaluation import Evaluation
from impresslearn.networks import Backbone

INSTALLED = [str(Path(__file__).parents[1])]
INSTALLED += [sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")]
CODE = (FunctionType, staticmethod, classmethod, property, type(cache(len)))
PLAIN = (str, int, float, bool, type(None))


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
    total, numbers, waiting = hashlib.sha256(), dict[int, int](), [list(values)]
    # Parts are numbered and wait for their turn: so functions may name each other, and a long chain
    # of them needs no deep recursion.
    for value in waiting:  # grows meanwhile
        contents = _contents(value)
        for part in (type(value).__qualname__, len(contents), *contents):
            said = part
            if type(part) is bytes:
                said = hashlib.sha256(part).digest()
            elif type(part) is int:
                said = [hex(part)]  # Python refuses to print more than 4,300 decimals
            elif type(part) not in PLAIN:
                if id(part) not in numbers:
                    numbers[id(part)] = len(waiting)
                    waiting.append(part)
                said = ["number", numbers[id(part)]]
            total.update(f"{said!r};".encode())
    return total.hexdigest()


def _contents(value: Any) -> list[Any]:
    """What a value depends on."""
    if type(value) in (list, tuple):
        return list(value)
    if type(value) is dict:
        return [*value, *value.values()]
    if isinstance(value, torch.Tensor):
        with suppress(RuntimeError):  # sparse and the like: as a pickle holds them
            content = hashlib.sha256(bytes_of(value)).digest()
            return [str(value.dtype), list(value.shape), content]
    if type(value) is np.ndarray and not value.dtype.hasobject:
        content = hashlib.sha256(np.ascontiguousarray(value).view(np.uint8).data).digest()
        return [str(value.dtype), list(value.shape), content]
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
        return [getattr(value, name, None) for name in ("__wrapped__", "fget", "fset")]
    if isinstance(value, torch.nn.Module):
        return [type(value), vars(value) | {"training": None}]
    if isinstance(value, (set, frozenset)):
        return sorted(map(digest, value))  # their order differs between processes
    if isinstance(value, MappingProxyType):
        return [dict(value)]
    try:
        reduce = dispatch_table.get(type(value), methodcaller("__reduce_ex__", 4))
        module = getattr(value, "__module__", None)  # of a built-in, whose pickle is its name
        parts = [list(part) if isinstance(part, Iterator) else part for part in reduce(value)]
        return [module, *parts]
    except Exception:  # locks, handles and the like do not change what a method computes
        return []


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
