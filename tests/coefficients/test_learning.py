"""Coefficients learned on grids: what is optimised, what it costs, and that it is what is kept."""

import math
from dataclasses import replace

import pytest
import torch

from impresslearn import Recipe
from impresslearn.coefficients.learning import (
    FIRST_GAIN,
    CoefficientTraining,
    laplace_bits,
    trainable_coefficients,
    trainable_numbers,
)
from impresslearn.coefficients.mixing import CoefficientSpec, mixed_weights, uniform_coefficients
from impresslearn.coefficients.quantisation import store_coefficients
from impresslearn.data import as_examples, to_batches
from impresslearn.learner.rounding import rounded
from impresslearn.masks import random_bank
from impresslearn.networks.prediction import TrainingPhase
from impresslearn.state.settings import restored_settings
from impresslearn.training.loop import TaskTraining
from toys import QUICK, blobs, lenet, quick_learner

SPECS = [
    CoefficientSpec(bit_price=1),
    CoefficientSpec("unit", bit_price=1),
    CoefficientSpec("layer", True, True, bit_price=1),
]


def coded(spec, masks=12, gain=2.0):
    backbone = lenet(gain=gain)
    return trainable_coefficients(random_bank(backbone.layers, masks, 0.7), backbone, spec, 3)


def learned(spec):
    backbone, (inputs, labels) = lenet(), blobs()
    bank = random_bank(backbone.layers, 20, 0.7)
    source = to_batches(as_examples((inputs, labels)), (0, 1, 2), "cpu")
    trained = trainable_numbers(backbone, bank, CoefficientTraining(spec, QUICK), len(source), 3)
    TaskTraining(backbone, source, 3, QUICK, TrainingPhase.begin(backbone)).fit(trained)
    with torch.no_grad():
        seen, _ = trained.weights()  # in training: rounded as what is kept
    kept = mixed_weights(bank, backbone.weights, trained.result())
    assert all((seen[name] - kept[name]).norm() < 2e-3 * kept[name].norm() for name in kept)
    return trained.result()


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(("gain", "expected"), [(2.0, FIRST_GAIN), (0.1, 0.1)])
def test_the_start_is_uniform_and_of_a_size_that_learns(spec, gain, expected):
    backbone = lenet(gain=gain)
    trained = coded(spec, gain=gain)
    start = trained.coefficients()
    uniform = uniform_coefficients(backbone.layers, 12, spec)
    for ours, theirs in zip(start.tensors(), uniform.tensors(), strict=True):
        assert ours.shape == theirs.shape
        assert (ours == ours.flatten()[0]).all()
    assert all((scale == 1).all() for scale in start.output_scale or ())
    total = sum((tensor * torch.arange(tensor.numel()).reshape(tensor.shape)).sum()
                for tensor in start.tensors())  # fmt: skip
    (total + trained.bits()).backward()  # gradients pass the rounding, to whole numbers and grids
    assert all(bool(each.grad.isfinite().all()) for each in trained.parameters)
    slope = trained.parameters[0].grad[: start.alpha[0].numel()]  # those of the first layer
    torch.testing.assert_close(slope / slope[-1], torch.linspace(0, 1, len(slope)))
    weights = mixed_weights(random_bank(backbone.layers, 12, 0.7), backbone.weights, start)
    for layer in backbone.layers:
        size = float(weights[layer.name].detach().square().mean().sqrt())
        assert size == pytest.approx(expected * math.sqrt(2 / layer.fan_in), rel=1e-4)


@pytest.mark.parametrize("spec", SPECS)
def test_what_was_learned_is_kept_to_the_last_bit(spec):
    coefficients = learned(spec)
    kept = store_coefficients(coefficients, "coded").restore()
    assert kept.grids == coefficients.grids
    for ours, theirs, grid in zip(kept.tensors(), coefficients.tensors(), kept.grids, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
        levels = (theirs - grid.offset) / grid.step
        torch.testing.assert_close(levels, levels.round(), rtol=0, atol=1e-2)
    again = store_coefficients(kept, "coded")
    assert again == store_coefficients(coefficients, "coded")


@pytest.mark.parametrize("width", [0.05, 0.7, 3.0])
def test_bits_are_those_of_a_laplace_density(width):
    whole = torch.arange(-400, 401, dtype=torch.float64)
    bits = laplace_bits(whole, torch.tensor(width, dtype=torch.float64))
    assert float((2.0**-bits).sum()) == pytest.approx(1)
    assert bits.argmin() == 400
    around = torch.tensor([0.5 - 1e-7, 0.5 + 1e-7], dtype=torch.float64)
    low, high = laplace_bits(around, torch.tensor(width, dtype=torch.float64))
    assert float(low) == pytest.approx(float(high), rel=1e-3)  # where its two forms meet


def test_the_estimate_is_near_the_bytes():
    coefficients = learned(CoefficientSpec("unit", bit_price=0.02))
    stored = store_coefficients(coefficients, "coded")
    bits = sum(
        float(min(laplace_bits((tensor - grid.offset) / grid.step, torch.tensor(w)).sum()
                  for w in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)))
        for tensor, grid in zip(coefficients.tensors(), coefficients.grids, strict=True)
    )  # fmt: skip
    assert len(stored.levels) == pytest.approx(bits / 8, rel=0.15)


def test_a_higher_price_buys_fewer_bytes():
    def size(price):
        learner = quick_learner(precision="coded", bit_price=price, granularity="unit")
        learner.add_random_masks(20).learn_task("a", blobs())
        assert learner.score(blobs(), "a") > 0.9
        return learner.tasks_["a"].bytes

    free, dear = size(0), size(0.3)
    assert dear < 0.7 * free


def test_settings_of_older_files_have_the_default_price():
    plain = quick_learner().settings.plain()
    del plain["bit_price"]
    assert restored_settings(plain)["bit_price"] == 1.0


def test_tasks_learned_as_real_numbers_can_be_coded_afterwards():
    learner = quick_learner(granularity="unit").add_random_masks(10).learn_task("a", blobs())
    (change,) = rounded(learner, "coded", {"a": blobs()}).changes
    assert change.bytes_after < 0.2 * change.bytes_before
    assert change.accuracy_after > change.accuracy_before - 0.05


def test_smoothed_labels_keep_predictions_unsure():
    def surest(smoothing):
        recipe = replace(QUICK, label_smoothing=smoothing)
        learner = quick_learner(granularity="unit", task_recipe=recipe).add_random_masks(10)
        return learner.learn_task("a", blobs()).logits(blobs()[0], "a").softmax(dim=1).max()

    assert surest(0.3) < 0.95 < surest(0)


@pytest.mark.parametrize("masks", [5, 12])
def test_coded_numbers_a_layer_leave_their_common_start(masks):
    """Where they moved slower than their offset, all fell to zero, and the task to chance."""
    for seed in range(6):
        data = blobs(10 + seed, classes=4)
        longer = Recipe(lr=0.02, min_steps=300)
        learner = quick_learner(lenet(4), precision="coded", task_recipe=longer)
        learner.add_random_masks(masks).learn_task("new", data)
        assert learner.score(data, "new") > 0.95
