"""Saves finished runs, under a digest of everything that a run depends on.

The digest is joblib's hash of a pickle, except that it covers your own functions and classes by
value: their compiled code, the values that they close over, and the globals that they use. So an
edit of the code changes the digest, and an edit of a comment does not. Installed code (this
package, torch, ...) counts only by its name. Modules imported inside functions do not count.
"""

import json
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
USED = (ModuleType, type, *CODE)  # what a module may have from other files
OF_CODE = ("co_code", "co_exceptiontable", "co_flags", "co_names", "co_varnames", "co_consts")
OF_BACKBONE = ("module", "norm", "num_classes", "head", "input_shape", "input_dtype", "layers")
PLAIN = (str, bytes, int, float, bool, list, tuple, dict, type(None))


def load_run(file: Path) -> Evaluation | None:
    """The evaluation in a file; None if the file is missing or damaged, so do the run again."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))["evaluation"]
        values["matrix"] = tuple(map(tuple, values["matrix"]))
        values["tasks"] = tuple(values["tasks"])
        return Evaluation(**values)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save_run(file: Path, about: Mapping[str, Any], evaluation: Evaluation) -> None:
    """Writes a run, whole or not at all. about: facts for people who read the file."""
    content = {**about, "evaluation": asdict(evaluation)}
    write_file(file, json.dumps(content, default=_plain, indent=1), folders=True)


def digest(*values: Any) -> str:
    """A digest (hex) of values, including their code."""
    hasher = _Hasher("md5")
    hasher.dump(values)
    for value in hasher.waiting:  # the list grows during this loop
        hasher.dump(_contents(value))
    return hasher.hash(None)


class _Hasher(NumpyHasher):
    """joblib's hasher, with numbers in place of code and other special values, which it queues.

    So functions may call each other, and a long chain of functions needs no deep recursion.
    """

    def __init__(self, hash_name: str) -> None:
        super().__init__(hash_name)
        self.waiting: list[Any] = []
        self._numbers: dict[int, int] = {}

    def reducer_override(self, value: Any) -> Any:
        """The pickler calls this for every value, before its own rules."""
        if value is _number or type(value) in PLAIN or _contents(value) is None:
            return NotImplemented
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self.waiting)
            self.waiting.append(value)
        return _number, (self._numbers[id(value)],)


def _number(place: int) -> int:
    """A stand-in for a value in the pickle, which is never loaded."""
    return place


def _contents(value: Any) -> list[Any] | None:
    """What the digest of a value covers; None to use its pickle."""
    if isinstance(value, torch.Tensor):
        with suppress(RuntimeError):  # a sparse tensor is pickled instead
            plain = value.detach().cpu().contiguous()
            return [str(plain.dtype), list(plain.shape), plain.flatten().view(torch.uint8).numpy()]
    if isinstance(value, Path):
        # Size and time stand for the content, as reading all images of a folder would take long.
        about = value.stat() if value.is_file() else None
        return [str(value), about and [about.st_size, about.st_mtime_ns]]
    if isinstance(value, Backbone):
        # Other attributes are filled at first use, and the digest must stay the same.
        return [getattr(value, name) for name in OF_BACKBONE]
    if isinstance(value, CodeType):
        return [getattr(value, name, None) for name in OF_CODE]
    if isinstance(value, ModuleType):
        file = getattr(value, "__file__", None)
        if file is None or _is_installed(value.__name__):
            return [value.__name__]
        used = {key: each for key, each in vars(value).items() if isinstance(each, USED)}
        return [value.__name__, Path(file).read_bytes(), used]
    if isinstance(value, (FunctionType, type)):
        named = [value.__module__, value.__qualname__]
        if _is_installed(value.__module__):
            return named
        if isinstance(value, FunctionType):
            return named + _parts_of(value)
        # Python's own attributes tell where a class is defined, not what it does.
        own = {k: v for k, v in vars(value).items() if not k.startswith(("__", "_abc"))}
        verbs = [each for each in vars(value).values() if isinstance(each, CODE)]
        return [*named, type(value), list(value.__bases__), own, verbs]
    if isinstance(value, CODE):
        parts = [getattr(value, name, None) for name in ("__wrapped__", "fget", "fset")]
        return [type(value).__name__, *parts]
    if isinstance(value, torch.nn.Module):
        hooks = {k: v for k, v in vars(value).items() if "_hooks" in k and isinstance(v, dict)}
        values = {k: list(v.values()) for k, v in hooks.items()}  # keys depend on other modules
        return [type(value), vars(value) | values | {"training": None}]
    if isinstance(value, (set, frozenset)):
        return sorted(map(digest, value))  # order differs between processes
    if isinstance(value, MappingProxyType):
        return [dict(value)]
    if type(value) in dispatch_table:  # patterns, NumPy's functions
        return None
    try:
        value.__reduce_ex__(4)
    except Exception:  # such as locks and handles, which change no result
        return []
    return None


def _parts_of(function: FunctionType) -> list[Any]:
    """The code of a function, its defaults, attributes, and the variables and globals it uses."""
    cells: list[Any] = [vars(function)]
    for cell in function.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:  # no value yet: its function is defined later
            cells.append("empty cell")
    names = sorted(_names_in(function.__code__) & set(function.__globals__))
    named = {name: function.__globals__[name] for name in names}
    return [function.__code__, function.__defaults__, function.__kwdefaults__, cells, named]


def _names_in(code: CodeType) -> set[str]:
    """The names that a function, and the functions defined in it, look up."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*map(_names_in, inner))


def _is_installed(name: str | None) -> bool:
    """Whether a module is part of Python, of this package or of another installed package."""
    file = getattr(sys.modules.get(name or ""), "__file__", None)
    if file is None:  # built in, or entered at a prompt
        return name != "__main__"
    path = Path(file).resolve()
    return any(path.is_relative_to(Path(folder).resolve()) for folder in INSTALLED)


def _plain(value: Any) -> Any:
    """A JSON value for a value that JSON does not have."""
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else repr(value)
