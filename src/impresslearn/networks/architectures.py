"""The networks that come with the library: LeNet-300-100, residual networks, and a single layer.

- `lenet_300_100` (LeCun et al., 1998): no biases.
- `resnet18` (He et al., "Deep Residual Learning for Image Recognition", 2016): the form for small
  images of GEM (Lopez-Paz and Ranzato, 2017), with a 3x3 stem and no pooling before the blocks.
- `resnet50`: the ImageNet form, with a bottleneck's stride in its 3x3 convolution. Like resnet18 it
  ends in a 1x1 convolution, and has no biases and no weights in its norms.
- `resnet20`: the CIFAR-10 form, whose shortcuts have no parameters (option A). It is built like
  trained ones: its norms have weights and running statistics, and its linear head has a bias.
- `linear`: only a head, for features that were computed before.
"""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

from torch import Tensor, nn
from torch.nn import functional as F

from impresslearn.checks import check_integer
from impresslearn.errors import InputError
from impresslearn.networks.norms import make_norm


class LeNet(nn.Sequential):
    """Linear layers with ReLU between them; inputs (n, ...) are flattened."""

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
    """LeNet with these hidden widths; by default 266,200 weights. InputError for sizes below 1."""
    if not isinstance(widths, Sequence) or isinstance(widths, str):
        raise InputError(f"widths must be a list, such as [300, 100], got {widths!r}")
    hidden = [check_integer("each of the widths", width, 1) for width in widths]
    sizes = [check_integer("in_features", in_features, 1), *hidden, num_classes]
    steps: list[nn.Module] = []
    for fan_in, units in pairwise(sizes):
        steps += [nn.Linear(fan_in, units, bias=False), nn.ReLU()]
    return LeNet(*steps[:-1])  # no ReLU after the logits


def linear(num_classes: int, *, in_features: int = 768) -> LeNet:
    """One layer with a bias. Raises InputError for sizes below 1."""
    return LeNet(nn.Linear(check_integer("in_features", in_features, 1), num_classes))


class ResidualBlock(nn.Module):
    """Normalised convolutions beside a shortcut: (n, in, h, w) -> (n, out, h/stride, w/stride).

    - convolutions: (kernel size, output channels, stride) of each, with ReLU between them.
    - norm: a norm policy. None for batch norms with weights, named bn1 and so on, and a shortcut
      without parameters: every s-th pixel, with channels of zeros added equally on both sides.
    """

    def __init__(
        self, in_channels: int, convolutions: Sequence[tuple[int, int, int]], norm: str | None
    ) -> None:
        super().__init__()
        self.norm_name = "bn" if norm is None else "norm"
        channels, self.stride = in_channels, 1
        for number, (size, out_channels, stride) in enumerate(convolutions, 1):
            self.add_module(f"conv{number}", _conv(channels, out_channels, size, stride))
            made = nn.BatchNorm2d(out_channels) if norm is None else make_norm(out_channels, norm)
            self.add_module(f"{self.norm_name}{number}", made)
            channels, self.stride = out_channels, self.stride * stride
        self.length, self.padding = len(convolutions), (channels - in_channels) // 2
        self.shortcut: nn.Module = nn.Identity()
        if norm is not None and (self.stride > 1 or in_channels != channels):
            resize = _conv(in_channels, channels, 1, self.stride)
            self.shortcut = nn.Sequential(resize, make_norm(channels, norm))

    def forward(self, inputs: Tensor) -> Tensor:
        maps = inputs
        for number in range(1, self.length + 1):
            maps = F.relu(maps) if number > 1 else maps
            maps = getattr(self, f"conv{number}")(maps)
            maps = getattr(self, f"{self.norm_name}{number}")(maps)
        shortcut = self.shortcut(inputs)
        if self.norm_name == "bn":
            pixels = inputs[:, :, :: self.stride, :: self.stride]
            shortcut = F.pad(pixels, (0, 0, 0, 0, self.padding, self.padding))
        return F.relu(maps + shortcut)


class ResNet(nn.Sequential):
    """Named parts, called in turn, for images (n, in_channels, height, width) of any size."""

    def __init__(self, in_channels: int, **parts: nn.Module) -> None:
        super().__init__(OrderedDict(parts))
        self.input_shape: tuple[int | None, ...] = (in_channels, None, None)


def _resnet(
    depths: Sequence[int], num_classes: int, norm: str, width: int, in_channels: int, imagenet: bool
) -> ResNet:
    """Stem, four stages of blocks with widths w, 2w, 4w, 8w, average pool and a 1x1-conv head.

    depths: blocks per stage. imagenet: True for bottleneck blocks (1x1, 3x3, 1x1 to 4w channels)
    and a 7x7 stem with pooling; False for blocks of two 3x3 convolutions and a 3x3 stem.
    """
    width = check_integer("width", width, 1)
    in_channels = check_integer("in_channels", in_channels, 1)
    first = _conv(in_channels, width, 7, 2) if imagenet else _conv(in_channels, width, 3)
    stem = nn.Sequential(first, make_norm(width, norm), nn.ReLU())
    if imagenet:
        stem.append(nn.MaxPool2d(3, stride=2, padding=1))
    blocks: list[nn.Module] = []
    channels = width
    for stage, depth in enumerate(depths):
        for index in range(depth):
            stride = 2 if stage > 0 and index == 0 else 1
            inner, previous = width * 2**stage, channels
            channels = 4 * inner if imagenet else inner
            pair = [(3, inner, stride), (3, inner, 1)]
            bottleneck = [(1, inner, 1), (3, inner, stride), (1, channels, 1)]
            blocks.append(ResidualBlock(previous, bottleneck if imagenet else pair, norm))
    return ResNet(
        in_channels,
        stem=stem,
        blocks=nn.Sequential(*blocks),
        pool=nn.AdaptiveAvgPool2d(1),
        head=_conv(channels, num_classes, 1),
        flatten=nn.Flatten(),
    )


def resnet18(num_classes: int, norm: str, *, width: int = 48, in_channels: int = 3) -> ResNet:
    """ResNet-18 for small images: 21 maskable layers, 6.28 million weights at width 48."""
    return _resnet((2, 2, 2, 2), num_classes, norm, width, in_channels, imagenet=False)


def resnet50(num_classes: int, norm: str, *, width: int = 64, in_channels: int = 3) -> ResNet:
    """ResNet-50 for ImageNet: 53 convolutions and the head, 25.5 million weights at width 64."""
    return _resnet((3, 4, 6, 3), num_classes, norm, width, in_channels, imagenet=True)


def resnet20(num_classes: int, *, width: int = 16, in_channels: int = 3, depth: int = 3) -> ResNet:
    """ResNet-20 for CIFAR-10: 20 maskable layers, 268,336 weights for 10 classes at width 16.

    - depth: blocks in each of the three stages; 5 gives a ResNet-32.
    """
    channels = width = check_integer("width", width, 1)
    in_channels = check_integer("in_channels", in_channels, 1)
    depth = check_integer("depth", depth, 1)
    stages = {}
    for number, (out, stride) in enumerate([(width, 1), (2 * width, 2), (4 * width, 2)], 1):
        first = ResidualBlock(channels, [(3, out, stride), (3, out, 1)], None)
        others = [ResidualBlock(out, [(3, out, 1)] * 2, None) for _ in range(depth - 1)]
        stages[f"layer{number}"] = nn.Sequential(first, *others)
        channels = out
    return ResNet(
        in_channels,
        conv1=_conv(in_channels, width, 3),
        bn1=nn.BatchNorm2d(width),
        relu=nn.ReLU(),
        **stages,
        pool=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
        linear=nn.Linear(channels, num_classes),
    )


def _conv(in_channels: int, out_channels: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(in_channels, out_channels, size, stride, padding=size // 2, bias=False)
