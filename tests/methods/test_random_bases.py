"""PRANC and NOLA: a few coefficients over what a seed draws."""

import pytest
import torch

from impresslearn import Recipe
from impresslearn.methods import nola, pranc
from toys import blobs, lenet, pictures, refused, resnet

RECIPE = Recipe(lr=0.03, epochs=0, min_steps=200, batch_size=32)
DATA = blobs()


def learned(method, backbone=None, data=DATA, **settings):
    chosen = {"recipe": RECIPE, "progress": False} | settings
    return method(lenet() if backbone is None else backbone, **chosen).learn_task("a", data)


def weights(method):
    return method._views["a"].weights


@pytest.mark.parametrize(("method", "numbers"), [(pranc, 40), (nola, 2 * 3 * 40)])
def test_a_task_costs_its_coefficients(method, numbers):
    exact = learned(method, bases=40)
    assert exact.score(DATA, "a") > 0.9
    assert exact.tasks_["a"].breakdown["weights"] == 4 * numbers
    coded, more = (learned(method, bases=count, precision="coded") for count in (40, 80))
    assert coded.score(DATA, "a") > 0.9
    assert coded.tasks_["a"].bytes < numbers + 40
    assert coded.tasks_["a"].bytes < more.tasks_["a"].bytes
    finer = learned(method, bases=40, precision="coded", largest=31)
    assert coded.tasks_["a"].bytes < finer.tasks_["a"].bytes < exact.tasks_["a"].bytes
    refused('for precision="coded" alone', method, lenet(), largest=31)
    refused("from 1 to 127, got 128", method, lenet(), precision="coded", largest=128)


@pytest.mark.parametrize("method", [pranc, nola])
def test_the_seed_decides_and_other_tasks_share_what_is_random(method):
    state, backbone = torch.get_rng_state(), lenet()
    before = backbone.fingerprint()
    first, again, other = (learned(method, backbone, bases=20, seed=each) for each in (1, 1, 2))
    again.learn_task("b", DATA)
    for name, weight in weights(first).items():
        assert torch.equal(weight, weights(again)[name])
        assert torch.equal(weight, again._views["b"].weights[name])
        assert not torch.equal(weight, weights(other)[name])
    assert torch.equal(torch.get_rng_state(), state)
    assert backbone.fingerprint() == before


def test_pranc_needs_no_frozen_weights_and_lies_in_the_span():
    few, large = (weights(learned(pranc, lenet(gain=gain), bases=2)) for gain in (1.0, 9.0))
    assert all(torch.equal(few[name], large[name]) for name in few)
    seeds = [{"recipe": Recipe(lr=lr, epochs=0, min_steps=9)} for lr in (0.01, 0.02, 0.03)]
    found = [
        torch.cat([each.flatten() for each in weights(learned(pranc, bases=2, **change)).values()])
        for change in seeds
    ]
    assert torch.linalg.matrix_rank(torch.stack(found), rtol=1e-4) == 2


def test_nola_changes_the_frozen_weights_by_low_rank():
    backbone = lenet()
    method = learned(nola, backbone, bases=8, rank=2)
    for name, weight in weights(method).items():
        assert torch.linalg.matrix_rank(weight - backbone.weights[name], rtol=1e-4) == 2
    idle = Recipe(lr=1e-30, epochs=0, min_steps=1)
    still = learned(nola, backbone, bases=8, recipe=idle)
    for name, weight in weights(still).items():
        assert torch.equal(weight, backbone.weights[name])


@pytest.mark.parametrize("method", [pranc, nola])
def test_convolutions_and_heads_of_their_own(method):
    images = pictures()
    found = learned(method, resnet("per_task"), images, bases=50)
    assert found.score(images, "a") > 0.8
    assert found.tasks_["a"].breakdown["statistics"] > 0


def test_bad_settings_are_named():
    refused("bases must be an integer of at least 1, got 0", pranc, lenet(), bases=0)
    refused("rank must be an integer of at least 1, got 0", nola, lenet(), rank=0)
    refused("seed must be an integer", pranc, lenet(), seed="a")
    refused("take at most 3033168", pranc, lenet(), bases=10**8)
    refused("precision must be one of float32", nola, lenet(), precision="int3")
