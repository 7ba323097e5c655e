"""The networks that come with the library: LeNet-300-100, residual networks, a layer alone.

LeNet-300-100: LeCun et al., 1998. `resnet18` is the small-image form of residual networks (He et
al., "Deep Residual Learning for Image Recognition", 2016) that continual learning took from GEM
(Lopez-Paz and Ranzato, 2017): a 3x3 stem, no pooling before the blocks. `resnet50` is the ImageNet
form, with the stride of a bottleneck in its 3x3 convolution. Both end in a 1x1 convolution as their
head. None of these has biases, or weights in its norms. `resnet20` is the CIFAR-10 form of He et
al. with shortcuts without parameters (their option A), built as those who train it build it: norms
with weights and running statistics, a linear head with a bias. `linear` is nothing but a head, over
features or embeddings that were computed before.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

from torch import Tensor, nn
from torch.nn import functional as F

from impresslearn.checks import check_integer
from impresslearn.errors import InputError
from impresslearn.networks.norms import make_norm


class LeNet(nn.Sequential):
    """Linear layers and ReLU in turn, over inputs (n, ...) that are flattened."""

    @property
    def input_shape(self) -> tuple[int]:
        """(values per input,)."""
        return (cast(nn.Linear, self[0]).in_features,)

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs (n, ...) of any shape -> logits (n, classes)."""
        return super().forward(inputs.flatten(1))


def lenet_300_100(
    num_classes: int, *, in_features: int = 784, widths: Sequence[int] = (300, 100)
) -> LeNet:
    """LeNet with the given hidden widths; 266,200 weights in three layers by default.

    Raises InputError for sizes below 1.
    """
    if not isinstance(widths, Sequence) or isinstance(widths, str):
        raise InputError(f"widths must be a list, such as [300, 100], got {widths!r}")
    hidden = [check_integer("each of the widths", width, 1) for width in widths]
    sizes = [check_integer("in_features", in_features, 1), *hidden, num_classes]
    steps: list[nn.Module] = []
    for fan_in, units in pairwise(sizes):
        steps += [nn.Linear(fan_in, units, bias=False), nn.ReLU()]
    return LeNet(*steps[:-1])  # no ReLU behind the logits


def linear(num_classes: int, *, in_features: int = 768) -> LeNet:
    """One layer with a bias. Raises InputError for sizes below 1."""
    return LeNet(nn.Linear(check_integer("in_features", in_features, 1), num_classes))


class ResidualBlock(nn.Module):
    """Normalised convolutions beside a shortcut: (n, in, h, w) -> (n, out, h/stride, w/stride).

    convolutions: (kernel size, output channels, stride) of each, with ReLU between them.
    """

    def __init__(
        self, in_channels: int, convolutions: Sequence[tuple[int, int, int]], norm: str
    ) -> None:
        super().__init__()
        channels, total_stride = in_channels, 1
        for number, (size, out_channels, stride) in enumerate(convolutions, 1):
            self.add_module(f"conv{number}", _conv(channels, out_channels, size, stride))
            self.add_module(f"norm{number}", make_norm(out_channels, norm))
            channels, total_stride = out_channels, total_stride * stride
        self.length = len(convolutions)
        self.shortcut: nn.Module = nn.Identity()
        if total_stride > 1 or in_channels != channels:
            resize = _conv(in_channels, channels, 1, total_stride)
            self.shortcut = nn.Sequential(resize, make_norm(channels, norm))

    def forward(self, inputs: Tensor) -> Tensor:
        maps = inputs
        for number in range(1, self.length + 1):
            maps = F.relu(maps) if number > 1 else maps
            maps = getattr(self, f"norm{number}")(getattr(self, f"conv{number}")(maps))
        return F.relu(maps + self.shortcut(inputs))


class ResNet(nn.Module):
    """Stem, four stages of blocks with widths w, 2w, 4w, 8w, average pool and a 1x1-conv head.

    depths: blocks in each stage; imagenet: bottleneck blocks (1x1, 3x3, 1x1 to 4w channels) and a
    7x7 stem with pooling, instead of pairs of 3x3 and a 3x3 stem. Inputs are images (n,
    in_channels, height, width) of any size.
    """

    def __init__(
        self,
        depths: Sequence[int],
        num_classes: int,
        norm: str,
        width: int,
        in_channels: int,
        *,
        imagenet: bool = False,
    ) -> None:
        super().__init__()
        width = check_integer("width", width, 1)
        in_channels = check_integer("in_channels", in_channels, 1)
        self.input_shape: tuple[int | None, ...] = (in_channels, None, None)
        first = _conv(in_channels, width, 7, 2) if imagenet else _conv(in_channels, width, 3)
        self.stem = nn.Sequential(first, make_norm(width, norm), nn.ReLU())
        if imagenet:
            self.stem.append(nn.MaxPool2d(3, stride=2, padding=1))
        blocks: list[nn.Module] = []
        channels = width
        for stage, depth in enumerate(depths):
            for index in range(depth):
                stride = 2 if stage > 0 and index == 0 else 1
                inner, previous = width * 2**stage, channels
                channels = 4 * inner if imagenet else inner
                pair = [(3, inner, stride), (3, inner, 1)]
                bottleneck = [(1, inner, 1), (3, inner, stride), (1, channels, 1)]
                shape = bottleneck if imagenet else pair
                blocks.append(ResidualBlock(previous, shape, norm))
        self.blocks = nn.Sequential(*blocks)
        self.head = _conv(channels, num_classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        """(n, in_channels, height, width) -> logits (n, num_classes)."""
        maps = self.blocks(self.stem(images))
        return self.head(F.adaptive_avg_pool2d(maps, 1)).flatten(1)


def resnet18(num_classes: int, norm: str, *, width: int = 48, in_channels: int = 3) -> ResNet:
    """ResNet-18 for small images: 21 maskable layers, 6.28 million weights at width 48."""
    return ResNet((2, 2, 2, 2), num_classes, norm, width, in_channels)


def resnet50(num_classes: int, norm: str, *, width: int = 64, in_channels: int = 3) -> ResNet:
    """ResNet-50 for ImageNet: 53 convolutions and the head, 25.5 million weights at width 64."""
    return ResNet((3, 4, 6, 3), num_classes, norm, width, in_channels, imagenet=True)


class PlainShortcutBlock(nn.Module):
    """Two normalised 3x3 convolutions beside a shortcut: (n, in, h, w) -> (n, out, h/s, w/s).

    The shortcut takes every s-th pixel, and as many channels of zeros on either side as it needs.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(in_channels, out_channels, 3, stride)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = _conv(out_channels, out_channels, 3)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.stride, self.padding = stride, (out_channels - in_channels) // 2

    def forward(self, inputs: Tensor) -> Tensor:
        maps = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(inputs)))))
        shortcut = inputs[:, :, :: self.stride, :: self.stride]
        return F.relu(maps + F.pad(shortcut, (0, 0, 0, 0, self.padding, self.padding)))


def _plain_stage(in_channels: int, out_channels: int, stride: int) -> nn.Sequential:
    blocks = [PlainShortcutBlock(in_channels, out_channels, stride)]
    blocks += [PlainShortcutBlock(out_channels, out_channels, 1) for _ in range(2)]
    return nn.Sequential(*blocks)


class ResNet20(nn.Module):
    """Stem, three stages of three blocks with widths w, 2w, 4w, average pool and a linear head."""

    def __init__(self, num_classes: int, width: int, in_channels: int) -> None:
        super().__init__()
        width = check_integer("width", width, 1)
        in_channels = check_integer("in_channels", in_channels, 1)
        self.input_shape: tuple[int | None, ...] = (in_channels, None, None)
        self.conv1, self.bn1 = _conv(in_channels, width, 3), nn.BatchNorm2d(width)
        self.layer1 = _plain_stage(width, width, 1)
        self.layer2 = _plain_stage(width, 2 * width, 2)
        self.layer3 = _plain_stage(2 * width, 4 * width, 2)
        self.linear = nn.Linear(4 * width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """(n, in_channels, height, width) -> logits (n, num_classes)."""
        maps = self.layer1(F.relu(self.bn1(self.conv1(images))))
        return self.linear(self.layer3(self.layer2(maps)).mean((2, 3)))


def resnet20(num_classes: int, *, width: int = 16, in_channels: int = 3) -> ResNet20:
    """ResNet-20 for CIFAR-10: 20 maskable layers, 268,336 weights for 10 classes at width 16."""
    return ResNet20(num_classes, width, in_channels)


def _conv(in_channels: int, out_channels: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(in_channels, out_channels, size, stride, padding=size // 2, bias=False)
