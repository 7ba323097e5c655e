"""How much memory a forward pass takes, known before it is run.

A network whose inputs may have any size is a way to ask for any amount of memory: a small body of
pixels becomes hundreds of times as many activations.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from impresslearn.backbones import Backbone


class Activations:
    """Bytes of a network's activations; found on a copy whose tensors have shapes but no memory."""

    def __init__(self, backbone: Backbone) -> None:
        self._shapes = backbone.to("meta")
        self._of_shape = lru_cache(maxsize=256)(self._measured)

    def bytes_per_input(self, shape: Sequence[int]) -> int:
        """What one input of a shape leaves for a gradient; 0 where it cannot be found out.

        Without a gradient a pass takes less; a third was measured for a ResNet-18.
        """
        return self._of_shape(tuple(shape))

    def _measured(self, shape: tuple[int, ...]) -> int:
        try:
            return self._kept(2, shape) - self._kept(1, shape)  # without what any batch keeps
        except (RuntimeError, ValueError, TypeError):  # the real pass will tell why
            return 0

    def _kept(self, rows: int, shape: tuple[int, ...]) -> int:
        network, sizes = self._shapes, []

        def note(tensor: Tensor) -> Tensor:
            sizes.append(tensor.nbytes)
            return tensor

        weights = {name: each.detach().requires_grad_() for name, each in network.weights.items()}
        inputs = torch.empty((rows, *shape), dtype=network.dtype, device="meta")
        with torch.enable_grad(), saved_tensors_hooks(note, lambda tensor: tensor):
            network.forward(weights, inputs)
        return sum(sizes)
