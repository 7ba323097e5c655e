"""Tasks to export, and inputs for them."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from impresslearn import Backbone, ImpressLearner, Recipe
from impresslearn.networks import adapt
from models import Patches
from toys import ConvNet, blobs, lenet, pictures, quick_learner, resnet

BRIEF = Recipe(lr=0.03, epochs=0, min_steps=3, batch_size=16)
FLAT, IMAGES = blobs(5)[0], pictures(5)[0]


class Tied(nn.Sequential):
    """Two layers with one weight, and an attribute of a name that an export would use."""

    def __init__(self) -> None:
        first, again = nn.Linear(16, 16, bias=False), nn.Linear(16, 16)
        super().__init__(first, nn.ReLU(), again, nn.ReLU(), nn.Linear(16, 4))
        again.weight, self.classes = first.weight, 4

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs)[:, : self.classes]


BACKBONES: dict[str, Callable[[], Backbone]] = {
    "lenet": lambda: lenet(3),
    **{
        name: lambda name=name: adapt(lenet(3).module.to(getattr(torch, name)), input_shape=(16,))
        for name in ("float16", "bfloat16", "float64")
    },
    "tied": lambda: adapt(Tied(), head="shared"),
    "transformer": lambda: adapt(Patches()),
    "used twice": lambda: adapt(
        nn.Sequential(body := lenet(16).module, body, nn.Linear(16, 3)), head="shared"
    ),
    "inside": lambda: adapt(
        nn.Sequential(nn.Dropout2d(0.5), resnet("group", 5).module), head="shared"
    ),
    **{f"resnet {n}": lambda n=n: resnet(n, 5) for n in ("batch", "per_task", "shared", "group")},
    **{
        f"convnet {n}": lambda n=n: adapt(ConvNet(), norm=n, input_shape=(3, 8, 8))
        for n in ("batch", "per_task", "shared")
    },
}


def learned(backbone: Backbone | str) -> tuple[ImpressLearner, Tensor]:
    """A learner with a basis task "basis" (labels 0, 1, 2) and a learned one "new" ("c", "d").

    backbone: also by its name in `BACKBONES`. Returns inputs of the backbone's dtype as well.
    """
    made = BACKBONES[backbone]() if isinstance(backbone, str) else backbone
    images = made.layers[0].shape[1] == 3
    draw, inputs = (pictures, IMAGES) if images else (blobs, FLAT)
    learner = quick_learner(made, basis_recipe=BRIEF, task_recipe=BRIEF, output_scale=True)
    learner.learn_basis("basis", draw(0, 3, 24))
    values, labels = draw(1, 2, 24)
    learner.learn_task("new", (values, ["cd"[label] for label in labels.tolist()]))
    return learner, inputs.to(made.dtype)
