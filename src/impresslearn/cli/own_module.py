"""The user's own module behind `--module FILE:FUNCTION`."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from impresslearn.errors import ImpressLearnError, InputError


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
