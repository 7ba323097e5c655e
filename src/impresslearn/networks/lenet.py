"""LeNet-300-100: the fully connected network of the digit experiments (LeCun et al., 1998).

266,200 weights in three maskable layers and nothing else: no biases, no norm.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

from torch import Tensor, nn

from impresslearn.errors import InputError
from impresslearn.validation import check_integer


class LeNet(nn.Sequential):
    """Linear layers and ReLU in turn, over inputs (n, ...) that are flattened."""

    @property
    def input_shape(self) -> tuple[int]:
        """(values an input,)."""
        return (cast(nn.Linear, self[0]).in_features,)

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, ...) with as many values an input as the first layer takes -> logits (n, classes)."""
        return super().forward(inputs.flatten(1))


def lenet_300_100(
    num_classes: int, *, in_features: int = 784, widths: Sequence[int] = (300, 100)
) -> LeNet:
    """LeNet with the given hidden widths. Raises InputError for sizes that are no counts."""
    if not isinstance(widths, Sequence) or isinstance(widths, str):
        raise InputError(f"widths must be a sequence of hidden widths, got {widths!r}")
    hidden = [check_integer("widths", width, 1) for width in widths]
    sizes = [check_integer("in_features", in_features, 1), *hidden, num_classes]
    steps: list[nn.Module] = []
    for fan_in, units in pairwise(sizes):
        steps += [nn.Linear(fan_in, units, bias=False), nn.ReLU()]
    return LeNet(*steps[:-1])
