"""Small modules that are odd but plausible, as people write them: `ODDITIES`, by name."""

import threading

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

import impresslearn as il
from models import Output


class Net(nn.Module):
    """A body, parts of any kind, and a linear head; what is odd happens in `middle`."""

    def __init__(self, function=None, **parts):
        super().__init__()
        self.body, self.function = nn.Linear(8, 16), function
        for name, part in parts.items():
            setattr(self, name, part)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.middle(self.body(x).relu()))

    def middle(self, x):
        return self.function(self, x) if self.function else x


class TextNet(nn.Module):
    """An embedding, then a function of tokens and vectors, then a linear head."""

    def __init__(self, function, units, **parts):
        super().__init__()
        self.embed, self.function = nn.Embedding(20, 8, padding_idx=0), function
        for name, part in parts.items():
            setattr(self, name, part)
        self.head = nn.Linear(units, 3)

    def forward(self, tokens):
        return self.head(self.function(self, tokens, self.embed(tokens)))


class Returns(Net):
    """`function` makes something else of the logits."""

    def forward(self, x):
        return self.function(self.head(self.body(x).relu()))


class Whole(Net):
    """`function` is the whole pass."""

    def forward(self, x):
        return self.function(self, x)


class Both(Net):
    def forward(self, x, y):
        return self.head(self.body(x) * self.layers[0](y))


def weight(*shape):
    return nn.Parameter(torch.randn(*shape) / 4)


class Auxiliary(Net):
    """More outputs in training than in evaluation, as GoogLeNet has."""

    def forward(self, x):
        logits = self.head(self.body(x).relu())
        return self.function(logits) if self.training else logits


def keeps_activations(net, x):
    net.activations = x
    return net.activations


def counts_steps(net, x):
    net.steps = getattr(net, "steps", 0) + 1
    return x


class Gathers(Net):
    """`function` remembers means of the training somewhere; they are taken off ever after."""

    total = 0

    def __init__(self, function):
        super().__init__(function, plain=torch.zeros(16))
        self.register_buffer("seen", torch.zeros(16))
        self.state = 0.0

    def middle(self, x):
        if self.training:
            self.function(self, x.mean(0).detach())
        return x - self.seen - self.state - self.plain - self.total


def hook_of_its_own():
    """The hook closes over the network, of which a copy is another."""
    net = Net(lambda m, x: m.seen["body"].tanh(), seen={})
    net.body.register_forward_hook(lambda _, args, out: net.seen.update(body=out))
    return net


class HookAsMethod(Net):
    def __init__(self):
        super().__init__()
        self.body.register_forward_pre_hook(lambda _, args: (args[0] * 2,))
        self.body.register_forward_hook(self.keep)

    def keep(self, layer, args, out):
        self.seen = out

    def middle(self, x):
        return self.seen.tanh()


class ChangesItsInput(Net):
    def forward(self, x):
        x -= 0.5
        return super().forward(x.mul_(2))


def packed(net, tokens, vectors):
    lengths = (tokens != 0).sum(1).cpu()
    rows = nn.utils.rnn.pack_padded_sequence(vectors, lengths, True, enforce_sorted=False)
    return net.middle(net.rnn(rows)[1][0][-1])


class HeadFirst(nn.Module):
    """Defines its head before the layers that it runs first."""

    def __init__(self):
        super().__init__()
        self.head, self.body = nn.Linear(16, 3), nn.Linear(8, 16)

    def forward(self, x):
        return self.head(self.body(x).relu())


def other_dtype(dtype):
    """The first layer computes in another dtype than the head."""
    body = nn.Linear(8, 16, dtype=dtype)
    return Whole(lambda m, x: m.head(m.body(x.to(dtype)).abs().float()), body=body)


DRAW = torch.Generator().manual_seed(0)
ROWS = torch.randn(12, 8, generator=DRAW)
IMAGES = torch.randn(12, 3, 8, 8, generator=DRAW)
TOKENS = torch.randint(1, 20, (12, 6), generator=DRAW)
PADDED = torch.where(torch.arange(6) < torch.arange(12)[:, None] % 5 + 2, TOKENS, 0)


def rows(*layers):
    """Builds a network with these layers behind the first."""
    return lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), *(make() for make in layers))


def images(*layers):
    """Builds a convolution, these layers, and a convolution with a unit per class."""
    return lambda: nn.Sequential(
        nn.Conv2d(3, 16, 3), *(make() for make in layers), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Conv2d(16, 3, 1), nn.Flatten(),
    )  # fmt: skip


def linear():
    return nn.Linear(16, 16)


def head():
    return nn.Linear(16, 3)


def kind_of(kind, *args, **parts):
    """Builds a network of this kind."""
    return lambda: kind(*args, **{name: make() for name, make in parts.items()})


def net(function=None, **parts):
    return kind_of(Net, function, **parts)


def wrapped(wrapper):
    """A layer under one of the wrappers that compute its weight."""
    return lambda: Net(lambda m, x: m.layer(x).relu(), layer=wrapper(nn.Linear(16, 16)))


OF_ROWS = {
    "weight norm, the old hook": wrapped(nn.utils.weight_norm),
    "spectral norm": wrapped(parametrizations.spectral_norm),
    "lazy layers": lambda: nn.Sequential(nn.LazyLinear(16), nn.ReLU(), nn.LazyLinear(3)),
    "complex weights": net(
        lambda m, x: torch.fft.irfft(torch.fft.rfft(x) * m.filter, n=16),
        filter=lambda: nn.Parameter(torch.randn(9, dtype=torch.complex64)),
    ),
    "compiled in place": lambda: [module := Net(), module.body.compile(backend="eager")][0],
    "returns a dictionary without logits": kind_of(Returns, lambda y: {"out": y}),
    "returns squeezed logits": kind_of(Returns, lambda y: y.squeeze()),
    "a tuple in training": kind_of(Auxiliary, lambda y: (y, y)),
    "a dataclass in training": kind_of(Auxiliary, Output),
    "a scripted block": net(lambda m, x: m.a(x), a=lambda: torch.jit.script(linear())),
    "scripted as a whole": lambda: torch.jit.script(rows(head)()),
    "traced by torch.fx": lambda: torch.fx.symbolic_trace(HeadFirst()),
    "keeps activations": net(keeps_activations),
    "replaces its head": net(lambda m, x: setattr(m, "head", head()) or x),
    "scales by a count of passes": net(lambda m, x: counts_steps(m, x) * m.steps),
    "a running mean that hardly moves": kind_of(Gathers, lambda m, x: m.seen.lerp_(x, 1e-6)),
    "means in an attribute": kind_of(Gathers, lambda m, x: setattr(m, "state", m.state + x / 1e3)),
    "means in a plain tensor": kind_of(Gathers, lambda m, x: m.plain.add_(x)),
    "means in a parameter": kind_of(Gathers, lambda m, x: m.body.bias.data.add_(x)),
    "a count in its class": kind_of(
        Gathers, lambda m, x: setattr(type(m), "total", type(m).total + 1)
    ),
    "a hook that refers to its network": hook_of_its_own,
    "a hook that is a method": HookAsMethod,
    "activation checkpointing": net(lambda m, x: checkpoint(m.a, x, use_reentrant=False), a=linear),
    "scales by the place in the batch": net(
        lambda m, x: x * torch.arange(1.0, len(x) + 1)[:, None]
    ),
    "centred by its batch": net(lambda m, x: x - x.mean(0)),
    "noise of numpy": net(lambda m, x: x * torch.from_numpy(np.random.rand(*x.shape)).float()),
    "noise of numpy in training": net(lambda m, x: x * np.random.rand() if m.training else x),
    "dropout that is always on": net(lambda m, x: F.dropout(x, 0.5)),
    "changes its input in place": ChangesItsInput,
    "one output": rows(lambda: nn.Linear(16, 1)),
    "log-softmax at the end": rows(head, lambda: nn.LogSoftmax(1)),
    "batch norm at the end": rows(head, lambda: nn.BatchNorm1d(3)),
    "the head defined first": HeadFirst,
    "a frozen body": net(body=lambda: nn.Linear(8, 16).requires_grad_(False)),
    "a float64 layer": lambda: other_dtype(torch.float64),
    "a bfloat16 layer": lambda: other_dtype(torch.bfloat16),
    "a complex64 layer": lambda: other_dtype(torch.complex64),
    "a parameter of size 0": net(lambda m, x: x + m.prompt.sum(0), prompt=lambda: weight(0, 16)),
    "a body under inference_mode": kind_of(
        Whole, lambda m, x: m.head(torch.inference_mode()(m.body)(x).clone().relu())
    ),
    "a layer that is never used": net(unused=linear),
    "holds a lock": net(lock=threading.Lock),
    "through numpy": kind_of(
        Whole, lambda m, x: m.head(m.body(torch.from_numpy(np.log1p(x.numpy() ** 2))).relu())
    ),
    "layers in a plain list": net(
        lambda m, x: m.layers[1](m.layers[0](x)), layers=lambda: [linear(), linear()]
    ),
    "a fixed size of batch": net(lambda m, x: x.view(6, 16) * 1),
}
OF_IMAGES = {
    "transposed convolution": images(lambda: nn.ConvTranspose2d(16, 16, 2)),
    "grouped convolution": images(lambda: nn.Conv2d(16, 16, 3, groups=4, dilation=2)),
    "batch norm without affine": images(lambda: nn.BatchNorm2d(16, affine=False)),
    "batch norm without statistics": images(lambda: nn.BatchNorm2d(16, track_running_stats=False)),
    "synchronised batch norm": images(lambda: nn.SyncBatchNorm(16)),
    "a map of logits": lambda: images()()[:2],
    "a head that is not flattened": lambda: images()()[:-1],
}
OF_OTHERS = {
    "a tuple of inputs as one argument": (
        kind_of(Whole, lambda m, pair: Net.forward(m, pair[0] + pair[1])),
        il.Inputs(ROWS, ROWS[:, :1]),
    ),
    "two inputs": (kind_of(Both, layers=lambda: [nn.Linear(8, 16)]), il.Inputs(ROWS, ROWS)),
    "LSTM over packed sequences": (
        kind_of(TextNet, packed, 16, rnn=lambda: nn.LSTM(8, 16, batch_first=True), middle=linear),
        PADDED,
    ),
}
ODDITIES = {name: (build, ROWS) for name, build in OF_ROWS.items()}
ODDITIES |= {name: (build, IMAGES) for name, build in OF_IMAGES.items()}
ODDITIES |= OF_OTHERS
"""Name -> what builds the module, and its inputs, of 12 rows."""
