"""Mixtures of masks against a plain reference."""

import pytest
import torch

from impresslearn.coefficients.masks import mix
from impresslearn.masks import random_bank
from toys import lenet, resnet


@pytest.fixture(params=[lenet, lambda: resnet("group")], ids=["linear", "convolutions"])
def backbone(request):
    return request.param()


def reference(bank, backbone, alphas, scales, residual):
    mixed = {}
    for number, layer in enumerate(bank.layers):
        frozen = backbone.weights[layer.name]
        by_unit = (-1, *[1] * (frozen.dim() - 1))
        total = torch.full_like(frozen, float(residual))
        for name, alpha in zip(bank.names, alphas[number], strict=False):
            total += alpha.reshape(by_unit) * bank.mask(name)[layer.name].float()
        scale = torch.ones(1) if scales is None else scales[number]
        mixed[layer.name] = frozen * total * scale.reshape(by_unit)
    return mixed


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("per_unit", [False, True])
def test_weights_are_those_of_the_formula(backbone, per_unit, scaled, residual):
    bank = random_bank(backbone.layers, 5, 0.5)
    generator = torch.Generator().manual_seed(0)
    shapes = [(4, layer.units) if per_unit else (4,) for layer in bank.layers]
    alphas = [torch.randn(shape, generator=generator) for shape in shapes]
    drawn = [torch.rand(layer.units, generator=generator) for layer in bank.layers]
    scales = drawn if scaled else None
    mixed = mix(bank, backbone.weights, alphas, scales, residual)
    wanted = reference(bank, backbone, alphas, scales, residual)
    for name, weight in mixed.items():
        torch.testing.assert_close(weight, wanted[name], rtol=1e-4, atol=1e-5)
