"""A frozen network: its passes change nothing, copies are whole, parts of a batch are even."""

import pytest
import torch
from torch import nn

from impresslearn.data import StreamedExamples, TensorBatches, even_parts
from impresslearn.data.batches import StreamedBatches
from impresslearn.networks import adapt, create_backbone, prediction
from impresslearn.networks.prediction import BATCH, TaskView
from toys import blobs

MODES = ("train", "frozen", "eval", "batch")


class Counting(nn.Module):
    """Writes to buffers of its own on every call, in place and by assignment."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5))
        self.head = nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("last", torch.zeros(3), persistent=False)

    def forward(self, images):
        self.calls += 1
        logits = self.head(self.body(images).mean((2, 3)))
        self.last = logits.detach().mean(0)
        return logits


def tensors_of(module):
    return dict(module.named_parameters()) | dict(module.named_buffers())


@pytest.fixture
def images():
    return torch.randn(6, 2, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("norm", ["batch", "per_task", "shared"])
@pytest.mark.parametrize("mode", MODES)
def test_no_tensor_of_the_module_changes_in_any_mode(norm, mode, images):
    backbone = adapt(Counting(), norm=norm)
    training = [module.training for module in backbone.module.modules()]
    before = {n: (tensor, tensor.clone()) for n, tensor in tensors_of(backbone.module).items()}
    for _ in range(2):
        backbone.forward(backbone.weights, images, mode=mode)
        if norm != "batch":
            backbone.forward({}, images, backbone.initial_statistics(), mode)
    after = tensors_of(backbone.module)
    assert after.keys() == before.keys()
    for name, (tensor, value) in before.items():
        assert after[name] is tensor
        assert torch.equal(tensor, value)
    assert [module.training for module in backbone.module.modules()] == training
    assert not any(parameter.requires_grad for parameter in backbone.module.parameters())
    for name, weight in backbone.weights.items():
        assert weight.data_ptr() == after[name].data_ptr()


@pytest.mark.parametrize("mode", MODES)
def test_features_are_what_enters_the_head(mode, images):
    flat = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 3))
    for backbone, inputs in (
        (adapt(flat, norm="per_task", head="shared"), images),
        (adapt(nn.Linear(5, 3), head="shared"), torch.randn(4, 5)),
        (create_backbone("resnet18", 3, width=2, norm="per_task"), torch.randn(2, 3, 16, 16)),
        (create_backbone(num_classes=3, in_features=128), images),
        (adapt(flat, norm="per_task"), images),
    ):
        own = {name: weight / 2 for name, weight in backbone.weights.items()}
        task, twin = backbone.initial_statistics(), backbone.initial_statistics()
        found = backbone.features(own, inputs, task, mode)
        last = backbone.own_head or backbone.layers[-1]
        head = own.get(last.name, backbone.module.get_parameter(last.name)).flatten(1)
        bias = getattr(list(backbone.module.modules())[-1], "bias", None)
        logits = backbone.forward(own, inputs, twin, mode)
        torch.testing.assert_close(
            nn.functional.linear(found, head, bias), logits, rtol=1e-4, atol=1e-4
        )
        assert all(torch.equal(task[name], twin[name]) for name in task)
    gradient = torch.rand(5, 784, requires_grad=True)
    small = create_backbone(num_classes=3, widths=(5,))
    small.features({"0.weight": gradient}, torch.rand(2, 784)).sum().backward()
    assert gradient.grad.abs().sum() > 0


@pytest.mark.parametrize("depth", [1, 2])
def test_a_layer_of_two_names_keeps_no_weights_of_a_pass(depth):
    inputs, layer = torch.randn(4, 5), nn.Sequential(*[nn.Linear(5, 5) for _ in range(depth)])
    backbone = adapt(nn.Sequential(layer, nn.Tanh(), layer, nn.Linear(5, 3)))
    frozen = backbone.forward({}, inputs)
    changed = backbone.forward({"0.0.weight": torch.zeros(5, 5)}, inputs)
    assert not torch.equal(changed, frozen)
    assert torch.equal(backbone.forward({}, inputs), frozen)


def test_statistics_are_a_task_s_own_and_updated_in_training_only(images):
    backbone = adapt(Counting(), norm="per_task")
    first, second = backbone.initial_statistics(), backbone.initial_statistics()
    mean = first["body.1.running_mean"]
    backbone.forward({}, images, first, "train")
    maps = backbone.module.body[0](images)
    torch.testing.assert_close(mean, 0.1 * maps.mean((0, 2, 3)))
    plain = backbone.forward({}, images)
    assert not torch.allclose(backbone.forward({}, images, first), plain)
    assert torch.equal(backbone.forward({}, images, second), plain)
    for mode in ("frozen", "eval", "batch"):
        kept = {name: value.clone() for name, value in first.items()}
        backbone.forward({}, images, first, mode)
        assert all(torch.equal(first[name], kept[name]) for name in kept)


@pytest.mark.parametrize(("mode", "random"), [*zip(MODES, (True, True, False, False), strict=True)])
def test_dropout_is_on_in_train_and_frozen(mode, random, images):
    encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
    flat = nn.Sequential(encoder, nn.Flatten(), nn.Linear(16 * 8, 2))
    for backbone, inputs in ((adapt(Counting()), images), (adapt(flat), images.view(6, 16, 8))):
        first, second = (backbone.forward({}, inputs, mode=mode) for _ in range(2))
        assert torch.equal(first, second) != random


def test_the_fingerprint_sees_every_tensor():
    def shift(module):
        module.blocks[0].norm1.running_mean += 1

    prints = []
    for change in (lambda module: None, shift, lambda module: module.double()):
        backbone = create_backbone("resnet18", 2, width=2, norm="per_task")
        change(backbone.module)
        prints.append(backbone.fingerprint())
    assert len(set(prints)) == len(prints)
    assert create_backbone("resnet18", 2, width=2, norm="per_task").fingerprint() == prints[0]


class Streamed(torch.utils.data.TensorDataset):
    """Examples that are read one at a time."""

    def batches(self):
        examples = StreamedExamples(self, self.tensors[1].numpy())
        return StreamedBatches(examples, range(3), torch.device("cpu"))


@pytest.mark.parametrize(
    ("rows", "batch_size"), [(9, 8), (10, 8), (3, 2), (7, 3), (8, 8), (2049, BATCH)]
)
def test_statistics_of_the_batch_are_never_those_of_a_remainder(rows, batch_size, monkeypatch):
    """The last part is as large as the others, up to one, and `accuracy` sees the same parts."""
    net = nn.Sequential(nn.Linear(16, 5), nn.BatchNorm1d(5, affine=False), nn.Linear(5, 3))
    backbone = adapt(net, norm="batch")
    inputs = blobs(count=rows)[0]
    view = TaskView(backbone.weights, None, 3)
    monkeypatch.setattr(prediction, "BATCH", batch_size)
    logits = view.logits(backbone, inputs)
    sizes = even_parts(rows, batch_size)
    assert min(sizes) >= max(2, max(sizes) - 1)
    expected = [backbone.forward({}, part) for part in inputs.split(sizes)]
    torch.testing.assert_close(logits, torch.cat(expected))
    targets = logits.argmax(dim=1)
    for source in (TensorBatches(inputs, targets), Streamed(inputs, targets).batches()):
        assert view.accuracy(backbone, source) == 1
