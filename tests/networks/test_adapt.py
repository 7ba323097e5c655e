"""Any module as a frozen network: what is kept, what is masked, what is refused."""

import pytest
import torch
from torch import nn

from impresslearn.errors import InputError
from impresslearn.networks import adapt, create_backbone

MODES = ("train", "frozen", "eval", "batch")


class Encoder(nn.Module):
    """A transformer encoder layer over (n, length, 8), averaged, with a linear head."""

    def __init__(self, classes=3):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
        self.head = nn.Linear(8, classes)

    def forward(self, inputs):
        return self.head(self.layer(inputs).mean(1))


class Pair(nn.Linear):
    def forward(self, inputs):
        return super().forward(inputs), None


class Broken(nn.Linear):
    def forward(self, inputs):
        raise RuntimeError("the licence has run out")


def network(norm, trained=True):
    """A convolution and a norm, which has seen inputs of mean 1 or none, dropout and a head."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 4, 3), norm, nn.ReLU(), nn.Dropout(0.5), nn.Flatten())
    module.append(nn.Linear(4 * 6 * 6, 5))
    if trained:
        module(torch.randn(32, 1, 8, 8) * 2 + 1)
    return module


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


def test_tied_weights_are_masked_together():
    module = nn.Sequential(*(nn.Linear(6, size, bias=False) for size in (6, 6, 2)))
    module[1].weight = module[0].weight
    backbone = adapt(module, head="shared")
    assert [layer.name for layer in backbone.layers] == ["0.weight", "2.weight"]
    weight, inputs = torch.randn(6, 6), torch.randn(4, 6)
    expected = module[2](inputs @ weight.T @ weight.T)
    torch.testing.assert_close(backbone.forward({"0.weight": weight}, inputs), expected)


@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Linear(4, 2), (3, 5)),
        (convolutional(), (2, 1, 9, 9)),
        (convolutional(), (2, 1, 2, 2)),
        (Encoder(), (2, 7, 9)),
        (nn.Sequential(nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 2)), (2, 8)),
    ],
)
def test_unsuitable_inputs_are_one_line(module, shape, mode):
    with pytest.raises(InputError, match=r"cannot take torch.float32 inputs of") as caught:
        adapt(module, head="shared").forward({}, torch.zeros(shape), mode=mode)
    assert "\n" not in str(caught.value)
    with pytest.raises(RuntimeError, match="licence"):  # what is not about the inputs
        adapt(Broken(2, 2), head="shared").forward({}, torch.zeros(1, 2))


def linked():
    module = nn.Linear(2, 2)
    module.extra = module.weight * 2
    return module


def filled(value):
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    nn.init.constant_(module[0].bias, value)
    return module


@pytest.mark.parametrize(
    ("module", "settings", "message"),
    [
        (filled(float("nan")), {}, r"^0\.bias of Sequential holds NaN or infinite values$"),
        (filled(float("-inf")), {"head": "own"}, r"^0\.bias of Sequential holds NaN"),
        (Pair(2, 2), {}, r"must return logits \(1, 2\), returned tuple"),
        (nn.Linear(2, 2), {"num_classes": 9}, r"returned \(1, 2\); adapt it with num_classes=2"),
        (create_backbone(), {}, "adapt takes an nn.Module, .*got Backbone"),
        (convolutional(), {"norm": "group"}, "batch norm cannot be brought under norm 'group'"),
        (convolutional(), {"norm": "layer"}, "norm of a backbone must be"),
        (convolutional(), {"skip": ["9.weight"]}, "skip names no maskable layer: '9.weight'"),
        (nn.BatchNorm1d(3), {}, "no maskable layer"),
        (linked(), {}, "Linear cannot be copied"),
        (Encoder(), {"head": "own", "num_classes": 9}, '^num_classes = 9 needs head="shared"'),
        (
            network(nn.LazyBatchNorm2d(), trained=False),
            {},
            r"^1\.weight is lazy .*; run the module on a batch once$",
        ),
    ],
)
def test_what_cannot_be_adapted(module, settings, message):
    with pytest.raises(InputError, match=message):
        adapt(module, **{"head": "shared"} | settings).forward({}, torch.zeros(1, 2))


@pytest.mark.parametrize("norm", ["shared", "batch", "group"])
def test_instance_norms_do_the_same_in_learning_and_in_prediction(norm, images):
    module = network(nn.InstanceNorm2d(4, track_running_stats=True))
    module[3].p = 0.0
    backbone = adapt(module, norm=norm)
    assert backbone.norm == "none"
    expected = module.eval()(images)
    for mode in MODES:
        torch.testing.assert_close(backbone.forward({}, images, mode=mode), expected)
