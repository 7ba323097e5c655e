import pytest
import torch
from torch import nn

from impresslearn.errors import InputError
from impresslearn.networks.layers import MaskableLayer, maskable_layers, masked_forward


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4, bias=False)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight

    def forward(self, inputs):
        return self.second(self.first(inputs))


def test_layer_counts():
    layer = MaskableLayer("conv.weight", (8, 3, 5, 2))
    assert (layer.units, layer.fan_in, layer.numel) == (8, 30, 240)
    assert MaskableLayer("empty.weight", (0, 7)).fan_in == 7


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


def test_a_bare_linear_layer_is_named_weight():
    assert maskable_layers(nn.Linear(3, 2)) == (MaskableLayer("weight", (2, 3)),)


def test_tied_weights_are_listed_once_and_replaced_everywhere():
    module = Tied()
    assert [layer.name for layer in maskable_layers(module)] == ["first.weight"]
    weight, inputs = torch.randn(4, 4), torch.randn(3, 4)
    expected = inputs @ weight.T @ weight.T
    torch.testing.assert_close(masked_forward(module, {"first.weight": weight}, inputs), expected)


def test_skip_leaves_layers_out():
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    assert [layer.name for layer in maskable_layers(module, {"0.weight"})] == ["1.weight"]
    assert [layer.name for layer in maskable_layers(module, "1.weight")] == ["0.weight"]


@pytest.mark.parametrize(
    ("skip", "message"),
    [
        (["0.bias"], "'0.bias', which is no maskable layer; the layers are 0.weight, 1.weight"),
        (["0.weight", "1.weight"], "skip leaves none of the 2"),
    ],
)
def test_a_skip_that_does_not_fit_is_an_error(skip, message):
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    with pytest.raises(InputError, match=message):
        maskable_layers(module, skip)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.ReLU(), "ReLU has no maskable layer"),
        (nn.LazyLinear(3), "weight is lazy"),
        (nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)), "weight is computed"),
    ],
)
def test_modules_that_cannot_be_masked(module, message):
    with pytest.raises(InputError, match=message) as caught:
        maskable_layers(module)
    assert "\n" not in str(caught.value)


def test_masked_forward_uses_the_tensors_and_restores_the_module():
    module = nn.Linear(4, 3)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    weight = torch.randn(3, 4, requires_grad=True)
    inputs = torch.randn(5, 4)
    outputs = masked_forward(module, {"weight": weight}, inputs)
    torch.testing.assert_close(outputs, inputs @ weight.T + module.bias)
    outputs.sum().backward()
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, inputs.sum(0).expand(3, 4))
    assert module.weight.grad is None
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
