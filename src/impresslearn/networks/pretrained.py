"""Weights that others have trained, read from a file into a network of the library."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from impresslearn.data.paths import naming
from impresslearn.errors import InputError, MissingDataError
from impresslearn.networks.architectures import ResNet20, resnet20

RESNET20_SOURCE = "resnet20-12fca82f of akamaster/pytorch_resnet_cifar10"


def load_resnet20(path: str | Path, num_classes: int = 10, width: int = 16) -> ResNet20:
    """A ResNet-20 trained on CIFAR-10, for `adapt`, in the mode for prediction.

    path: a .npz file with an array for each parameter and running statistic, by its name in the
    module (`conv1.weight`, `layer1.0.bn1.running_mean`, ..., `linear.bias`): those of
    resnet20-12fca82f of akamaster/pytorch_resnet_cifar10 (Idelbayev), whose inputs are RGB in
    [0, 1] minus (0.485, 0.456, 0.406) over (0.229, 0.224, 0.225). num_classes, width: of the file.
    Raises MissingDataError where there is no such file, InputError for other arrays.
    """
    path = Path(path)
    if not path.is_file():
        raise MissingDataError(
            f"no {path}: put a ResNet-20 trained on CIFAR-10 there, {RESNET20_SOURCE} converted to "
            ".npz, an array for each parameter by its name"
        )
    module = resnet20(num_classes, width=width)
    state = module.state_dict()
    with naming(path), np.load(path, allow_pickle=False) as archive:
        arrays = {name: torch.from_numpy(archive[name]) for name in archive.files}
    for name, tensor in state.items():
        if tensor.ndim and (name not in arrays or arrays[name].shape != tensor.shape):
            got = tuple(arrays[name].shape) if name in arrays else "none"
            raise InputError(
                f"{path} must hold an array {name} of shape {tuple(tensor.shape)} for a ResNet-20 "
                f"of width {width} and {num_classes} classes, got {got}"
            )
    module.load_state_dict({name: arrays.get(name, each) for name, each in state.items()})
    return module.eval()
