"""Imports Avalanche, or says how to get it."""

import importlib
from importlib.util import find_spec
from types import ModuleType

from impresslearn.errors import MissingDependencyError
from impresslearn.streams import import_torchvision


def import_avalanche() -> ModuleType:
    """Avalanche. Raises MissingDependencyError where it is not installed or cannot be imported."""
    if find_spec("torchvision") is not None:
        import_torchvision()
    try:
        return importlib.import_module("avalanche")
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "avalanche"
        raise MissingDependencyError(
            "this needs Avalanche: pip install 'impresslearn[avalanche]'"
            if missing
            else f"Avalanche cannot be imported: {error}"
        ) from error
