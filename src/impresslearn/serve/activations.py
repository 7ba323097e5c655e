"""How much memory a forward pass takes, known before it is run.

A network that takes pictures of any size is a way to ask for any amount of memory: a small body of
pixels becomes hundreds of times as many activations.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from impresslearn.networks import Backbone

PROBED_SIZE = 64


class Activations:
    """Bytes of a network's activations, from a few small inputs."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone
        self._of_shape = lru_cache(maxsize=256)(self._measured)

    def bytes_per_input(self, shape: Sequence[int]) -> int:
        """What one input of a shape leaves for a gradient; 0 for a shape that does not fit.

        Without a gradient a pass takes less; a third was measured for a ResNet-18.
        """
        return self._of_shape(tuple(shape))

    def _measured(self, shape: tuple[int, ...]) -> int:
        small = (*shape[:1], *(min(size, PROBED_SIZE) for size in shape[1:]))
        for probe in (small, shape):  # a network of a fixed size takes no smaller one
            try:
                kept = self._kept(3, probe) - self._kept(2, probe)  # without what any batch keeps
            except (RuntimeError, ValueError, TypeError):
                continue
            return kept * prod(shape) // prod(probe)
        return 0

    def _kept(self, rows: int, shape: tuple[int, ...]) -> int:
        network, sizes = self._backbone, []

        def note(tensor: Tensor) -> Tensor:
            sizes.append(tensor.nbytes)
            return tensor

        weights = {name: each.detach().requires_grad_() for name, each in network.weights.items()}
        inputs = torch.zeros((rows, *shape), dtype=network.dtype, device=network.device)
        with torch.enable_grad(), saved_tensors_hooks(note, lambda tensor: tensor):
            network.forward(weights, inputs)
        return sum(sizes)
