"""Optional packages that need care when they are imported.

A torchvision build whose compiled operators do not match the installed torch fails on import with
"operator torchvision::nms does not exist" (pytorch issue 157648), although nothing here needs those
operators. `import_torchvision` then declares their schemas and imports again: data sets, models and
transforms work, and only the operators themselves stay unavailable. PEFT imports torchvision too,
through transformers, where it is installed.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from types import ModuleType

import torch

from impresslearn.errors import MissingDependencyError

_OPERATORS = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_declared: list[torch.library.Library] = []  # schemas live as long as the Library object


def import_torchvision(module: str = "torchvision") -> ModuleType:
    """torchvision, or one of its modules, imported even where its operators do not match torch.

    Raises MissingDependencyError where it is not installed or cannot be imported at all.
    """
    try:
        return importlib.import_module(module)
    except (ImportError, RuntimeError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "torchvision":
            raise MissingDependencyError(
                "this needs torchvision: pip install 'impresslearn[vision]'"
            ) from None
        if "torchvision::nms does not exist" not in str(error):
            raise MissingDependencyError(f"torchvision cannot be imported: {error}") from error
    library = torch.library.Library("torchvision", "DEF")
    _declared.append(library)
    for operator in ("nms", "qnms"):
        library.define(operator + _OPERATORS)
    return importlib.import_module(module)


def import_peft() -> ModuleType:
    """PEFT. Raises MissingDependencyError where it is not installed or cannot be imported."""
    if find_spec("torchvision") is not None:
        import_torchvision()
    try:
        return importlib.import_module("peft")
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "peft":
            raise MissingDependencyError(
                "this needs PEFT: pip install 'impresslearn[peft]'"
            ) from None
        raise MissingDependencyError(f"PEFT cannot be imported: {error}") from error
