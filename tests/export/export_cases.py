"""Tasks to export, and inputs for them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from impresslearn import Backbone, ImpressLearner, Recipe
from impresslearn.export import FinishedTask
from impresslearn.networks import adapt
from toys import blobs, lenet, pictures, quick_learner, resnet

BRIEF = Recipe(lr=0.03, epochs=0, min_steps=3, batch_size=16)
RESNET_NORMS = ("batch", "per_task", "shared", "group")


class Tied(nn.Module):
    """Two layers with one weight, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(16, 16, bias=False)
        self.again = nn.Linear(16, 16)
        self.again.weight = self.encode.weight
        self.head = nn.Linear(16, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(torch.relu(self.again(torch.relu(self.encode(inputs)))))


class Encoder(nn.Module):
    """A transformer layer over (n, 2, 8), averaged, with a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.layer(inputs).mean(1))


class Labelled(nn.Module):
    """A module whose attributes have the names that an export would use."""

    def __init__(self) -> None:
        super().__init__()
        self.classes = 3
        self.layer = nn.Linear(16, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(inputs)[:, : self.classes]


def learned(backbone: Backbone, *, small: bool) -> ImpressLearner:
    """A learner with a basis task "basis" (labels 0, 1, 2) and a learned one "new" ("c", "d").

    small: whether inputs are (16,) and not (3, 8, 8).
    """
    learner = quick_learner(backbone, basis_recipe=BRIEF, task_recipe=BRIEF, output_scale=True)
    draw = blobs if small else pictures
    learner.learn_basis("basis", draw(0, 3, 24))
    inputs, labels = draw(1, 2, 24)
    learner.learn_task("new", (inputs, ["cd"[label] for label in labels.tolist()]))
    return learner


def finished(learner: ImpressLearner, name: str = "new") -> FinishedTask:
    """What a learner hands over to be exported."""
    return FinishedTask.of(learner._state, name)


def lenet_learner(**settings) -> ImpressLearner:
    return learned(lenet(3, **settings), small=True)


def resnet_learner(norm: str) -> ImpressLearner:
    return learned(resnet(norm, 5), small=False)


def adapted_learner(module: nn.Module, *, small: bool = True, **settings) -> ImpressLearner:
    return learned(adapt(module, **settings), small=small)
