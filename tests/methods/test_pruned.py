"""A pruned network a task: how many weights are left, of how many values, in how many bytes."""

import pytest
import torch

import impresslearn as il
from impresslearn.masks.sparsity import ones_per_layer
from impresslearn.methods import FineTuning, pruned
from toys import QUICK, blobs, lenet, pictures, refused, resnet

DATA = blobs()
RECIPE = il.Recipe(lr=0.01, epochs=0, min_steps=200, batch_size=32)


def learned(backbone=None, data=DATA, **settings):
    network = lenet(init="kaiming_normal", gain=1.0) if backbone is None else backbone
    return pruned(network, **{"recipe": RECIPE, "progress": False} | settings).learn_task("a", data)


@pytest.mark.parametrize("allocation", ["uniform", "erdos_renyi"])
@pytest.mark.parametrize("sparsity", [0.0, 0.8])
def test_what_is_left_is_few_multiples_of_a_step(sparsity, allocation):
    method = learned(sparsity=sparsity, allocation=allocation, largest=2)
    assert method.score(DATA, "a") > 0.9
    ones = ones_per_layer(method.backbone.layers, sparsity, allocation)
    for weight, count in zip(method._views["a"].weights.values(), ones, strict=True):
        assert torch.count_nonzero(weight) <= count
        assert weight.unique().numel() <= 2 * 2 + 1
        step = weight[weight != 0].abs().min()
        assert ((weight / step).abs() < 2.001).all()


def test_bytes_grow_with_what_is_left_and_count_positions():
    sizes = [learned(sparsity=each).tasks_["a"].breakdown["weights"] for each in (0.95, 0.8, 0.5)]
    assert sizes[0] < sizes[1] < sizes[2]
    weights = lenet().num_maskable
    assert sizes[2] < weights * 3.5 / 8 + 60 < weights * 4  # a position, a sign, a size in 3.5 bits
    few, many = (learned(largest=each).tasks_["a"].bytes for each in (1, 30))
    assert few < many


def test_the_last_weights_are_those_of_greatest_magnitude():
    method = learned(sparsity=0.8, largest=100, allocation="uniform")
    free = FineTuning(method.backbone, recipe=RECIPE, progress=False).learn_task("a", DATA)
    kept = method._views["a"].weights
    for name, weight in free._views["a"].weights.items():
        mask = kept[name] != 0
        assert weight[mask].abs().mean() > 1.3 * weight[~mask].abs().mean()


def test_runs_repeat_and_leave_the_network_alone():
    backbone = lenet()
    before = backbone.fingerprint()
    first, again, other = (learned(backbone, seed=seed) for seed in (1, 1, 2))
    views = [each._views["a"].weights["0.weight"] for each in (first, again, other)]
    assert torch.equal(views[0], views[1])
    assert not torch.equal(views[0], views[2])
    assert backbone.fingerprint() == before


def test_convolutions_and_very_short_runs():
    images = pictures()
    recipe = il.Recipe(lr=0.003, epochs=0, min_steps=100)
    method = learned(resnet("per_task"), images, sparsity=0.8, recipe=recipe)
    assert method.score(images, "a") > 0.9
    short = learned(recipe=il.Recipe(epochs=0, min_steps=1), sparsity=0.9)
    left = sum(int(torch.count_nonzero(each)) for each in short._views["a"].weights.values())
    assert left <= round(0.1 * short.backbone.num_maskable)


def test_bad_settings_are_named():
    refused(r"sparsity is the fraction .* did you mean 0.95\?", learned, sparsity=95)
    refused("allocation must be one of", learned, allocation="global")
    refused("largest must be an integer from 1 to 127, got 0", learned, largest=0)
    learned(recipe=QUICK)
