import copy
import pickle
import threading

import pytest
import torch
from torch import nn

from impresslearn.errors import InputError
from impresslearn.networks import Backbone, adapt, create_backbone

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


def tensors_of(backbone):
    module = backbone.module
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


@pytest.fixture
def images():
    return torch.randn(6, 2, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("norm", ["batch", "per_task", "shared"])
@pytest.mark.parametrize("mode", MODES)
def test_no_tensor_of_the_module_changes_in_any_mode(norm, mode, images):
    backbone = adapt(Counting(), norm=norm)
    training = [module.training for module in backbone.module.modules()]
    before = {name: (tensor, tensor.clone()) for name, tensor in tensors_of(backbone).items()}
    for _ in range(2):
        backbone.forward(backbone.weights, images, mode=mode)
        if norm != "batch":
            backbone.forward({}, images, backbone.initial_statistics(), mode)
    after = tensors_of(backbone)
    assert after.keys() == before.keys()
    for name, (tensor, value) in before.items():
        assert after[name] is tensor
        assert torch.equal(tensor, value)
    assert [module.training for module in backbone.module.modules()] == training


def test_views_share_every_tensor(images):
    backbone = adapt(Counting(), norm="per_task")
    for mode in MODES:
        backbone.forward({}, images, mode=mode)
        view = backbone._view(mode)
        assert view is backbone._view(mode)
        assert view is not backbone.module
        own = tensors_of(backbone)
        shared = {**dict(view.named_parameters()), **dict(view.named_buffers())}
        assert len(shared) == len(own) - (2 if mode == "batch" else 0)
        assert all(tensor is own[name] for name, tensor in shared.items())


def test_parameters_are_frozen_and_weights_share_their_memory():
    backbone = create_backbone("resnet18", 3, width=4)
    assert not any(parameter.requires_grad for parameter in backbone.module.parameters())
    assert list(backbone.weights) == [layer.name for layer in backbone.layers]
    for name, weight in backbone.weights.items():
        assert weight.data_ptr() == backbone.module.get_parameter(name).data_ptr()
    assert backbone.device == torch.device("cpu")


def test_forward_uses_the_given_weights_and_gradients_reach_them():
    backbone = create_backbone("lenet_300_100", 3, in_features=6, widths=(5, 4))
    mask = torch.rand(5, 6, requires_grad=True)
    masked = {"0.weight": backbone.weights["0.weight"] * mask}
    inputs = torch.randn(7, 2, 3)
    plain = backbone.module(inputs)
    torch.testing.assert_close(backbone.forward({}, inputs), plain)
    torch.testing.assert_close(backbone.forward(backbone.weights, inputs), plain)
    logits = backbone.forward(masked, inputs)
    hidden = torch.relu(inputs.flatten(1) @ masked["0.weight"].T)
    torch.testing.assert_close(logits, backbone.module[1:](hidden))
    logits.sum().backward()
    assert mask.grad.abs().sum() > 0


def test_statistics_are_updated_in_place_in_training_only(images):
    backbone = adapt(Counting(), norm="per_task")
    first, second = backbone.initial_statistics(), backbone.initial_statistics()
    assert set(first) == {"body.1.running_mean", "body.1.running_var"}
    assert torch.equal(first["body.1.running_var"], torch.ones(4))
    mean = first["body.1.running_mean"]
    backbone.forward({}, images, first, "train")
    maps = backbone.module.body[0](images)
    torch.testing.assert_close(mean, 0.1 * maps.mean((0, 2, 3)))
    assert torch.equal(second["body.1.running_mean"], torch.zeros(4))
    for mode in ("frozen", "eval", "batch"):
        kept = {name: value.clone() for name, value in first.items()}
        backbone.forward({}, images, first, mode)
        assert all(torch.equal(first[name], kept[name]) for name in kept)


def test_each_task_is_normalised_by_its_own_statistics(images):
    backbone = adapt(Counting(), norm="per_task")
    shifted = backbone.initial_statistics()
    shifted["body.1.running_mean"] += 5
    plain = backbone.forward({}, images)
    assert not torch.allclose(backbone.forward({}, images, shifted), plain)
    assert torch.equal(
        backbone.forward({}, images, shifted, "batch"), backbone.forward({}, images, mode="batch")
    )
    assert torch.equal(backbone.forward({}, images, backbone.initial_statistics()), plain)


def test_batch_mode_depends_on_the_batch_and_eval_does_not(images):
    backbone = adapt(Counting(), norm="shared")
    for mode, same in (("eval", True), ("batch", False)):
        whole = backbone.forward({}, images, mode=mode)[:3]
        part = backbone.forward({}, images[:3], mode=mode)
        assert torch.allclose(whole, part, atol=1e-6) == same
    batch = adapt(Counting(), norm="batch")
    logits = batch.forward(backbone.weights, images, mode="eval")
    assert torch.equal(logits, batch.forward(backbone.weights, images, mode="batch"))
    assert not batch.has_statistics


@pytest.mark.parametrize(("mode", "random"), [*zip(MODES, (True, True, False, False), strict=True)])
def test_dropout_is_on_in_train_and_frozen(mode, random, images):
    backbone = adapt(Counting())
    weights = {name: weight.clone() for name, weight in backbone.weights.items()}
    torch.manual_seed(0)
    first, second = (backbone.forward(weights, images, mode=mode) for _ in range(2))
    assert torch.equal(first, second) != random
    assert all(torch.equal(weights[name], own) for name, own in backbone.weights.items())


def test_threads_give_the_serial_results_bit_for_bit(images):
    backbone = adapt(Counting(), norm="per_task")
    tasks = [
        {name: weight * (index + 1) for name, weight in backbone.weights.items()}
        for index in range(4)
    ]
    modes = ("eval", "batch", "eval", "batch")
    serial = [backbone.forward(w, images, mode=m) for w, m in zip(tasks, modes, strict=True)]
    wrong = []

    def work(index):
        for _ in range(40):
            logits = backbone.forward(tasks[index], images, mode=modes[index])
            if not torch.equal(logits, serial[index]):
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert not torch.equal(serial[0], serial[2])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b))])
def test_copies_are_whole_and_independent(copied):
    backbone = create_backbone("resnet18", 3, width=4, norm="per_task")
    images = torch.randn(2, 3, 8, 8)
    logits = backbone.forward({}, images)
    twin = copied(backbone)
    assert twin.fingerprint() == backbone.fingerprint()
    assert torch.equal(twin.forward({}, images), logits)
    with torch.no_grad():
        twin.module.head.weight.zero_()
    assert twin.weights["head.weight"].abs().sum() == 0
    assert torch.equal(backbone.forward({}, images), logits)


def test_to_returns_a_copy_and_refuses_a_missing_device():
    backbone = create_backbone("lenet_300_100", 3, in_features=4)
    moved = backbone.to("cpu")
    assert moved is not backbone
    assert moved.weights["0.weight"].data_ptr() != backbone.weights["0.weight"].data_ptr()
    assert moved.fingerprint() == backbone.fingerprint()
    assert backbone.to("meta").device.type == "meta"
    assert backbone.device.type == "cpu"
    for device in ("nowhere", "cuda:77"):
        with pytest.raises(InputError, match=f"device {device} cannot be used") as caught:
            backbone.to(device)
        assert "\n" not in str(caught.value)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_backbone_on_the_gpu_agrees_with_the_cpu():
    backbone = create_backbone("resnet18", 3, width=8, norm="per_task")
    moved = backbone.to("cuda")
    images = torch.randn(4, 3, 16, 16)
    assert moved.device.type == "cuda"
    assert moved.fingerprint() == backbone.fingerprint()
    statistics = moved.initial_statistics()
    moved.forward({}, images.cuda(), statistics, "train")
    logits = moved.forward({}, images.cuda(), statistics)
    on_cpu = {name: value.cpu() for name, value in statistics.items()}
    expected = backbone.forward({}, images, on_cpu)
    torch.testing.assert_close(logits.cpu(), expected, atol=2e-2, rtol=2e-2)
    with pytest.raises(InputError, match="same"):
        moved.forward({}, images)


def test_the_fingerprint_sees_every_tensor():
    def prints(change):
        backbone = create_backbone("resnet18", 2, width=2, norm="per_task")
        change(backbone.module)
        return backbone.fingerprint()

    def nudge(module):
        module.head.weight.data[0, 0] += 1e-6

    def shift(module):
        module.blocks[0].norm1.running_mean += 1

    changes = [lambda module: None, nudge, shift, lambda module: module.double()]
    assert len({prints(change) for change in changes}) == len(changes)
    assert prints(lambda module: None) == prints(lambda module: None)
    assert len(prints(nudge)) == 64


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 8, 8), r"expects 784 values an input, got shape \(8, 8\) = 64$"),
        ((28, 28), r"got shape \(28,\) = 28; add a batch dimension"),
        ((), "expects a batch of inputs as a tensor, got a single number"),
    ],
)
def test_inputs_that_do_not_fit_lenet(shape, message):
    backbone = create_backbone("lenet_300_100", 10)
    with pytest.raises(InputError, match=message):
        backbone.forward({}, torch.zeros(shape))


def test_lenet_takes_any_shape_with_784_values():
    backbone = create_backbone("lenet_300_100", 10)
    images = torch.randn(2, 1, 28, 28)
    assert torch.equal(backbone.forward({}, images), backbone.forward({}, images.flatten(1)))
    assert backbone.forward({}, torch.zeros(0, 784)).shape == (0, 10)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 32, 32, 3), r"\(3, \*, \*\), got \(32, 32, 3\); .*: inputs.permute\(0, 3, 1, 2\)"),
        ((3, 32, 32), r"got \(32, 32\); add a batch dimension: inputs\[None\]"),
        ((2, 1, 32, 32), r"got \(1, 32, 32\)$"),
        ((2, 3072), r"got \(3072,\)$"),
    ],
)
def test_inputs_that_do_not_fit_resnet(shape, message):
    backbone = create_backbone("resnet18", 10, width=2)
    with pytest.raises(InputError, match=message):
        backbone.check_inputs(torch.zeros(shape))


def test_inputs_of_another_type():
    backbone = create_backbone("lenet_300_100", 2, in_features=4)
    with pytest.raises(InputError, match="tensor, got list"):
        backbone.forward({}, [[1.0] * 4])
    with pytest.raises(InputError, match=r"cannot take torch.float64 inputs of shape \(2, 4\)"):
        backbone.forward({}, torch.zeros(2, 4, dtype=torch.float64))


def test_one_value_a_channel_cannot_be_normalised_by_the_batch():
    backbone = create_backbone("resnet18", 3, width=4)
    with pytest.raises(InputError, match=r"needs more than one value a channel.*larger batch"):
        backbone.forward({}, torch.randn(1, 3, 4, 4))
    assert backbone.forward({}, torch.randn(2, 3, 4, 4)).shape == (2, 3)


def test_arguments_of_forward_that_do_not_fit(images):
    backbone = adapt(Counting(), norm="per_task")
    with pytest.raises(InputError, match="mode must be train, frozen, eval, batch, got 'test'"):
        backbone.forward({}, images, mode="test")
    with pytest.raises(InputError, match=r"no maskable layer 'head.bias'"):
        backbone.forward({"head.bias": torch.zeros(3)}, images)
    with pytest.raises(
        InputError, match=r"head.weight needs weights of shape \(3, 4\), got \(4,\)"
    ):
        backbone.forward({"head.weight": torch.zeros(4)}, images)
    with pytest.raises(InputError, match=r"the statistics have no 'body.1.running_mean'"):
        backbone.forward({}, images, {})
    own = backbone.initial_statistics()
    with pytest.raises(InputError, match="the statistics hold 'another'"):
        backbone.forward({}, images, {**own, "another": torch.zeros(4)})
    with pytest.raises(InputError, match="hold 'body"):
        adapt(Counting(), norm="batch").forward({}, images, own)


def test_bad_constructor_settings():
    with pytest.raises(InputError, match="norm of a backbone must be none or batch"):
        Backbone(nn.Linear(2, 2), num_classes=2, norm="layer")
    with pytest.raises(InputError, match="num_classes must be"):
        Backbone(nn.Linear(2, 2), num_classes=-2, norm="none")
    for shape in ((), 4, (0, 2)):
        with pytest.raises(InputError, match="input_shape must be"):
            Backbone(nn.Linear(2, 2), num_classes=2, norm="none", input_shape=shape)
    with pytest.raises(InputError, match="norm 'batch' keeps no running statistics"):
        Backbone(Counting(), num_classes=3, norm="batch")
