"""The networks that come with the library and their norm policies."""

import pytest
import torch
from torch import nn

from impresslearn.networks import create_backbone, norms, register_backbone, registry
from impresslearn.networks.architectures import lenet_300_100, resnet20
from toys import resnet


def test_lenet_computes_three_products_with_relu_between():
    module = lenet_300_100(3, in_features=12, widths=[5, 4])
    inputs = torch.randn(6, 3, 4)
    first, second, third = module.parameters()
    hidden = torch.relu(torch.relu(inputs.flatten(1) @ first.T) @ second.T)
    torch.testing.assert_close(module(inputs), hidden @ third.T)
    assert [*map(type, lenet_300_100(3, in_features=4, widths=()))] == [nn.Linear]


def test_shortcuts_take_every_second_pixel_and_pad_channels():
    torch.manual_seed(0)
    module = resnet20(3, width=4, depth=5)
    assert len(module.layer1) == len(module.layer2) == len(module.layer3) == 5
    for values in module.state_dict().values():
        if values.ndim == 1:
            values.copy_(0.5 + torch.rand(len(values)))
    module.eval()
    block, maps = module.layer2[0], torch.randn(2, 4, 6, 6).relu()
    torch.nn.init.zeros_(block.bn2.weight)
    torch.nn.init.zeros_(block.bn2.bias)
    zeros = torch.zeros(2, 2, 3, 3)
    assert torch.equal(block(maps), torch.cat([zeros, maps[:, :, ::2, ::2], zeros], dim=1))
    first = module.layer1[0]
    inner = first.bn2(first.conv2(torch.relu(first.bn1(first.conv1(maps)))))
    torch.testing.assert_close(first(maps), torch.relu(inner + maps))


@pytest.mark.parametrize(
    ("channels", "groups"), [(512, 32), (64, 16), (48, 12), (33, 3), (37, 1), (7, 1), (1, 1)]
)
def test_group_norm_takes_the_largest_divisor_that_leaves_four_channels(channels, groups):
    norm = norms.make_norm(channels, "group")
    assert norm.num_groups == groups
    assert not list(norm.parameters())


def test_a_new_policy_is_one_entry(monkeypatch):
    layer_norm = (lambda channels: nn.GroupNorm(1, channels), None)
    monkeypatch.setitem(norms.POLICIES, "layer", layer_norm)
    backbone = resnet("layer")
    assert backbone.norm == "layer"
    assert isinstance(backbone.module.stem[1], nn.GroupNorm)
    assert not backbone.has_statistics


def test_batch_norms_of_ones_own_network_come_under_the_policy_asked_for(monkeypatch):
    monkeypatch.setattr(registry, "_builders", dict(registry._builders))

    @register_backbone("tracking")
    def tracking(num_classes):
        return nn.Sequential(nn.Linear(2, 6), nn.BatchNorm1d(6), nn.Linear(6, num_classes))

    for norm, kept in ((None, 2), ("per_task", 2), ("shared", 2), ("batch", 0)):
        backbone = create_backbone("tracking", 3, norm=norm)
        assert backbone.norm == (norm or "per_task")
        assert len(backbone.initial_statistics()) == kept
        assert create_backbone(**backbone.spec).fingerprint() == backbone.fingerprint()
