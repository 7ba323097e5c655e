"""Readouts fitted within a number of bits."""

import torch

from impresslearn.coefficients.coding import coded_bits
from impresslearn.coefficients.readout import Projection, ReadoutFit


def examples(count: int = 300, features: int = 96, classes: int = 4):
    """Classes that differ by a little in every feature."""
    generator = torch.Generator().manual_seed(0)
    centres = 0.4 * torch.randn(classes, features, generator=generator)
    targets = torch.arange(count) % classes
    return centres[targets] + torch.randn(count, features, generator=generator), targets


def test_codes_keep_within_their_bits_and_few_bits_take_few_components():
    features, targets = examples()
    projection = Projection.of(features, 96, 0, True)
    fit, sizes = ReadoutFit(features, targets, 4, projection=projection, bias=True), []
    for max_bits in (80, 200, 800):
        (weights, _), (grid, _) = fit.rounded(1e-6, max_bits)
        levels = torch.round(weights / grid.step).long().numpy()
        assert coded_bits(levels) <= max_bits
        sizes.append(len(weights))
    assert sizes[0] < 96
    assert sizes == sorted(sizes)
