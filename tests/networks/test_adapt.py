"""Any module as a frozen network: what is kept, and what is masked."""

from unittest.mock import Mock

import pytest
import torch
from torch import nn

from impresslearn.networks import adapt

MODES = ("train", "frozen", "eval", "batch")


def network(norm):
    """A convolution and a norm, which has seen inputs of mean 1, dropout and a head."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 4, 3), norm, nn.ReLU(), nn.Dropout(0.5), nn.Flatten())
    module.append(nn.Linear(4 * 6 * 6, 5))
    module(torch.randn(32, 1, 8, 8) * 2 + 1)
    return module


def test_an_error_that_is_not_about_the_inputs_is_the_networks_own(monkeypatch):
    monkeypatch.setattr(nn.Linear, "forward", Mock(side_effect=RuntimeError("no licence")))
    with pytest.raises(RuntimeError, match="licence"):
        adapt(nn.Linear(2, 2), head="shared").forward({}, torch.zeros(1, 2))


def convolutional():
    return network(nn.BatchNorm2d(4, momentum=None))


@pytest.fixture
def images():
    return torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def test_the_users_module_is_left_alone(images):
    module = convolutional()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    backbone = adapt(module)
    backbone.forward({}, images, mode="train")
    assert module.training
    assert all(parameter.requires_grad for parameter in module.parameters())
    assert module[1].momentum is None
    assert module.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert not {p.data_ptr() for p in module.parameters()} & {
        p.data_ptr() for p in backbone.module.parameters()
    }


def test_an_adapted_network_computes_what_the_module_does(images):
    module = convolutional()
    backbone = adapt(module, input_shape=(1, 8, 8), head="shared")
    assert (backbone.num_classes, backbone.norm, backbone.spec) == (5, "shared", None)
    assert backbone.pretrained
    assert [layer.name for layer in backbone.layers] == ["0.weight", "5.weight"]
    assert backbone.num_parameters == sum(p.numel() for p in module.parameters())
    torch.testing.assert_close(backbone.forward(backbone.weights, images), module.eval()(images))


def test_statistics_start_at_those_of_the_module_unless_it_goes_by_the_batch(images):
    module = convolutional()
    assert module[1].running_mean.abs().sum() > 0
    for norm in ("shared", "per_task"):
        statistics = adapt(module, norm=norm).initial_statistics()
        assert list(statistics) == ["1.running_mean", "1.running_var"]
        assert torch.equal(statistics["1.running_mean"], module[1].running_mean)
    backbone = adapt(module, norm="batch")
    assert backbone.initial_statistics() == {}
    module[3].p = 0.0
    torch.testing.assert_close(backbone.forward({}, images), module.train()(images))


@pytest.mark.parametrize("norm", ["shared", "batch", "group"])
def test_instance_norms_do_the_same_in_learning_and_in_prediction(norm, images):
    module = network(nn.InstanceNorm2d(4, track_running_stats=True))
    module[3].p = 0.0
    backbone = adapt(module, norm=norm)
    assert backbone.norm == "none"
    expected = module.eval()(images)
    for mode in MODES:
        torch.testing.assert_close(backbone.forward({}, images, mode=mode), expected)
