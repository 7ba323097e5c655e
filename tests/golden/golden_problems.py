"""Tiny problems whose logits and byte counts golden.json keeps, in the public interface alone.

`tasks` yields every parametrisation x norm policy x precision that a learner accepts, `dedicated`
every norm policy x precision of a task with a trained mask of its own, under a shared head and
under one of its own. Weights, images and labels come from numpy's generator, whose numbers are the
same on every machine.
"""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import impresslearn as il

STEPS = 5
"""Few, so that what processors round differently has no time to grow."""
PRECISIONS = ("float32", "float16", "int8", "int5", "int4", "coded")
NORMS = ("none", "group", "batch", "per_task", "shared", "gathered")
"""What `il.adapt` makes of a network without norms, with group norms, with batch norms (three
policies), and with new batch norms, whose shared statistics the first task gathers."""

PARAMETRISATIONS: dict[str, dict[str, Any]] = {
    "layer": {},
    "layer_output_scale": {"output_scale": True},
    "unit": {"granularity": "unit"},
    "weight": {"granularity": "weight"},
    "own_head": {"head": "own"},
    "residual": {"head": "own", "start": "network"},
    "residual_weight": {"head": "own", "start": "network", "granularity": "weight"},
    "tuned": {"head": "own", "start": "network", "tune": ("norm", "bias")},
    "readout": {"head": "own", "granularity": "readout"},
    "projected_readout": {"head": "own", "granularity": "readout"},
}


class Problem(NamedTuple):
    """A learner's network and settings, as the keys of golden.json name them."""

    parametrisation: str
    norm: str
    precision: str

    @property
    def key(self) -> str:
        return "/".join(self)


def tasks() -> Iterator[Problem]:
    """Every combination that a learner accepts."""
    for parametrisation, settings in PARAMETRISATIONS.items():
        for norm in NORMS:
            if norm == "gathered" or (norm == "per_task" and "readout" in parametrisation):
                continue  # without a basis task, or features that all tasks share
            for precision in PRECISIONS:
                if precision == "coded" or settings.get("granularity") != "weight":
                    yield Problem(parametrisation, norm, precision)


def dedicated() -> Iterator[Problem]:
    """Tasks with a mask of their own, whose precision is that of their heads and statistics."""
    for name in ("dedicated", "dedicated_own_head"):
        for norm in NORMS:
            for precision in PRECISIONS:
                yield Problem(name, norm, precision)


class ConvNet(nn.Module):
    """Two convolutions with a norm each, and a linear head; biases everywhere.

    A ReLU stands between convolution and norm. Right before a batch norm, a bias or a scale would
    have a gradient of nothing but rounding, of which Adam makes whole steps.
    """

    def __init__(self, norm: str) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(2, 6, 3, padding=1), nn.ReLU(), _norm(norm), nn.MaxPool2d(2),
            nn.Conv2d(6, 6, 3, padding=1), nn.ReLU(), _norm(norm),
        )  # fmt: skip
        self.head = nn.Linear(6, 3)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.body(images).mean((2, 3)))


def _norm(norm: str) -> nn.Module:
    if norm == "none":
        return nn.Identity()
    return nn.GroupNorm(3, 6) if norm == "group" else nn.BatchNorm2d(6)


def network(norm: str) -> ConvNet:
    """The network, its weights from numpy, its running statistics as if trained or new."""
    module, generator = ConvNet(norm), np.random.default_rng(7)
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            is_statistic = "running" in name
            if not tensor.is_floating_point() or (is_statistic and norm == "gathered"):
                continue
            numbers = torch.from_numpy(generator.standard_normal(tuple(tensor.shape)))
            tensor.copy_(1 + 0.2 * numbers.abs() if name.endswith("var") else 0.5 * numbers)
    return module


def images(task: int, count: int = 24) -> tuple[Tensor, Tensor]:
    """Noisy copies (count, 2, 6, 6) of one random picture per class, and their labels, 0 to 2."""
    generator = np.random.default_rng(100 + task)
    pictures = generator.standard_normal((3, 2, 6, 6))
    labels = np.arange(count) % 3
    noisy = pictures[labels] + 0.3 * generator.standard_normal((count, 2, 6, 6))
    return torch.from_numpy(noisy.astype(np.float32)), torch.from_numpy(labels)


def fixed_inputs() -> Tensor:
    """Four inputs (4, 2, 6, 6), which no task learns from."""
    return images(9, 4)[0]


@functools.cache
def _backbone(norm: str, head: str) -> il.Backbone:
    policy = norm if norm in ("batch", "per_task") else "shared"
    return il.adapt(network(norm), norm=policy, input_shape=(2, 6, 6), head=head)


def _learner(norm: str, precision: str, head: str = "shared", **settings: Any) -> il.ImpressLearner:
    """A silent learner without tasks; settings: of `ImpressLearner`."""
    # Coded numbers move from one integer to the next: only large steps at a low price show it.
    is_coded = precision == "coded"
    recipe = il.Recipe(lr=0.3 if is_coded else 0.05, epochs=0, min_steps=STEPS, batch_size=12)
    settings = {"start": "mixture", "sparsity": 0.5, "seed": 3, **settings}
    settings |= {"bit_price": 0.01} if is_coded else {}
    return il.ImpressLearner(
        _backbone(norm, head), precision=precision, basis_recipe=recipe, task_recipe=recipe,
        progress=False, **settings,
    )  # fmt: skip


@functools.cache
def _bank(norm: str, head: str) -> il.MaskBank:
    """One trained mask and two random ones."""
    return _learner(norm, "float32", head).learn_basis("basis", images(0)).add_random_masks(2).bank_


def learn(problem: Problem) -> il.ImpressLearner:
    """A learner with a task "learned" over three masks, or with a dedicated mask."""
    if problem.parametrisation.startswith("dedicated"):
        head = "own" if problem.parametrisation == "dedicated_own_head" else "shared"
        return _learner(problem.norm, problem.precision, head).learn_basis("learned", images(1))
    settings = PARAMETRISATIONS[problem.parametrisation]
    bank = _bank(problem.norm, settings.get("head", "shared"))
    learner = _learner(problem.norm, problem.precision, bank=bank, **settings)
    if problem.parametrisation == "projected_readout":
        learner.learn_features(images(0), images(1), dimensions=5)
    return learner.learn_task("learned", images(1))
