from math import sqrt

import pytest
import torch
from torch import nn

from impresslearn.errors import InputError
from impresslearn.networks.initialisation import fill_weights


def network():
    return nn.Sequential(nn.Conv2d(8, 64, 3, groups=2), nn.Flatten(), nn.Linear(400, 200))


@pytest.mark.parametrize("init", ["kaiming_normal", "signed_constant"])
def test_the_standard_deviation_is_that_of_he(init):
    module = network()
    fill_weights(module, init, seed=3)
    for layer, fan_in in ((module[0], 36), (module[2], 400)):
        std = sqrt(2 / fan_in)
        assert layer.weight.std().item() == pytest.approx(std, rel=0.04)
        assert abs(layer.weight.mean().item()) < 0.06 * std


def test_signed_constant_has_one_level_and_the_signs_of_kaiming_normal():
    normal, signed = network(), network()
    fill_weights(normal, "kaiming_normal", seed=5)
    fill_weights(signed, "signed_constant", seed=5)
    expected = normal[2].weight.sign() * sqrt(2 / 400)
    assert torch.equal(signed[2].weight, expected)
    assert normal[2].weight.unique().numel() > 1000


def test_the_seed_decides_and_the_global_state_does_not():
    modules = [network() for _ in range(3)]
    for index, (module, seed) in enumerate(zip(modules, (7, 7, 8), strict=True)):
        torch.manual_seed(index)
        fill_weights(module, seed=seed)
    first, same, other = (module[2].weight for module in modules)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    fill_weights(modules[0])
    assert torch.equal(torch.rand(1), expected)


def test_biases_stay_and_the_dtype_is_kept():
    module = network().double()
    bias = module[2].bias.clone()
    fill_weights(module)
    assert torch.equal(module[2].bias, bias)
    assert module[2].weight.dtype == torch.float64
    single = network()
    fill_weights(single)
    torch.testing.assert_close(module[2].weight.float(), single[2].weight)


def test_bad_settings():
    with pytest.raises(InputError, match="kaiming_normal or signed_constant, got 'xavier'"):
        fill_weights(network(), "xavier", 0)
    for seed in (-1, 1.5, "0", True, 2**63):
        with pytest.raises(InputError, match="seed must be an integer"):
            fill_weights(network(), "kaiming_normal", seed)
