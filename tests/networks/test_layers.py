"""Which weights of a module masks cover."""

import pytest
from torch import nn
from torch.nn.utils import prune

from impresslearn.errors import InputError
from impresslearn.networks.layers import MaskableLayer, maskable_layers


def pair():
    return nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))


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


def test_skip_leaves_layers_out():
    assert [layer.name for layer in maskable_layers(pair(), {"0.weight"})] == ["1.weight"]
    assert [layer.name for layer in maskable_layers(pair(), "1.weight")] == ["0.weight"]


@pytest.mark.parametrize(
    ("module", "skip", "message"),
    [
        (pair(), ["0.bias"], "'0.bias', which is no maskable layer; the layers are 0.weight, 1.w"),
        (pair(), ["0.weight", "1.weight"], "skip leaves none of the 2"),
        (nn.ReLU(), (), "ReLU has no maskable layer"),
        (nn.LazyLinear(3), (), "weight is lazy"),
        (nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)), (), "weight is computed"),
        (prune.identity(nn.Linear(3, 2), "weight"), (), "weight is computed"),
    ],
)
def test_what_cannot_be_masked_is_one_line(module, skip, message):
    with pytest.raises(InputError, match=message) as caught:
        maskable_layers(module, skip)
    assert "\n" not in str(caught.value)
