"""From a configuration's tables to streams and networks, the user's own Python included.

`module = "file:function"` imports file.py from the configuration's folder and calls the function:
it is the user's own code and runs with the user's rights. `content_of` tells whether it changed,
`data_of` whether one's own data did; what a network's file imports or reads is not looked at.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import torch
from torch import Tensor

from impresslearn import streams
from impresslearn.data import Examples, as_inputs
from impresslearn.data.files.fingerprint import data_fingerprint
from impresslearn.errors import ImpressLearnError, InputError
from impresslearn.experiments.configuration import ADAPT_KEYS
from impresslearn.learner.creation import Founding, found_learner
from impresslearn.networks import Backbone, adapt
from impresslearn.streams import Stream, create_stream, from_arrays, list_streams

NOTHING: Mapping[str, Any] = MappingProxyType({})


def stream_of(settings: Mapping[str, Any], folder: Path, *, download: bool = True) -> Stream:
    """The stream of a [stream] table: a standard one, or what the user's function returns.

    The function may return a `Stream`, or what `from_arrays` takes. download: whether a data set
    that is not there may be fetched.
    """
    rest = {key: value for key, value in settings.items() if key not in ("name", "module")}
    if "module" in settings:
        made = _call(folder, settings["module"], rest)
        return made if isinstance(made, Stream) else from_arrays(made, settings["module"])
    if not download and "download" in _parameters(settings["name"]):
        rest["download"] = False
    return create_stream(settings["name"], **rest)


def backbone_of(settings: Mapping[str, Any], stream: Stream, seed: int, folder: Path) -> Backbone:
    """The network of a [backbone] table, with outputs and inputs for the stream's tasks.

    A named one is random and has the default preset's init and gain, unless they are given. The
    user's function is called with torch's seed set, and with `num_classes` and `seed` if it names
    them; the module that it returns is adapted.
    """
    classes = max(len(task.classes) for task in stream)
    rest = {key: value for key, value in settings.items() if key not in ("name", "module")}
    if "module" not in settings:
        known = {key: rest.pop(key, None) for key in ("norm", "preset")}
        outputs = rest.pop("num_classes", None)
        founding = Founding(settings["name"], rest, outputs, seed=seed, **known)
        return found_learner(founding, classes, one_input(stream).shape).backbone
    how = {key: rest.pop(key) for key in ADAPT_KEYS if key in rest}
    outputs = how.setdefault("num_classes", classes)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        offered = {"num_classes": outputs, "seed": seed}
        module = _call(folder, settings["module"], rest, offered)
    return adapt(module, **how)


@lru_cache(maxsize=2)
def one_input(stream: Stream) -> Tensor:
    """A test input of the first task."""
    test = stream[0].test
    return test.inputs[0].clone() if isinstance(test, Examples) else as_inputs(test.dataset[0][0])


def rooted(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The settings with the data's folder as an absolute path, where the stream has one."""
    found = dict(settings)
    root = _parameters(found["name"]).get("root") if "name" in found else None
    if root is not None and ("root" in found or root.default is not root.empty):
        given = found.get("root", root.default)
        if not isinstance(given, str):
            raise InputError(f"[stream]: root must be a text, got {given!r}")
        found["root"] = str((folder / given).resolve())
    return found


def _parameters(name: str) -> Mapping[str, inspect.Parameter]:
    """Of a standard stream's function; none for an unknown name."""
    if name not in list_streams():
        return {}
    return inspect.signature(getattr(streams, name)).parameters


def content_of(folder: Path, reference: str) -> str:
    """SHA-256 (hex) of the user's file."""
    return _digest(_module_file(folder, reference))


def data_of(settings: Mapping[str, Any], stream: Stream) -> dict[str, str]:
    """SHA-256 (hex) of one's own data, as {"data": …}; nothing for a standard stream.

    Of what the user's function made: every training and test set. Of a folder of images: its files'
    names, sizes and times, since to read them all would take long.
    """
    told: list[Any]
    if "module" in settings:
        told = [
            [task.name, data_fingerprint(task.train), data_fingerprint(task.test)]
            for task in stream
        ]
    elif settings["name"] == "from_folder":
        root = Path(settings["root"])
        files = ((file, file.stat()) for file in sorted(root.glob("*/*/*/*")))
        told = [[str(f.relative_to(root)), s.st_size, s.st_mtime_ns] for f, s in files]
    else:
        return {}
    return {"data": hashlib.sha256(json.dumps(told).encode()).hexdigest()}


def _call(
    folder: Path, reference: str, settings: Mapping[str, Any], offered: Mapping[str, Any] = NOTHING
) -> Any:
    """What the user's function returns; `offered` are arguments that it gets if it names them."""
    file = _module_file(folder, reference)
    try:
        function = _function(file, reference)
        named = inspect.signature(function).parameters
        more = {key: value for key, value in offered.items() if key in named}
        return function(**more, **settings)
    except (ImpressLearnError, MemoryError):
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(file)]
        where = f"{file.name}:{lines[-1]}" if lines else file.name
        raise InputError(f"{where}: {type(error).__name__}: {error}") from error


def _function(file: Path, reference: str) -> Callable[..., Any]:
    name = reference.partition(":")[2]
    function = getattr(_imported(file), name, None)
    if not callable(function):
        raise InputError(f"{file} has no function {name!r}")
    return function


def _imported(file: Path) -> ModuleType:
    """The module in a file, under a name of its own; it may import its neighbours."""
    name = f"_own_{file.stem}_{_digest(file, str(file))[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise InputError(f"{file} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(file.parent))
    return module


def _module_file(folder: Path, reference: str) -> Path:
    file = (folder / f"{reference.partition(':')[0]}.py").resolve()
    if not file.is_file():
        raise InputError(f"module {reference!r}: there is no {file}")
    return file


def _digest(file: Path, more: str = "") -> str:
    return hashlib.sha256(file.read_bytes() + more.encode()).hexdigest()
