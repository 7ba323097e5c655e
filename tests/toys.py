"""Small problems and networks that are learned in a blink, shared by the tests."""

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset
from typer.testing import CliRunner

from impresslearn import (
    Backbone,
    ImpressLearner,
    Recipe,
    adapt,
    create_backbone,
    methods,
    random_bank,
)
from impresslearn.cli.app import app
from impresslearn.data import Examples, Preprocessing
from impresslearn.data.file_reader import FileReader
from impresslearn.errors import InputError
from impresslearn.networks.layers import MaskableLayer

FEATURES = 16
WIDTHS = (24, 12)
QUICK = Recipe(lr=0.03, epochs=0, min_steps=60, batch_size=32)

LAYERS = (MaskableLayer("conv.weight", (4, 2, 3, 3)), MaskableLayer("head.weight", (3, 20)))

Data = tuple[Tensor, Tensor]


def blobs(seed: int = 0, classes: int = 3, count: int = 96) -> Data:
    """Gaussian clusters (count, 16), and their labels 0 to classes - 1."""
    generator = torch.Generator().manual_seed(seed)
    centres = 2 * torch.randn(classes, FEATURES, generator=generator)
    labels = torch.arange(count) % classes
    return centres[labels] + 0.5 * torch.randn(count, FEATURES, generator=generator), labels


def pictures(seed: int = 0, classes: int = 3, count: int = 24, size: int = 8) -> Data:
    """Noisy copies (count, 3, size, size) of one random picture a class, and their labels."""
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.randn(classes, 3, size, size, generator=generator)
    labels = torch.arange(count) % classes
    return patterns[labels] + 0.3 * torch.randn(count, 3, size, size, generator=generator), labels


def cifar_arrays(each: int = 4) -> dict[str, Any]:
    """A subset of CIFAR-100, all of grey level 2 * label but for a green pixel.

    each: images of a class, in training and in testing
    """
    labels = np.tile(np.arange(100), each)
    levels = (2 * labels)[:, None, None, None]
    images = np.broadcast_to(levels, (len(labels), 32, 32, 3)).astype(np.uint8)
    images[:, 2, 9] = (0, 255, 0)
    parts = {"images": images, "labels": labels}
    both = {f"{part}_{key}": value for part in ("train", "test") for key, value in parts.items()}
    return both | {"class_names": np.array([f"class-{number:02d}" for number in range(100)])}


def lenet(num_classes: int = 3, **settings: Any) -> Backbone:
    """A LeNet 16-24-12-classes."""
    chosen: dict[str, Any] = {"init": "signed_constant", "gain": 2.0} | settings
    return create_backbone(
        "lenet_300_100", num_classes, in_features=FEATURES, widths=WIDTHS, **chosen
    )


def resnet(norm: str, num_classes: int = 3, **settings: Any) -> Backbone:
    """A ResNet-18 of width 4."""
    return create_backbone("resnet18", num_classes, norm=norm, width=4, **settings)


class Then(nn.Module):
    """A function as a step."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.forward = function


class ConvNet(nn.Module):
    """Convolution, batch norm, dropout, head, all with biases."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2))
        self.head = nn.Linear(8, 3)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.5, generator=generator)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.body(images).mean((2, 3)))


def quick_learner(backbone: Backbone | None = None, **settings: Any) -> ImpressLearner:
    """A silent learner that takes 60 steps a task."""
    quiet: dict[str, Any] = {
        "sparsity": 0.7,
        "basis_recipe": QUICK,
        "task_recipe": QUICK,
        "progress": False,
    }
    return ImpressLearner(lenet() if backbone is None else backbone, **quiet | settings)


def mlp(hidden: int = 16, classes: int = 3, inputs: int = FEATURES) -> nn.Sequential:
    """Two linear layers of a user's own, with the weights of seed 0."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def few_labels(network: nn.Sequential | Backbone, **settings: Any) -> ImpressLearner:
    """A silent learner of readouts over a backbone, or a module like `mlp`."""
    if not isinstance(network, Backbone):
        network = adapt(network, head="own", input_shape=(network[0].in_features,))
    return ImpressLearner.from_preset(network, "few_labels", progress=False, **settings)


CODED = {"precision": "coded", "bit_price": 0.05}
KINDS: dict[str, dict[str, Any]] = {
    "a layer": {},
    "a unit, scaled": {"granularity": "unit", "output_scale": True},
    "int4": {"granularity": "unit", "precision": "int4"},
    "a layer, coded": CODED | {"output_scale": True},
    "a unit, coded": CODED | {"granularity": "unit"},
    "a weight": CODED | {"granularity": "weight"},
}
"""Name -> settings of a learner whose tasks keep numbers of this kind."""

BASELINES: dict[str, Callable[[], Any]] = {
    "SupSup": lambda: methods.SupSup(lenet(), basis_recipe=QUICK, progress=False),
    "FineTuning": lambda: methods.FineTuning(lenet(), recipe=QUICK, progress=False),
    "SequentialFineTuning": lambda: methods.SequentialFineTuning(
        lenet(), recipe=QUICK, progress=False
    ),
    "LoRA": lambda: methods.lora(lenet(), rank=2, recipe=QUICK, progress=False),
    "Hybrid": lambda: methods.Hybrid(
        lenet(), random_bank(lenet().layers, 3), recipe=QUICK, progress=False
    ),
}


def npy(values: Any) -> bytes:
    """An array as an .npy file."""
    stream = io.BytesIO()
    np.save(stream, np.asarray(values))
    return stream.getvalue()


def read_examples(path: Any, label_column: str | None = None, **layout: Any) -> Any:
    """Labelled examples of a file, as a `FileReader` of this `Preprocessing` reads them."""
    return FileReader(label_column, Preprocessing(**layout)).examples(path)


def read_inputs(path: Any, label_column: str | None = None, **layout: Any) -> Examples:
    """Inputs of a file, as a `FileReader` of this `Preprocessing` reads them."""
    return FileReader(label_column, Preprocessing(**layout)).inputs(path)


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    """Whether two masks, or sets of weights, are equal."""
    return first.keys() == second.keys() and all(
        torch.equal(each, second[name]) for name, each in first.items()
    )


def refused(
    match: str, verb: Callable[..., Any], *given: Any, error: type = InputError, **settings: Any
) -> None:
    """Checks that a call fails with an error of one line."""
    with pytest.raises(error, match=match) as caught:
        verb(*given, **settings)
    assert "\n" not in str(caught.value)


def inferred(
    learner: ImpressLearner, tasks: dict[str, Any], count: int, *, trials: int, **settings: Any
) -> tuple[float, float]:
    """How often batches of this many of a task's inputs find it, and are called unknown."""
    generator = np.random.default_rng(0)
    right, rejected = [], []
    for name, inputs in tasks.items():
        for _ in range(trials):
            rows = generator.choice(len(inputs), count, replace=False)
            guess = learner.infer_task(inputs[rows], **settings)
            right.append(guess.best == name)
            rejected.append(guess.unknown)
    return float(np.mean(right)), float(np.mean(rejected))


@contextmanager
def torch_default(name: str) -> Iterator[None]:
    """Torch's default dtype of this name, or its default device "meta"."""
    is_dtype = name != "meta"
    torch.set_default_device(None if is_dtype else name)
    torch.set_default_dtype(getattr(torch, name) if is_dtype else torch.float32)
    try:
        yield
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)


@contextmanager
def threads(number: int) -> Iterator[None]:
    """As many threads of torch."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_a_new_process(*arguments: str, **environment: str) -> str:
    """What Python prints, in a process of its own that must end well."""
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=os.environ | environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def invoke(*arguments: object) -> Any:
    """What a command printed and how it ended, run in this process."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def run(*arguments: object) -> str:
    """What a command prints that must end well."""
    result = invoke(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


class Pairs(Dataset):
    """Inputs, to which each reading adds what `noise` gives, and their labels."""

    def __init__(self, inputs: Any, labels: Any, noise: Callable[[], Any] | None = None) -> None:
        self.inputs, self.labels, self.noise = inputs, labels, noise

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        value = self.inputs[index]
        return value if self.noise is None else value + self.noise(), self.labels[index]


class Flow(IterableDataset):
    """What the iterator gives that `begin` returns."""

    def __init__(self, begin: Callable[[], Any]) -> None:
        self.begin = begin

    def __iter__(self) -> Iterator[Any]:
        return iter(self.begin())
