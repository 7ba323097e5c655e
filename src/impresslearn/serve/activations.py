"""How much memory a forward pass takes, known before it is run.

A network that takes pictures of any size is a way to ask for any amount of memory: a small body of
pixels becomes hundreds of times as many activations.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from impresslearn.networks import Backbone

PROBED_SIZE = 64


def activation_bytes(backbone: Backbone, shape: tuple[int, ...]) -> int:
    """What one input of a shape leaves for a gradient; 0 for a shape that does not fit.

    Measured on a few small inputs and scaled. Without a gradient a pass takes less; a third was
    measured for a ResNet-18.
    """
    small = (*shape[:1], *(min(size, PROBED_SIZE) for size in shape[1:]))
    for probe in (small, shape):  # a network of a fixed size takes no smaller one
        try:  # without what a batch of any size keeps
            kept = _kept_bytes(backbone, (3, *probe)) - _kept_bytes(backbone, (2, *probe))
        except (RuntimeError, ValueError, TypeError):
            continue
        return kept * prod(shape) // prod(probe)
    return 0


def _kept_bytes(backbone: Backbone, shape: tuple[int, ...]) -> int:
    sizes = []

    def note(tensor: Tensor) -> Tensor:
        sizes.append(tensor.nbytes)
        return tensor

    weights = {name: each.detach().requires_grad_() for name, each in backbone.weights.items()}
    inputs = torch.zeros(shape, dtype=backbone.dtype, device=backbone.device)
    with torch.enable_grad(), saved_tensors_hooks(note, lambda tensor: tensor):
        backbone.forward(weights, inputs)
    return sum(sizes)
