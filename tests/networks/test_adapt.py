"""Any module as a frozen network: what is kept, and which weights masks cover."""

import pytest
import torch
from torch import nn

from impresslearn.networks import adapt
from impresslearn.networks.layers import MaskableLayer, maskable_layers
from models import Columns, Tied


def convolutional():
    """A convolution and a norm, which has seen inputs of mean 1, dropout and a head."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, momentum=None), nn.ReLU())
    module.extend([nn.Dropout(0.5), nn.Flatten(), nn.Linear(4 * 6 * 6, 5)])
    module(torch.randn(32, 1, 8, 8) * 2 + 1)
    return module


@pytest.fixture
def images():
    return torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))


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


def names(module, **chosen):
    return [layer.name for layer in maskable_layers(module, **chosen)]


def test_layers_come_in_module_order_without_biases_norms_and_others():
    module = nn.Sequential(
        nn.Embedding(5, 4),
        nn.Conv1d(4, 6, 3),
        nn.BatchNorm1d(6),
        nn.ConvTranspose1d(6, 6, 3),
        nn.Sequential(nn.Conv2d(6, 4, (3, 5), groups=2), nn.ReLU()),
        nn.Conv3d(4, 2, 1),
        nn.LayerNorm(2),
        nn.Linear(2, 3),
    )
    assert maskable_layers(module) == (
        MaskableLayer("1.weight", (6, 4, 3)),
        MaskableLayer("4.0.weight", (4, 3, 3, 5)),
        MaskableLayer("5.weight", (2, 4, 1, 1, 1)),
        MaskableLayer("7.weight", (3, 2)),
    )
    (alone,) = maskable_layers(nn.Linear(3, 2))
    assert alone == MaskableLayer("weight", (2, 3))
    assert (alone.units, alone.fan_in, alone.numel) == (2, 3, 6)


def test_packed_projections_are_three_layers_and_conv1d_has_its_units_in_columns():
    packed, separate = nn.MultiheadAttention(6, 2), nn.MultiheadAttention(6, 2, kdim=4, vdim=5)
    assert [(layer.name, layer.shape) for layer in maskable_layers(packed)] == [
        *((f"in_proj_weight.{third}", (6, 6)) for third in "qkv"),
        ("out_proj.weight", (6, 6)),
    ]
    assert [(layer.name, layer.shape) for layer in maskable_layers(separate)] == [
        ("q_proj_weight", (6, 6)),
        ("k_proj_weight", (6, 4)),
        ("v_proj_weight", (6, 5)),
        ("out_proj.weight", (6, 6)),
    ]
    first = maskable_layers(Columns())[0]
    assert (first.name, first.shape, first.units, first.fan_in) == ("0.weight", (24, 16), 24, 16)


def test_include_and_skip_by_name_or_pattern():
    pair = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    for chosen in ({"skip": {"0.weight"}}, {"include": ["1*"]}, {"include": "*", "skip": ["0.*"]}):
        assert names(pair, **chosen) == ["1.weight"]
    packed = nn.MultiheadAttention(6, 2)  # a third, or all thirds, of its weight
    assert names(packed, include=["in_proj_weight"]) == [f"in_proj_weight.{t}" for t in "qkv"]
    assert names(packed, skip=["*.k", "out*"]) == ["in_proj_weight.q", "in_proj_weight.v"]


def test_embeddings_and_what_is_tied_to_them_are_masked_only_if_included():
    assert names(Tied()) == ["out.weight"]
    both = ["tokens.weight", "out.weight"]
    assert names(Tied(), include=both[::-1]) == names(Tied(), include=["*"]) == both
