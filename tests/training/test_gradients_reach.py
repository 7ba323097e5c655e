"""Gradients of zero are told of; networks/odd_modules.py has the modules that cut gradients off."""

import pytest
import torch
from torch import nn

import impresslearn as il
from impresslearn.errors import NotLearnedWarning
from toys import FEATURES, Then, blobs, quick_learner


@pytest.mark.parametrize("flat", [torch.sign, torch.round, lambda x: torch.relu(x - 1000)])
@pytest.mark.filterwarnings("ignore:'a' was not learned")
def test_gradients_of_zero_are_told(flat):
    module = nn.Sequential(nn.Linear(FEATURES, 24), Then(flat), nn.Linear(24, 24), nn.Linear(24, 3))
    learner = quick_learner(il.adapt(module)).add_random_masks(3)
    with pytest.warns(NotLearnedWarning, match=r"gradient of 0.weight.* of Sequential is 0 so far"):
        learner.learn_task("a", blobs(1))


@pytest.mark.parametrize("last", [nn.ReLU, nn.ReLU6, nn.Hardtanh, nn.Identity, nn.GELU])
@pytest.mark.parametrize("precision", ["float32", "coded"])
def test_heads_learn_in_front_of_a_function(last, precision):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(FEATURES, 24), nn.ReLU(), nn.Linear(24, 3), last())
    price = {"precision": "coded", "bit_price": 0.01} if precision == "coded" else {}
    learner = quick_learner(il.adapt(module), **price).add_random_masks(3)
    inputs, labels = blobs(1)
    learner.learn_task("a", (inputs[labels < 2], labels[labels < 2]))
    learner.update_task("a", (inputs, labels)).learn_basis("b", (inputs, labels))
    for task in ("a", "b"):
        assert learner.score((inputs, labels), task) > 0.8
