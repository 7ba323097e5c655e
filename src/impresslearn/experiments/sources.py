"""Makes streams and networks from plain settings: a configuration's tables, or a target's.

The settings are a `name` of the library's and the arguments of that stream or network, or a
`module` of the user's, "file:function", and the arguments of its function. file.py is imported from
the configuration's folder: it is the user's own code and runs with the user's rights. Its errors
become one line that says where they arose.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import sys
import traceback
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from impresslearn.data import Examples, as_inputs, data_fingerprint
from impresslearn.data.inputs import one_tensor
from impresslearn.errors import ImpressLearnError, InputError
from impresslearn.learner.creation import CreationSettings, create_learner
from impresslearn.networks import Backbone, adapt
from impresslearn.streams import (
    STANDARD_STREAMS,
    Stream,
    create_stream,
    from_arrays,
    stream_settings,
)

ADAPT_SETTINGS = ("norm", "input_shape", "num_classes", "skip", "include", "head")
"""Settings of a user's network that are `adapt`'s, not its function's."""


def make_stream(settings: Mapping[str, Any], data: Path, *, download: bool = True) -> Stream:
    """A standard stream, or what the user's function returns: a `Stream`, or arrays.

    data: the folder of the user's module, and where data sets lie unless `root` says otherwise;
    settings["folder"] names a folder there. download: whether a data set that is missing may be
    fetched.
    """
    given = {key: value for key, value in settings.items() if key not in ("name", "module")}
    if "module" in settings:
        made = call_user_function(data, settings["module"], given)
        return made if isinstance(made, Stream) else from_arrays(made, settings["module"])
    parameters = stream_settings(settings["name"])
    root = parameters.get("root")
    located = "folder" in given or (root is not None and root.default is not root.empty)
    if root is not None and located and "root" not in given:
        given["root"] = str(data / given.pop("folder", ""))
    if not download and "download" in parameters:
        given["download"] = False
    return create_stream(settings["name"], **given)


def make_backbone(settings: Mapping[str, Any], stream: Stream, seed: int, folder: Path) -> Backbone:
    """The network of a [backbone] table, with outputs and inputs for the stream's tasks.

    A named one is random and has the default preset's init and gain, unless they are given. The
    user's function is called with torch's seed set, and with `num_classes` and `seed` if it names
    them; the module that it returns is adapted, with a head that tasks share unless told otherwise.
    """
    classes = max(len(task.classes) for task in stream)
    given = {key: value for key, value in settings.items() if key not in ("name", "module")}
    if "module" not in settings:
        known = {key: given.pop(key, None) for key in ("norm", "preset")}
        outputs = given.pop("num_classes", None)
        wanted = CreationSettings(settings["name"], given, outputs, seed=seed, **known)
        return create_learner(wanted, classes, one_input(stream).shape).backbone
    adapting: dict[str, Any] = {
        "head": "shared"
    }  # as all methods can have it, and as runs of before had it
    adapting |= {key: given.pop(key) for key in ADAPT_SETTINGS if key in given}
    outputs = adapting.get("num_classes", classes)
    if adapting["head"] != "own":
        adapting["num_classes"] = outputs
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        offered = {"num_classes": outputs, "seed": seed}
        module = call_user_function(folder, settings["module"], given, offered)
    return adapt(module, **adapting)


@lru_cache(maxsize=2)
def one_input(stream: Stream) -> Tensor:
    """A test input of the first task."""
    test = stream[0].test
    if isinstance(test, Examples):
        return one_tensor(test.inputs)[0].clone()
    return as_inputs(test.dataset[0][0])


def with_absolute_root(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The settings with the data's folder as an absolute path, where the stream has one."""
    root = stream_settings(settings["name"]).get("root") if "name" in settings else None
    given = settings.get("root", None if root is None else root.default)
    if root is None or given is root.empty:
        return dict(settings)
    if not isinstance(given, str):
        raise InputError(f"root must be a text, got {given!r}")
    return {**settings, "root": str((folder / given).resolve())}


def data_digest(settings: Mapping[str, Any], stream: Stream) -> str | None:
    """SHA-256 (hex) of one's own data; None for a standard stream.

    Of what the user's function made, or one that was registered: every training and test set. Of a
    folder of images: its files' names, sizes and times, since to read them all would take long.
    """
    told: list[Any]
    if "module" in settings or settings["name"] not in STANDARD_STREAMS:
        told = [
            [task.name, data_fingerprint(task.train), data_fingerprint(task.test)]
            for task in stream
        ]
    elif settings["name"] == "from_folder":
        root = Path(settings["root"])
        files = ((file, file.stat()) for file in sorted(root.glob("*/*/*/*")))
        told = [[str(f.relative_to(root)), s.st_size, s.st_mtime_ns] for f, s in files]
    else:
        return None
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def call_user_function(
    folder: Path,
    reference: str,
    settings: Mapping[str, Any],
    offered: Mapping[str, Any] | None = None,
) -> Any:
    """What "file:function" of the folder returns for these settings.

    offered: arguments that the function gets if it names them.
    """
    file, name = user_file(folder, reference), reference.partition(":")[2]
    try:
        function = getattr(_import_file(file), name, None)
        if not callable(function):
            raise InputError(f"{file} has no function {name!r}")
        named = inspect.signature(function).parameters
        more = {key: value for key, value in (offered or {}).items() if key in named}
        return function(**more, **settings)
    except (ImpressLearnError, MemoryError):
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(file)]
        where = f"{file.name}:{lines[-1]}" if lines else file.name
        raise InputError(f"{where}: {type(error).__name__}: {error}") from error


def user_file(folder: Path, reference: str) -> Path:
    """The user's file behind "file:function". Raises InputError where there is none."""
    file = (folder / f"{reference.partition(':')[0].removesuffix('.py')}.py").resolve()
    if not file.is_file():
        raise InputError(f"module {reference!r}: there is no {file}")
    return file


def _import_file(file: Path) -> ModuleType:
    """The module in a file, under a name of its content; it may import its neighbours."""
    content = hashlib.sha256(file.read_bytes() + str(file).encode()).hexdigest()
    name = f"_own_{file.stem}_{content[:16]}"
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
