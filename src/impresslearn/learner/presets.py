"""Presets: settings of the network and the learner that belong together, by name.

The paper's presets follow its Table 2 and text. The paper is silent on edge-popup: for it the two
of ResNets take the settings of its authors' published code, and "paper_lenet" takes ours (Adam at
0.03, cosine, two epochs; theirs is RMSprop at 1e-4). `default` is the best found here
(docs/decisions.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

from impresslearn.checks import check_choice, check_known
from impresslearn.coefficients.learning import COEFFICIENT_RECIPE, can_fold
from impresslearn.errors import InputError
from impresslearn.masks import POPUP_RECIPE, Allocation, ScoreRule
from impresslearn.networks import Backbone
from impresslearn.state.settings import RECIPES, checked_tune
from impresslearn.training.loop import Recipe


@dataclass(frozen=True)
class Preset:
    """Everything that an experiment fixes before it starts.

    init, gain: of the backbone. masks: how many masks of `disjoint_bank`, kernels whole, a new
    learner starts with. own_head: whether tasks need heads of their own. more: further settings of
    the learner. The other fields are `ImpressLearner`'s settings of the same names.
    """

    description: str
    init: str
    allocation: Allocation
    basis_recipe: Recipe
    task_recipe: Recipe
    penalty: float = 0.0
    score_rule: ScoreRule = "magnitude"
    sparsity: float = 0.9
    gain: float = 1.0
    masks: int = 0
    own_head: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)

    def backbone_settings(self) -> dict[str, Any]:
        """Keyword arguments for `create_backbone`."""
        return {"init": self.init, "gain": self.gain}

    def mask_settings(self) -> dict[str, Any]:
        """Keyword arguments that concern trained masks, for `SupSup`."""
        names = ("allocation", "basis_recipe", "score_rule", "sparsity")
        return {name: getattr(self, name) for name in names}

    def learner_settings(self) -> dict[str, Any]:
        """Keyword arguments for `ImpressLearner`."""
        own = {"task_recipe": self.task_recipe, "penalty": self.penalty, **self.more}
        return self.mask_settings() | own

    def settings_on(
        self, backbone: Backbone, given: Mapping[str, Any], learner: Callable[..., Any]
    ) -> dict[str, Any]:
        """Keyword arguments for a learner's class on a network, with those given in their place.

        given: also recipe, which changes both recipes; each is a `Recipe` or a mapping of entries
        to change. Norm statistics are folded only where the network has some that can be. Raises
        InputError for settings that the class has not, and for a preset of tasks with heads of
        their own on a network whose tasks share one.
        """
        for setting in given:
            known = [*signature(learner).parameters, "recipe"]
            check_known("a learner has no setting", setting, known)
        if self.own_head and backbone.own_head is None:
            raise InputError(
                "this preset is for networks whose tasks have heads of their own, "
                'head="own", as from il.adapt(module)'
            )
        settings = self.learner_settings() | dict(given)
        both = settings.pop("recipe", {})
        for key in RECIPES:
            settings[key] = getattr(self, key).changed(both).changed(given.get(key, {}))
        if settings.get("precision") != "coded" and "bit_price" not in given:
            settings.pop("bit_price", None)
        tune = checked_tune(settings.get("tune", ()))
        if "fold_after" not in given and not can_fold(backbone, tune):
            settings.pop("fold_after", None)
        return settings


PRESETS = {
    "default": Preset(
        "Adam with cosine decay, signed-constant weights, Erdős–Rényi sparsity: the best found",
        init="signed_constant",
        gain=2.0,
        allocation="erdos_renyi",
        basis_recipe=POPUP_RECIPE,
        task_recipe=COEFFICIENT_RECIPE,
    ),
    "pretrained": Preset(
        "A trained network from `adapt`: masks that add to its weights, tuned norms and biases and "
        "a head, all coded",
        init="signed_constant",
        allocation="erdos_renyi",
        basis_recipe=POPUP_RECIPE,
        task_recipe=Recipe(lr=0.02, epochs=40, batch_size=32, min_steps=300, label_smoothing=0.1),
        masks=16,
        own_head=True,
        more={
            "start": "network",
            "granularity": "unit",
            "precision": "coded",
            "bit_price": 0.01,
            "tune": ("norm", "bias"),
            "fold_after": 0.5,
        },
    ),
    "few_labels": Preset(
        'A network with head="own" and a handful of examples a task: a coded linear readout over '
        "the features under all masks of its bank, or those of the network itself",
        init="signed_constant",
        gain=2.0,
        allocation="erdos_renyi",
        basis_recipe=POPUP_RECIPE,
        task_recipe=COEFFICIENT_RECIPE,
        own_head=True,
        more={"granularity": "readout", "precision": "coded", "bit_price": 0.001},
    ),
    "per_weight": Preset(
        "A coded whole number for each weight, without masks: a few kB a task, nothing shared",
        init="signed_constant",
        gain=2.0,
        allocation="erdos_renyi",
        basis_recipe=POPUP_RECIPE,
        task_recipe=Recipe(lr=0.02, epochs=10, min_steps=300, label_smoothing=0.05),
        more={"granularity": "weight", "precision": "coded", "bit_price": 0.5},
    ),
    "paper_lenet": Preset(
        "LeNet-300-100 on rotated and permuted MNIST, Table 2: RMSprop 0.002, batch 128, λ = 0; "
        "the recipe of edge-popup, on which the paper is silent, is ours",
        init="kaiming_normal",
        allocation="uniform",
        score_rule="score",
        basis_recipe=POPUP_RECIPE,
        task_recipe=Recipe(
            optimizer="rmsprop", lr=0.002, schedule="constant", epochs=5, batch_size=128
        ),
    ),
    "paper_resnet18": Preset(
        "ResNet-18 on Split-CIFAR-100, Table 2: Adam 0.02, batch 64, λ = 0.005; edge-popup as in "
        "the authors' published code",
        init="kaiming_normal",
        allocation="erdos_renyi",
        basis_recipe=Recipe(lr=0.001, epochs=100, batch_size=128),
        task_recipe=Recipe(
            lr=0.02, schedule="constant", momentum=0.9, weight_decay=0.1, epochs=20, batch_size=64
        ),
        penalty=0.005,
    ),
    "paper_resnet50": Preset(
        "ResNet-50 on Split-ImageNet, Table 2: Adam 0.0025, batch 96, λ = 0.005; edge-popup as in "
        "the authors' published code",
        init="kaiming_normal",
        allocation="erdos_renyi",
        basis_recipe=Recipe(lr=0.0025, epochs=100, batch_size=256, warmup_epochs=5),
        task_recipe=Recipe(
            lr=0.0025, schedule="constant", momentum=0.9, weight_decay=0.1, epochs=20, batch_size=96
        ),
        penalty=0.005,
    ),
}


def preset(name: str) -> Preset:
    """The preset of that name. Raises InputError naming the choices."""
    return PRESETS[check_choice("the preset", name, PRESETS)]


def list_presets() -> list[str]:
    """The names of all presets."""
    return list(PRESETS)
