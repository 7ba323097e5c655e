"""A small network and a task for it."""

import pytest
import torch

from impresslearn.networks import create_backbone


@pytest.fixture
def backbone():
    return create_backbone("lenet_300_100", num_classes=2, seed=0, in_features=10, widths=[24])


@pytest.fixture
def clouds():
    """Two well separated clouds of points, and their names."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(128) % 2
    centre = torch.randn(10, generator=generator)
    inputs = torch.randn(128, 10, generator=generator) + 1.5 * centre * (2 * targets[:, None] - 1)
    return inputs, ["left" if target else "right" for target in targets]
