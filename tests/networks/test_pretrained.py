"""Weights that others trained: what is read, and what is told where it cannot be."""

import numpy as np
import torch
from torch.nn import functional as F

from impresslearn.errors import MissingDataError
from impresslearn.networks import adapt
from impresslearn.networks.architectures import load_resnet20, resnet20
from toys import refused


def arrays_of(module):
    return {
        name: each.numpy() for name, each in module.state_dict().items() if each.ndim
    }  # the counters of batches are no part of the file


def trained(seed=0):
    """A ResNet-20 of width 4 and 3 classes with random statistics, scales and shifts."""
    torch.manual_seed(seed)
    module = resnet20(3, width=4)
    for name, each in module.state_dict().items():
        if each.ndim == 1:
            each.copy_(0.5 + torch.rand(len(each)) if "var" in name else torch.randn(len(each)))
    return module.eval()


def test_a_file_gives_the_network_that_was_saved(tmp_path):
    module = trained()
    np.savez(tmp_path / "net.npz", **arrays_of(module))
    found = load_resnet20(tmp_path / "net.npz", num_classes=3, width=4)
    images = torch.randn(5, 3, 32, 32)
    assert torch.equal(found(images), module(images))
    backbone = adapt(found, input_shape=found.input_shape, head="own")
    assert backbone.pretrained
    assert len(backbone.layers) == 19


def test_what_is_missing_or_of_another_form_is_one_line(tmp_path):
    path = tmp_path / "net.npz"
    source = "resnet20-12fca82f of akamaster/pytorch_resnet_cifar10"
    refused(f"^no {path}: put {source}", load_resnet20, path, error=MissingDataError)
    arrays = arrays_of(trained())
    np.savez(path, **arrays)
    refused(
        "must hold a ResNet-20 of width 16 .*size mismatch for conv1.weight", load_resnet20, path
    )
    del arrays["layer2.0.bn1.running_var"]
    np.savez(path, **arrays)
    refused('Missing key.* "layer2.0.bn1.running_var"', load_resnet20, path, 3, 4)
    path.write_bytes(b"PK\x03\x04 broken")
    refused("must hold a ResNet-20", load_resnet20, path)


def test_shortcuts_take_every_second_pixel_and_pad_channels():
    module = trained()
    block, maps = module.layer2[0], torch.randn(2, 4, 6, 6).relu()
    torch.nn.init.zeros_(block.bn2.weight)
    torch.nn.init.zeros_(block.bn2.bias)
    zeros = torch.zeros(2, 2, 3, 3)
    assert torch.equal(block(maps), torch.cat([zeros, maps[:, :, ::2, ::2], zeros], dim=1))
    first = module.layer1[0]
    inner = first.bn2(first.conv2(F.relu(first.bn1(first.conv1(maps)))))
    torch.testing.assert_close(first(maps), F.relu(inner + maps))
