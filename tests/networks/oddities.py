"""Small modules that are odd but plausible, by name."""

import threading

import torch
from odd_modules import (
    Auxiliary,
    Buffered,
    ChangesItsInput,
    CosineHead,
    CountsSteps,
    EarlyExit,
    GetAttr,
    GrowingList,
    HeadFirst,
    HookAsMethod,
    HookOfItsOwn,
    ImageAndAge,
    KeepsActivations,
    LambdaOfItsOwn,
    ManyHeads,
    Net,
    NoGradBody,
    OtherDtype,
    Output,
    OwnRunningMean,
    Pair,
    PlainParameters,
    PositionsByLength,
    Recurrent,
    Returns,
    ReturnsItsParameter,
    SequenceFirst,
    SignSTE,
    SumOfHeads,
    TakesADictionary,
    TakesATuple,
    TextNet,
    ThroughNumpy,
    WithDevice,
    attend,
    drop_path,
    each_row,
    hypernetwork,
    noise_in_training,
    packed,
    routed,
    shares_its_body,
    symmetric,
    tied,
    weight,
    weights_set_in_a_pre_hook,
)
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

import impresslearn as il

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
