"""Coefficients learned on grids: what is optimised, what it costs, and that it is what is kept."""

import math
from dataclasses import replace

import pytest
import torch

from impresslearn.coefficients.learning import CoefficientTraining, learn_coefficients
from impresslearn.coefficients.mixing import CoefficientSpec, mixed_weights, uniform_coefficients
from impresslearn.coefficients.parameters import (
    FIRST_GAIN,
    QuantisedCoefficients,
    laplace_bits,
    price_of_bits,
    trainable_coefficients,
)
from impresslearn.coefficients.quantisation import store_coefficients
from impresslearn.data import as_examples, to_batches
from impresslearn.errors import InputError
from impresslearn.learner.loading import load
from impresslearn.learner.rounding import rounded
from impresslearn.masks import disjoint_bank, random_bank
from impresslearn.state.settings import restored_settings
from impresslearn.store.encoding import encode_mask
from toys import QUICK, blobs, lenet, quick_learner

SPECS = [
    CoefficientSpec(bit_price=1),
    CoefficientSpec("unit", bit_price=1),
    CoefficientSpec("layer", True, True, bit_price=1),
]


def coded(spec, masks=12, gain=2.0):
    backbone = lenet(gain=gain)
    return trainable_coefficients(random_bank(backbone.layers, masks, 0.7), backbone.weights, spec)


def learned(spec):
    backbone, (inputs, labels) = lenet(), blobs()
    bank = random_bank(backbone.layers, 20, 0.7)
    source = to_batches(as_examples((inputs, labels)), (0, 1, 2), "cpu")
    return learn_coefficients(backbone, bank, source, 3, CoefficientTraining(spec, QUICK))[0]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(("gain", "expected"), [(2.0, FIRST_GAIN), (0.1, 0.1)])
def test_the_start_is_uniform_and_of_a_size_that_learns(spec, gain, expected):
    backbone = lenet(gain=gain)
    start = coded(spec, gain=gain).coefficients()
    uniform = uniform_coefficients(backbone.layers, 12, spec)
    for ours, theirs in zip(start.tensors(), uniform.tensors(), strict=True):
        assert ours.shape == theirs.shape
        assert (ours == ours.flatten()[0]).all()
    assert all((scale == 1).all() for scale in start.output_scale or ())
    weights = mixed_weights(random_bank(backbone.layers, 12, 0.7), backbone.weights, start)
    for layer in backbone.layers:
        size = float(weights[layer.name].detach().square().mean().sqrt())
        assert size == pytest.approx(expected * math.sqrt(2 / layer.fan_in), rel=1e-4)


def test_disjoint_masks_start_as_the_network_itself():
    backbone = lenet(gain=0.4)
    bank = disjoint_bank(backbone.layers, 30)
    start = trainable_coefficients(
        bank, backbone.weights, CoefficientSpec(bit_price=1)
    ).coefficients()
    for name, weight in mixed_weights(bank, backbone.weights, start).items():
        torch.testing.assert_close(weight.detach(), backbone.weights[name])


@pytest.mark.parametrize("spec", SPECS)
def test_gradients_reach_every_parameter(spec):
    unknown = coded(spec)
    with torch.no_grad():
        unknown.parameters[0].fill_(0.7)
    total = sum(tensor.square().sum() for tensor in unknown.coefficients().tensors())
    (total + unknown.bits()).backward()
    numbers = [p for p in unknown.parameters if p.dim() > 0]
    assert all(bool(p.grad.isfinite().all()) for p in unknown.parameters)
    assert all(bool(p.grad.any()) for p in numbers)


def test_gradients_pass_the_rounding():
    unknown = coded(CoefficientSpec(bit_price=1))
    (alpha, *_) = unknown.coefficients().tensors()
    weights = torch.linspace(-1, 1, alpha.numel())
    (alpha * weights).sum().backward()
    grad = unknown.parameters[0].grad
    torch.testing.assert_close(grad / grad[-1], weights)


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
    assert float(bits[401]) == pytest.approx(
        -math.log2((math.exp(-0.5 / width) - math.exp(-1.5 / width)) / 2)
    )
    assert bits.argmin() == 400


def test_bits_are_smooth_where_their_two_forms_meet():
    width = torch.tensor(0.8, dtype=torch.float64)
    around = torch.tensor([0.5 - 1e-7, 0.5 + 1e-7], dtype=torch.float64, requires_grad=True)
    bits = laplace_bits(around, width)
    bits.sum().backward()
    for low, high in (bits.tolist(), around.grad.tolist()):
        assert low == pytest.approx(high, abs=1e-5)


def test_the_estimate_is_near_the_bytes():
    coefficients = learned(CoefficientSpec("unit", bit_price=0.02))
    stored = store_coefficients(coefficients, "coded")
    bits = sum(
        float(min(laplace_bits((tensor - grid.offset) / grid.step, torch.tensor(w)).sum()
                  for w in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)))
        for tensor, grid in zip(coefficients.tensors(), coefficients.grids, strict=True)
    )  # fmt: skip
    assert len(stored.levels) == pytest.approx(bits / 8, rel=0.15)


def test_bits_are_free_where_no_price_is_asked():
    plain, spec = coded(None), CoefficientSpec(bit_price=0)
    assert price_of_bits(plain, None, 10) == price_of_bits(coded(spec), spec, 10) == 0
    assert not isinstance(plain, QuantisedCoefficients)
    dear = CoefficientSpec(bit_price=3)
    unknown = coded(dear)
    expected = 3 * math.log(2) * unknown.bits() / 50
    torch.testing.assert_close(price_of_bits(unknown, dear, 50), expected)


def test_a_higher_price_buys_fewer_bytes():
    def size(price):
        learner = quick_learner(precision="coded", bit_price=price, granularity="unit")
        learner.add_random_masks(20).learn_task("a", blobs())
        assert learner.score(blobs(), "a") > 0.9
        return learner.tasks_["a"].bytes

    free, dear = size(0), size(0.3)
    assert dear < 0.7 * free


@pytest.mark.parametrize("scales", [False, True])
def test_a_coded_task_survives_its_file(tmp_path, scales):
    learner = quick_learner(
        precision="coded", bit_price=0.1, output_scale=scales, input_scale=scales
    )
    learner.add_random_masks(20).learn_task("a", blobs())
    learner.save(tmp_path / "a.impress")
    with load(tmp_path / "a.impress", progress=False) as again:
        assert (again.precision, again.bit_price) == ("coded", 0.1)
        assert again.tasks_["a"].bytes == learner.tasks_["a"].bytes
        inputs = blobs()[0]
        assert torch.equal(again.logits(inputs, "a"), learner.logits(inputs, "a"))
        assert again.tasks_["a"].history["recipe"]["bit_price"] == 0.1


def test_a_bank_of_disjoint_masks_survives_its_file_as_a_seed(tmp_path):
    backbone = lenet()
    learner = quick_learner(
        backbone, bank=disjoint_bank(backbone.layers, 40), precision="coded", bit_price=0.1
    )
    learner.learn_task("a", blobs()).save(tmp_path / "a.impress")
    with load(tmp_path / "a.impress", progress=False) as again:
        assert torch.equal(again.logits(blobs()[0], "a"), learner.logits(blobs()[0], "a"))
    assert decoded_bits(learner) == 0


def decoded_bits(learner):
    """Masks that would be written bit by bit."""
    rows = [
        encode_mask(learner.bank_.packed(number), learner.backbone.layers)
        for number in range(len(learner.bank_))
    ]
    return sum(row.bits is not None for row in rows)


def test_settings_of_older_files_have_the_default_price():
    plain = quick_learner().settings.plain()
    del plain["bit_price"]
    assert restored_settings(plain)["bit_price"] == 1.0


def test_tasks_learned_as_real_numbers_can_be_coded_afterwards():
    learner = quick_learner(granularity="unit").add_random_masks(10).learn_task("a", blobs())
    result = rounded(learner, "coded", {"a": blobs()})
    (change,) = result.changes
    assert change.bytes_after < 0.2 * change.bytes_before
    assert change.accuracy_after > change.accuracy_before - 0.05


def test_smoothed_labels_keep_predictions_unsure():
    def surest(smoothing):
        recipe = replace(QUICK, label_smoothing=smoothing)
        learner = quick_learner(granularity="unit", task_recipe=recipe).add_random_masks(10)
        return learner.learn_task("a", blobs()).logits(blobs()[0], "a").softmax(dim=1).max()

    assert surest(0.3) < 0.95 < surest(0)


def test_tasks_side_by_side_are_coded_too():
    tasks = {f"t{seed}": blobs(seed) for seed in range(3)}
    learner = quick_learner(precision="coded", bit_price=0.1).add_random_masks(20)
    learner.learn_tasks(tasks, batched=True)
    for name, data in tasks.items():
        assert learner.tasks_.learned(name).coefficients.precision == "coded"
        assert learner.score(data, name) > 0.8


@pytest.mark.parametrize("price", [-1, float("nan"), float("inf"), True, "1"])
def test_prices_that_are_none_are_refused(price):
    with pytest.raises(InputError, match="bit_price must be a number of at least 0"):
        quick_learner(bit_price=price)
