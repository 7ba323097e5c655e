"""Small modules that are odd but plausible, as people write them: `ODDITIES`, by name."""

import threading
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint

import impresslearn as il


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


def weight(*shape):
    return nn.Parameter(torch.randn(*shape) / 4)


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).mT


def symmetric(layer):
    parametrize.register_parametrization(layer, "weight", Symmetric())
    return layer


def tied():
    net = Net(lambda m, x: m.decode(m.encode(x).relu()), encode=nn.Linear(16, 16))
    net.decode = nn.Linear(16, 16, bias=False)
    net.decode.weight = net.encode.weight
    net.head = net._modules.pop("head")
    return net


class ImageAndAge(Net):
    def forward(self, *, image, age=None):
        return super().forward(image if age is None else image + age)


class TakesATuple(Net):
    def forward(self, pair):
        return super().forward(pair[0] + pair[1])


class TakesADictionary(Net):
    def forward(self, batch):
        return super().forward(batch["image"])


Pair = namedtuple("Pair", ["logits", "hidden"])


@dataclass
class Output:
    logits: Tensor
    loss: Tensor | None = None


class Auxiliary(Net):
    """More outputs in training than in evaluation, as GoogLeNet has."""

    def forward(self, x):
        logits = self.head(self.body(x).relu())
        return self.function(logits) if self.training else logits


class KeepsActivations(Net):
    def middle(self, x):
        self.activations = x
        return self.activations


class CountsSteps(Net):
    steps = 0

    def middle(self, x):
        self.steps += 1
        return x


class GrowingList(Net):
    def middle(self, x):
        self.past.append(x.norm().item())
        return x


class OwnRunningMean(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(16))

    def middle(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0).detach()
        return x - self.mean


class Buffered(Net):
    """A buffer, and a function that reads or changes it."""

    def __init__(self, function, buffer):
        super().__init__(function)
        self.register_buffer("buffer", buffer)


class HookOfItsOwn(Net):
    """The hook closes over the network, of which a copy is another."""

    def __init__(self):
        super().__init__()
        self.seen = {}
        self.body.register_forward_hook(lambda _, args, out: self.seen.update(body=out))

    def middle(self, x):
        return self.seen["body"].tanh()


class HookAsMethod(Net):
    def __init__(self):
        super().__init__()
        self.body.register_forward_pre_hook(lambda _, args: (args[0] * 2,))
        self.body.register_forward_hook(self.keep)

    def keep(self, layer, args, out):
        self.seen = out

    def middle(self, x):
        return self.seen.tanh()


class LambdaOfItsOwn(Net):
    def __init__(self):
        super().__init__(scale=weight(16))
        self.activation = lambda x: (self.scale * x).tanh()

    def middle(self, x):
        return self.activation(x)


def standardise(layer, args):
    layer.weight = (layer.raw - layer.raw.mean(1, keepdim=True)) / layer.raw.std()


def weights_set_in_a_pre_hook():
    net = Net(lambda m, x: m.layer(x), layer=nn.Linear(16, 16))
    net.layer.raw = net.layer._parameters.pop("weight")
    net.layer.register_forward_pre_hook(standardise)
    return net


class EarlyExit(Net):
    """Stops at the first head when the whole batch is certain."""

    def __init__(self):
        super().__init__(first=nn.Linear(16, 3), deeper=nn.Linear(16, 16))

    def forward(self, x):
        hidden = self.body(x).relu()
        early = self.first(hidden)
        certain = early.softmax(1).max(1)[0].min() > 0.4
        return early if certain else self.head(self.deeper(hidden).relu())


def noise_in_training(net, x):
    return x + torch.randn_like(x) if net.training else x


def drop_path(net, x):
    keep = torch.rand(len(x), 1) < 0.8 if net.training else 1
    return x + x.tanh() * keep


def each_row(net, x):
    return torch.stack([row.tanh() if row.mean() > 0.35 else row.relu() for row in x])


class ChangesItsInput(Net):
    def forward(self, x):
        x -= 0.5
        return super().forward(x.mul_(2))


class Recurrent(nn.Module):
    def __init__(self, kind, units=16, **settings):
        super().__init__()
        self.rnn = kind(8, 16, batch_first=True, **settings)
        self.project, self.head = nn.Linear(units, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.project(self.rnn(x)[0][:, -1]).relu())


def packed(net, tokens, vectors):
    lengths = (tokens != 0).sum(1).cpu()
    rows = nn.utils.rnn.pack_padded_sequence(vectors, lengths, True, enforce_sorted=False)
    return net.middle(net.rnn(rows)[1][0][-1])


def attend(net, tokens, x):
    return net.attention(x, x, x, key_padding_mask=tokens == 0)[0][:, 0]


class SequenceFirst(nn.Module):
    """Forgets batch_first, so that rows attend to one another."""

    def __init__(self):
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(8, 2), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.attention(x, x, x)[0].mean(1))


class PositionsByLength(nn.Module):
    """Sinusoidal positions, kept by length."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head, self.positions = nn.Linear(8, 3), {}

    def forward(self, x):
        length = x.shape[1]
        if length not in self.positions:
            self.positions[length] = torch.arange(length)[:, None].mul(0.3).sin()
        return self.head(self.layer(x + self.positions[length]).mean(1))


class ManyHeads(Net):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleDict({n: nn.Sequential(nn.Linear(16, 3)) for n in ("old", "new")})

    def forward(self, x):
        return self.heads[self.function or "old"](self.body(x).relu())


class HeadFirst(nn.Module):
    """Defines its head before the layers that it runs first."""

    def __init__(self):
        super().__init__()
        self.head, self.body = nn.Linear(16, 3), nn.Linear(8, 16)

    def forward(self, x):
        return self.head(self.body(x).relu())


class SumOfHeads(Net):
    def __init__(self):
        super().__init__(first=nn.Linear(16, 3))

    def forward(self, x):
        x = self.body(x).relu()
        return self.first(x) + self.head(x)


class PlainParameters(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.v = weight(8, 16), weight(16, 3)

    def forward(self, x):
        return F.linear(F.linear(x, self.w.t()).relu(), self.v.t())


class CosineHead(Net):
    def forward(self, x):
        x = F.normalize(self.body(x).relu(), dim=1)
        return 10 * F.linear(x, F.normalize(self.head.weight, dim=1))


class OtherDtype(Net):
    """The first layer computes in another dtype than the head."""

    def __init__(self, dtype):
        super().__init__()
        self.body.to(dtype)

    def forward(self, x):
        return self.head(self.body(x.to(self.body.weight.dtype)).relu().float())


def hypernetwork(net, x):
    return torch.einsum("ni,nij->nj", x, net.generate(x).view(-1, 16, 16)).tanh()


def routed(net, x):
    chosen, out = net.route(x).argmax(1), torch.zeros_like(x)
    for i, expert in enumerate(net.experts):
        out[chosen == i] = expert(x[chosen == i])
    return out


class SignSTE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, grad):
        return grad


class ReturnsItsParameter(Net):
    """The same logits for every input: a view of a parameter."""

    def forward(self, x):
        return self.prior.expand(len(x), 3)


class NoGradBody(Net):
    def forward(self, x):
        with torch.no_grad():
            x = self.body(x).relu()
        return self.head(x)


def shares_its_body():
    teacher, student = Net(lambda m, x: x + m.student[0].body.bias), Net()
    student.body = teacher.body
    teacher.student = [student]
    return teacher


class GetAttr(nn.Module):
    """Asks the network that it wraps for what it does not know."""

    def __init__(self):
        super().__init__()
        self.inner = Net()

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)

    def forward(self, x):
        return self.inner(x)


class WithDevice(Net):
    @property
    def device(self):
        return next(self.parameters()).device

    def middle(self, x):
        return x + torch.ones(16, device=self.device)


class ThroughNumpy(Net):
    def forward(self, x):
        return super().forward(torch.from_numpy(np.log1p(x.numpy() ** 2)))


DRAW = torch.Generator().manual_seed(0)
ROWS = torch.randn(12, 8, generator=DRAW)
IMAGES = torch.randn(12, 3, 8, 8, generator=DRAW)
SEQUENCES = torch.randn(12, 5, 8, generator=DRAW)
VOLUMES = torch.randn(12, 1, 4, 4, 4, generator=DRAW)
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


def sequential(*layers):
    return lambda: nn.Sequential(*(make() for make in layers))


def linear():
    return nn.Linear(16, 16)


def head():
    return nn.Linear(16, 3)


def net(kind, *args, **parts):
    return lambda: kind(*args, **{name: make() for name, make in parts.items()})


def wrapped(wrapper):
    """A layer under one of the wrappers that compute its weight."""
    return lambda: Net(lambda m, x: m.layer(x).relu(), layer=wrapper(nn.Linear(16, 16)))


# What builds the module, and the inputs of 12 rows.
ODDITIES = {
    "tied weights": (tied, ROWS),
    "weight norm, the old hook": (wrapped(nn.utils.weight_norm), ROWS),
    "weight norm": (wrapped(parametrizations.weight_norm), ROWS),
    "spectral norm, the old hook": (wrapped(nn.utils.spectral_norm), ROWS),
    "spectral norm": (wrapped(parametrizations.spectral_norm), ROWS),
    "a symmetric weight": (wrapped(symmetric), ROWS),
    "a ParameterList": (
        net(Net, lambda m, x: x * m.w[0] + m.w[1], w=lambda: nn.ParameterList([weight(16)] * 2)),
        ROWS,
    ),
    "lazy layers": (lambda: nn.Sequential(nn.LazyLinear(16), nn.ReLU(), nn.LazyLinear(3)), ROWS),
    "complex weights": (
        net(
            Net,
            lambda m, x: torch.fft.irfft(torch.fft.rfft(x) * m.filter, n=16),
            filter=lambda: nn.Parameter(torch.randn(9, dtype=torch.complex64)),
        ),
        ROWS,
    ),
    "keyword inputs": (ImageAndAge, il.Inputs(image=ROWS, age=ROWS[:, :1])),
    "a tuple of inputs as one argument": (TakesATuple, il.Inputs(ROWS, ROWS[:, :1])),
    "a dictionary as one argument": (TakesADictionary, il.Inputs(image=ROWS)),
    "returns a tuple": (net(Returns, lambda y: (y, y.mean())), ROWS),
    "returns a named tuple": (net(Returns, lambda y: Pair(y, y)), ROWS),
    "returns a dataclass": (net(Returns, Output), ROWS),
    "returns a dictionary without logits": (net(Returns, lambda y: {"out": y}), ROWS),
    "returns (n, classes, 1, 1)": (net(Returns, lambda y: y[:, :, None, None]), ROWS),
    "returns squeezed logits": (net(Returns, lambda y: y.squeeze()), ROWS),
    "returns numpy": (net(Returns, lambda y: y.detach().numpy()), ROWS),
    "returns nothing": (net(Returns, lambda y: None), ROWS),
    "a tuple in training": (net(Auxiliary, lambda y: (y, y)), ROWS),
    "a named tuple in training": (net(Auxiliary, lambda y: Pair(y, y)), ROWS),
    "a scripted block": (net(Net, lambda m, x: m.a(x), a=lambda: torch.jit.script(linear())), ROWS),
    "scripted as a whole": (lambda: torch.jit.script(rows(head)()), ROWS),
    "traced by torch.fx": (lambda: torch.fx.symbolic_trace(HeadFirst()), ROWS),
    "keeps activations": (KeepsActivations, ROWS),
    "counts steps in an attribute": (CountsSteps, ROWS),
    "appends to a list": (net(GrowingList, past=list), ROWS),
    "a running mean of its own": (OwnRunningMean, ROWS),
    "counts passes in a buffer": (
        lambda: Buffered(lambda m, x: x + 0 * m.buffer.add_(1), torch.zeros(())),
        ROWS,
    ),
    "a hook that refers to its network": (HookOfItsOwn, ROWS),
    "a hook that is a method": (HookAsMethod, ROWS),
    "a lambda that refers to its network": (LambdaOfItsOwn, ROWS),
    "weights set in a pre-hook": (weights_set_in_a_pre_hook, ROWS),
    "activation checkpointing": (
        net(Net, lambda m, x: checkpoint(m.a, x, use_reentrant=False), a=linear),
        ROWS,
    ),
    "branches on the batch": (net(Net, lambda m, x: x * 2 if x.mean() > 0.35 else x), ROWS),
    "branches on each row": (net(Net, each_row), ROWS),
    "exits early": (EarlyExit, ROWS),
    "dropout that is always on": (net(Net, lambda m, x: F.dropout(x, 0.5)), ROWS),
    "noise in training": (net(Net, noise_in_training), ROWS),
    "DropPath": (net(Net, drop_path), ROWS),
    "an autograd.Function": (net(Net, lambda m, x: SignSTE.apply(x - 0.3)), ROWS),
    "changes its input in place": (ChangesItsInput, ROWS),
    "RNN": (net(Recurrent, nn.RNN), SEQUENCES),
    "GRU of two layers": (lambda: Recurrent(nn.GRU, num_layers=2, dropout=0.1), SEQUENCES),
    "bidirectional LSTM": (lambda: Recurrent(nn.LSTM, 32, bidirectional=True), SEQUENCES),
    "only an LSTM": (
        net(TextNet, lambda m, _, x: m.rnn(x)[0][:, -1], 16, rnn=lambda: nn.LSTM(8, 16)),
        TOKENS,
    ),
    "LSTM over packed sequences": (
        net(TextNet, packed, 16, rnn=lambda: nn.LSTM(8, 16, batch_first=True), middle=linear),
        PADDED,
    ),
    "attention with a padding mask": (
        net(TextNet, attend, 8, attention=lambda: nn.MultiheadAttention(8, 2, batch_first=True)),
        PADDED,
    ),
    "attention over the batch": (SequenceFirst, SEQUENCES),
    "positions kept by length": (PositionsByLength, SEQUENCES),
    "embedding bag": (sequential(lambda: nn.EmbeddingBag(20, 16), linear, nn.ReLU, head), TOKENS),
    "Conv1d": (
        sequential(lambda: nn.Conv1d(5, 4, 3), nn.Flatten, lambda: nn.Linear(24, 16), head),
        SEQUENCES,
    ),
    "Conv3d": (sequential(lambda: nn.Conv3d(1, 2, 3), nn.Flatten, nn.ReLU, head), VOLUMES),
    "transposed convolution": (images(lambda: nn.ConvTranspose2d(16, 16, 2)), IMAGES),
    "grouped convolution": (images(lambda: nn.Conv2d(16, 16, 3, groups=4, dilation=2)), IMAGES),
    "batch norm without affine": (images(lambda: nn.BatchNorm2d(16, affine=False)), IMAGES),
    "batch norm without statistics": (
        images(lambda: nn.BatchNorm2d(16, track_running_stats=False)),
        IMAGES,
    ),
    "synchronised batch norm": (images(lambda: nn.SyncBatchNorm(16)), IMAGES),
    "instance norm": (images(lambda: nn.InstanceNorm2d(16)), IMAGES),
    "instance norm with statistics": (
        images(lambda: nn.InstanceNorm2d(16, track_running_stats=True)),
        IMAGES,
    ),
    "a map of logits": (lambda: images()()[:2], IMAGES),
    "a head that is not flattened": (lambda: images()()[:-1], IMAGES),
    "head without bias": (rows(lambda: nn.Linear(16, 3, bias=False)), ROWS),
    "one output": (rows(lambda: nn.Linear(16, 1)), ROWS),
    "one output, flattened": (rows(lambda: nn.Linear(16, 1), lambda: nn.Flatten(0)), ROWS),
    "log-softmax at the end": (rows(head, lambda: nn.LogSoftmax(1)), ROWS),
    "softmax at the end": (rows(head, lambda: nn.Softmax(1)), ROWS),
    "sigmoid at the end": (rows(head, nn.Sigmoid), ROWS),
    "batch norm at the end": (rows(head, lambda: nn.BatchNorm1d(3)), ROWS),
    "the first head of two": (ManyHeads, ROWS),
    "the head defined first": (HeadFirst, ROWS),
    "the sum of two heads": (SumOfHeads, ROWS),
    "no layer, only parameters": (PlainParameters, ROWS),
    "a cosine head": (CosineHead, ROWS),
    "a frozen body": (net(Net, body=lambda: nn.Linear(8, 16).requires_grad_(False)), ROWS),
    "a float64 layer": (lambda: OtherDtype(torch.float64), ROWS),
    "a bfloat16 layer": (lambda: OtherDtype(torch.bfloat16), ROWS),
    "int8 weights in a buffer": (
        lambda: Buffered(
            lambda m, x: F.linear(x, m.buffer.float() / 512),
            torch.randint(-127, 127, (16, 16), dtype=torch.int8),
        ),
        ROWS,
    ),
    "a parameter of size 0": (
        net(Net, lambda m, x: x + m.prompt.sum(0), prompt=lambda: weight(0, 16)),
        ROWS,
    ),
    "fake quantisation": (
        net(Net, lambda m, x: m.quantise(x), quantise=torch.ao.quantization.FakeQuantize),
        ROWS,
    ),
    "a hypernetwork": (net(Net, hypernetwork, generate=lambda: nn.Linear(16, 256)), ROWS),
    "a mixture of experts": (
        net(
            Net,
            routed,
            route=lambda: nn.Linear(16, 2),
            experts=lambda: nn.ModuleList([linear(), linear()]),
        ),
        ROWS,
    ),
    "a low-rank weight": (
        net(Net, lambda m, x: x @ (m.u @ m.v), u=lambda: weight(16, 2), v=lambda: weight(2, 16)),
        ROWS,
    ),
    "returns a view of its parameter": (net(ReturnsItsParameter, prior=lambda: weight(3)), ROWS),
    "a body under no_grad": (NoGradBody, ROWS),
    "a body shared with another network": (shares_its_body, ROWS),
    "DataParallel": (lambda: nn.DataParallel(Net()), ROWS),
    "torch.compile": (lambda: torch.compile(Net()), ROWS),
    "holds a lock": (net(Net, lock=threading.Lock), ROWS),
    "its own __getattr__": (GetAttr, ROWS),
    "a property device": (WithDevice, ROWS),
    "through numpy": (ThroughNumpy, ROWS),
    "layers in a plain list": (
        net(Net, lambda m, x: m.layers[1](m.layers[0](x)), layers=lambda: [linear(), linear()]),
        ROWS,
    ),
    "a random tensor that is no buffer": (
        net(Net, lambda m, x: x @ m.projection, projection=lambda: torch.randn(16, 16)),
        ROWS,
    ),
    "a fixed size of batch": (net(Net, lambda m, x: x.view(6, 16) * 1), ROWS),
}
