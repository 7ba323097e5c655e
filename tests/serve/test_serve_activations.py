"""What a forward pass takes is known before it is run."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from impresslearn import Backbone, adapt
from impresslearn.serve.activations import Activations
from toys import ConvNet, lenet, resnet


@pytest.mark.parametrize(
    ("backbone", "shape"),
    [(lenet(), (16,)), (adapt(ConvNet()), (3, 16, 16)), (resnet("per_task"), (3, 16, 16))],
    ids=["lenet", "convnet", "resnet"],
)
def test_the_estimate_holds_what_autograd_keeps(backbone: Backbone, shape: tuple[int, ...]):
    def kept(rows: int) -> int:
        """The same on real tensors, where each can be counted once."""
        storages = {}

        def note(tensor: torch.Tensor) -> torch.Tensor:
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
            return tensor

        weights = {name: each.clone().requires_grad_() for name, each in backbone.weights.items()}
        with torch.autograd.graph.saved_tensors_hooks(note, lambda each: each):
            logits = backbone.forward(weights, torch.randn(rows, *shape))
        assert logits.requires_grad
        return sum(each.nbytes() for each in storages.values())

    real = kept(5) - kept(4)
    assert real <= Activations(backbone).bytes_per_input(shape) <= 2 * real


def test_larger_pictures_take_more():
    activations = Activations(resnet("batch"))
    small, large = (activations.bytes_per_input((3, size, size)) for size in (32, 2048))
    assert 4000 * small < large < 4200 * small


def test_a_network_of_one_size_is_measured_at_that_size():
    class Fixed(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(nn.Conv2d(3, 2, 1), nn.Flatten(), nn.Linear(2 * 80 * 80, 3))

    found = Activations(adapt(Fixed())).bytes_per_input((3, 80, 80))
    assert 4 * 5 * 80 * 80 <= found <= 8 * 5 * 80 * 80
    assert Activations(adapt(Fixed())).bytes_per_input((3, 81, 80)) == 0
