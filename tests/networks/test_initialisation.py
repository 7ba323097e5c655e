"""Random weights: their distribution, and that every machine draws the same."""

import hashlib
from math import sqrt

import pytest
import torch
from torch import nn

from impresslearn.networks import create_backbone
from impresslearn.networks.registry import fill_weights, standard_normals


def network():
    return nn.Sequential(nn.Conv2d(8, 64, 3, groups=2), nn.Flatten(), nn.Linear(400, 200))


@pytest.mark.parametrize("gain", [1, 2.5])
def test_the_standard_deviation_is_that_of_he_times_the_gain(gain):
    normal, signed = network(), network()
    fill_weights(normal, "kaiming_normal", 3, gain, 2)
    fill_weights(signed, "signed_constant", 3, gain, 2)
    for place, fan_in in ((0, 36), (2, 400)):
        std, weight = gain * sqrt(2 / fan_in), normal[place].weight
        assert weight.std().item() == pytest.approx(std, rel=0.04)
        assert abs(weight.mean().item()) < 0.06 * std
        assert torch.equal(signed[place].weight, weight.sign() * std)
    for init, default in (("kaiming_normal", 1), ("signed_constant", 2)):
        one, other = create_backbone(init=init), create_backbone(init=init, gain=default)
        assert one.fingerprint() == other.fingerprint()


def test_the_seed_decides_and_neither_the_global_state_nor_the_dtype_does():
    weights = []
    for state, dtype in ((0, None), (1, torch.float64)):
        torch.manual_seed(state)
        module = network().to(dtype)
        bias, before = module[2].bias.clone(), torch.get_rng_state()
        fill_weights(module, "signed_constant", 7, 2.0, 2)
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.equal(module[2].bias, bias)
        weights.append(module[2].weight.float())
    torch.testing.assert_close(*weights)


@pytest.mark.parametrize(
    ("count", "seed", "place", "expected"),
    [
        (7, 0, 0, "afa755cb02f52270e923e74f92e299a5"),
        (100_003, 7, 3, "dfee776619579d2d23d568ec133ba9e2"),
        (100_003, 2**63 - 1, 0, "5578eb67aafe9ef78e1da282df9ee0e0"),
    ],
)
def test_the_numbers_are_those_of_every_other_machine(count, seed, place, expected):
    # hashlib.sha256(standard_normals(count, seed, place).astype("<f4").tobytes()).hexdigest()[:32]
    drawn = standard_normals(count, seed, place).astype("<f4").tobytes()
    assert hashlib.sha256(drawn).hexdigest()[:32] == expected


def test_the_networks_are_those_of_every_other_machine():
    # create_backbone(...).fingerprint()[:32]
    kaiming = {"seed": 1, "init": "kaiming_normal", "in_features": 20, "widths": (9, 5)}
    small = create_backbone("lenet_300_100", 3, **kaiming)
    assert small.fingerprint()[:32] == "fe42413c3feb575b0ceb87613bc4fa66"
    signed = create_backbone("resnet18", 4, seed=1, init="signed_constant", gain=1, width=2)
    assert signed.fingerprint()[:32] == "40f6367b67664b5cc056ddb5fcbbde88"
    older = create_backbone("lenet_300_100", 3, init_version=1, **kaiming)  # of the oldest records
    assert older.fingerprint()[:32] == "e2ddd758aa2ce602aacb3be16e1b4c25"
