"""Imports torchvision even if its build does not match torch, and reads its data sets.

If the build does not match, the import fails with "operator torchvision::nms does not exist"
(pytorch issue 157648). `import_torchvision` then declares the schemas of the compiled operators and
imports again. Data sets, models and transforms then work; only the operators do not.
"""

import importlib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.checks import imported
from impresslearn.errors import MissingDataError, MissingDependencyError
from impresslearn.streams.pixels import Pixels

FOLDERS = {"MNIST": "MNIST/raw", "CIFAR100": "cifar-100-python"}  # torchvision's names
_declared: list[torch.library.Library] = []  # schemas exist as long as their Library object


def import_torchvision(module: str = "torchvision") -> ModuleType:
    """Imports torchvision or one of its modules, even if its operators do not match torch.

    - module: the full name, such as "torchvision.datasets"
    """
    try:
        return imported(module, "this needs torchvision", "vision")
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise MissingDependencyError(f"torchvision cannot be imported: {error}") from error
    library = torch.library.Library("torchvision", "DEF")
    _declared.append(library)
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return importlib.import_module(module)


def import_extra(package: str, name: str) -> ModuleType:
    """Imports a package that an extra installs, and that may import torchvision in turn."""
    if find_spec("torchvision") is not None:
        import_torchvision()
    return imported(package, f"this needs {name}", package)


def channels_first(images: np.ndarray) -> Tensor:
    """Turns images (n, h, w) or (n, h, w, c) into (n, c, h, w)."""
    tensor = torch.from_numpy(images)
    return tensor[:, None] if tensor.ndim == 3 else tensor.permute(0, 3, 1, 2)


def load_images(name: str, root: str | Path, download: bool) -> tuple[Pixels, Pixels]:
    """Training and test images of MNIST or CIFAR100; with a local copy, nothing is downloaded."""
    data_set: Callable[..., Any] = getattr(import_torchvision("torchvision.datasets"), name)
    try:
        train, test = data_set(root, train=True, download=download), data_set(root, train=False)
    except Exception as error:  # torchvision raises all kinds, assertions included, on bad files
        reason = " ".join(str(error).split()) or type(error).__name__
        reason = reason.split(" You can use download=True")[0]
        advice = "" if download else ", or pass download=True"
        line = f"no usable {name} in {Path(root, FOLDERS[name])} ({reason})"
        advised = f"put its files there or point root at a copy{advice}"
        raise MissingDataError(f"{line}: {advised}") from error
    return _pixels(train), _pixels(test)


def _pixels(part: Any) -> Pixels:
    labels = np.asarray(part.targets, np.int64)
    if isinstance(part.data, np.ndarray):  # CIFAR-100, whose classes have names
        labels = np.asarray(part.classes)[labels]
    return Pixels(channels_first(np.asarray(part.data)), labels)
