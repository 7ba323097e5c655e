"""Residual networks (He et al., "Deep Residual Learning for Image Recognition", 2016).

`resnet18` is the small-image form that continual learning took from GEM (Lopez-Paz and Ranzato,
2017): a 3x3 stem, no pooling before the blocks. `resnet50` is the ImageNet form, with the stride of
a bottleneck in its 3x3 convolution. Both end in a 1x1 convolution as their head, so that every
maskable layer is a convolution. No biases and no weights in the norms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from impresslearn.networks.norms import make_norm
from impresslearn.validation import check_integer


class BasicBlock(nn.Module):
    """Two 3x3 convolutions: (n, in, h, w) -> (n, width, h/stride, w/stride)."""

    expansion = 1

    def __init__(self, in_channels: int, width: int, stride: int, norm: str) -> None:
        super().__init__()
        self.conv1 = _conv(in_channels, width, 3, stride)
        self.norm1 = make_norm(width, norm)
        self.conv2 = _conv(width, width, 3)
        self.norm2 = make_norm(width, norm)
        self.shortcut = _shortcut(in_channels, width, stride, norm)

    def forward(self, inputs: Tensor) -> Tensor:
        maps = F.relu(self.norm1(self.conv1(inputs)))
        maps = self.norm2(self.conv2(maps))
        return F.relu(maps + self.shortcut(inputs))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolution: (n, in, h, w) -> (n, 4 width, h/stride, w/stride)."""

    expansion = 4

    def __init__(self, in_channels: int, width: int, stride: int, norm: str) -> None:
        super().__init__()
        out_channels = width * self.expansion
        self.conv1 = _conv(in_channels, width, 1)
        self.norm1 = make_norm(width, norm)
        self.conv2 = _conv(width, width, 3, stride)
        self.norm2 = make_norm(width, norm)
        self.conv3 = _conv(width, out_channels, 1)
        self.norm3 = make_norm(out_channels, norm)
        self.shortcut = _shortcut(in_channels, out_channels, stride, norm)

    def forward(self, inputs: Tensor) -> Tensor:
        maps = F.relu(self.norm1(self.conv1(inputs)))
        maps = F.relu(self.norm2(self.conv2(maps)))
        maps = self.norm3(self.conv3(maps))
        return F.relu(maps + self.shortcut(inputs))


class ResNet(nn.Module):
    """Stem, four stages of blocks with widths w, 2w, 4w, 8w, average pool and a 1x1-conv head.

    stem: a function (in_channels, width, norm) -> module; depths: blocks in each stage. Inputs are
    images (n, in_channels, height, width) of any size.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        stem: Callable[[int, int, str], nn.Module],
        *,
        num_classes: int,
        norm: str,
        width: int,
        in_channels: int,
    ) -> None:
        super().__init__()
        width = check_integer("width", width, 1)
        in_channels = check_integer("in_channels", in_channels, 1)
        self.input_shape: tuple[int | None, ...] = (in_channels, None, None)
        self.stem = stem(in_channels, width, norm)
        blocks: list[nn.Module] = []
        channels = width
        for stage, depth in enumerate(depths):
            for index in range(depth):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(block(channels, width * 2**stage, stride, norm))
                channels = width * 2**stage * block.expansion
        self.blocks = nn.Sequential(*blocks)
        self.head = _conv(channels, num_classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        """(n, in_channels, height, width) -> logits (n, num_classes)."""
        maps = self.blocks(self.stem(images))
        return self.head(F.adaptive_avg_pool2d(maps, 1)).flatten(1)


def resnet18(num_classes: int, norm: str, *, width: int = 48, in_channels: int = 3) -> ResNet:
    """ResNet-18 for small images: 21 maskable layers, 6.28 million weights at width 48."""
    return ResNet(
        BasicBlock,
        (2, 2, 2, 2),
        _small_stem,
        num_classes=num_classes,
        norm=norm,
        width=width,
        in_channels=in_channels,
    )


def resnet50(num_classes: int, norm: str, *, width: int = 64, in_channels: int = 3) -> ResNet:
    """ResNet-50 for ImageNet: 53 convolutions and the head, 25.5 million weights at width 64."""
    return ResNet(
        Bottleneck,
        (3, 4, 6, 3),
        _imagenet_stem,
        num_classes=num_classes,
        norm=norm,
        width=width,
        in_channels=in_channels,
    )


def _conv(in_channels: int, out_channels: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(in_channels, out_channels, size, stride, padding=size // 2, bias=False)


def _shortcut(in_channels: int, out_channels: int, stride: int, norm: str) -> nn.Module:
    if stride == 1 and in_channels == out_channels:
        return nn.Identity()
    return nn.Sequential(_conv(in_channels, out_channels, 1, stride), make_norm(out_channels, norm))


def _small_stem(in_channels: int, width: int, norm: str) -> nn.Module:
    return nn.Sequential(_conv(in_channels, width, 3), make_norm(width, norm), nn.ReLU())


def _imagenet_stem(in_channels: int, width: int, norm: str) -> nn.Module:
    return nn.Sequential(
        _conv(in_channels, width, 7, stride=2),
        make_norm(width, norm),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
    )
