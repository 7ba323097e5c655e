"""Mixtures of masks against a plain reference, and how they start."""

import pytest
import torch

from impresslearn.coefficients import Coefficients, CoefficientSpec
from impresslearn.coefficients.learning import trainable_numbers
from impresslearn.coefficients.masks import MaskMixture, mix
from impresslearn.errors import InputError
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


SIZES = {"examples": 100, "num_classes": 3, "steps": 300}


@pytest.mark.parametrize("price", [None, 1.0])
@pytest.mark.parametrize("granularity", ["layer", "unit"])
def test_a_new_task_starts_with_equal_coefficients(backbone, granularity, price):
    bank = random_bank(backbone.layers, 4, 0.5)
    spec = CoefficientSpec(granularity, True, price)
    coefficients: Coefficients = trainable_numbers(backbone, bank, spec, **SIZES).result()
    assert coefficients.parts[0] == MaskMixture(granularity == "unit", True)
    for alpha in coefficients.alpha:
        assert (alpha - alpha.flatten()[0]).abs().max() < 1e-6
        assert price or alpha.flatten()[0] == 0.25
    assert all(torch.equal(scale, torch.ones_like(scale)) for scale in coefficients.output_scale)
    assert (coefficients.grids is None) == (price is None)


def test_present_numbers_go_on_where_they_were(backbone):
    bank = random_bank(backbone.layers, 4, 0.5)
    for price in (None, 1.0):
        spec = CoefficientSpec("unit", False, price)
        present = trainable_numbers(backbone, bank, spec, **SIZES).result()
        again = trainable_numbers(backbone, bank, spec, **SIZES, present=present).result()
        for one, two in zip(present.tensors(), again.tensors(), strict=True):
            torch.testing.assert_close(one, two, rtol=2e-3, atol=1e-4)
        other = CoefficientSpec("layer", False, price)
        with pytest.raises(InputError, match="coefficients of another kind"):
            trainable_numbers(backbone, bank, other, **SIZES, present=present)
