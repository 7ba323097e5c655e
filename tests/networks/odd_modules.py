"""Small modules that are odd but plausible, as people write them."""

from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize


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
