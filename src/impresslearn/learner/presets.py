"""Presets: settings of the network and the learner that belong together, by name.

The paper's presets follow its Table 2 and text. The paper does not give the recipe of edge-popup:
the two presets of ResNets take the settings of its authors' published code, and "paper_lenet" takes
ours (Adam at 0.03, cosine, two epochs; theirs is RMSprop at 1e-4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from impresslearn.checks import check_choice
from impresslearn.coefficients.deltas import can_fold
from impresslearn.coefficients.learning import COEFFICIENT_RECIPE
from impresslearn.errors import InputError
from impresslearn.learner.settings import RECIPES, checked_tune
from impresslearn.masks import POPUP_RECIPE, Allocation, ScoreRule
from impresslearn.networks import Backbone
from impresslearn.training.loop import Recipe


@dataclass(frozen=True)
class Preset:
    """Settings that are fixed before anything is learned.

    - init, gain: of the network.
    - own_head: whether the network must have a head per task.
    - more: further settings of `ImpressLearner`. All other fields are its settings of that name.
    - small: settings in place of these on a small network, where max_bytes has a bit for each
      coefficient; `masks` is the number of disjoint masks, kernels whole, to start with.
    """

    description: str
    init: str = "signed_constant"
    allocation: Allocation = "erdos_renyi"
    basis_recipe: Recipe = POPUP_RECIPE
    task_recipe: Recipe = COEFFICIENT_RECIPE
    penalty: float = 0.0
    score_rule: ScoreRule = "magnitude"
    sparsity: float = 0.9
    gain: float = 1.0
    own_head: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)
    small: Mapping[str, Any] = field(default_factory=dict)

    def masks_on(self, backbone: Backbone, max_bytes: int | None) -> int:
        """The number of masks that a learner starts with; 0 on a network that is not small."""
        masks = self.small.get("masks", 0)
        numbers = masks * sum(layer.units for layer in backbone.layers)
        return masks if numbers <= 8 * (max_bytes or 0) else 0

    def backbone_settings(self) -> dict[str, Any]:
        """Keyword arguments for `create_backbone`."""
        return {"init": self.init, "gain": self.gain}

    def mask_settings(self) -> dict[str, Any]:
        """The settings of trained masks, as keyword arguments for `SupSup`."""
        names = ("allocation", "basis_recipe", "score_rule", "sparsity")
        return {name: getattr(self, name) for name in names}

    def learner_settings(self) -> dict[str, Any]:
        """Keyword arguments for `ImpressLearner`."""
        task_settings = {"task_recipe": self.task_recipe, "penalty": self.penalty}
        return {**self.mask_settings(), **task_settings, **self.more}

    def settings_on(self, backbone: Backbone, overrides: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments for a learner's class on a network.

        - overrides: settings in place of the preset's. A recipe is a `Recipe` or a mapping of the
          entries to change; `recipe` changes both recipes.

        Raises InputError if the preset needs heads of the tasks' own and the network has none.
        """
        if self.own_head and backbone.own_head is None:
            raise InputError(
                "this preset needs a network whose tasks have their own heads: create it with "
                'head="own", or adapt one by il.adapt(module)'
            )
        settings = {**self.learner_settings(), **overrides}
        small: Mapping[str, Any] = {}
        if self.masks_on(backbone, settings.get("max_bytes")):
            small = {name: value for name, value in self.small.items() if name != "masks"}
            settings = {**settings, **small, **overrides}
        # Norm statistics can only be folded into norms that the network has.
        tune = checked_tune(settings.get("tune", ()))
        if "fold_after" not in overrides and not can_fold(backbone, tune):
            settings.pop("fold_after", None)
        both = settings.pop("recipe", {})
        for name in RECIPES:
            preset_recipe = small.get(name, getattr(self, name))
            settings[name] = preset_recipe.changed(both).changed(overrides.get(name, {}))
        if settings.get("precision") != "coded" and "bit_price" not in overrides:
            settings.pop("bit_price", None)
        return settings


PRESETS = {
    "default": Preset(
        "Adam with cosine decay, signed-constant weights, Erdős–Rényi sparsity: our best settings",
        gain=2.0,
    ),
    "pretrained": Preset(
        "A pretrained network from `adapt`: a coded readout, and where it pays changes of norms "
        "and biases; all at once, with masks, in a small network; in 2,000 bytes",
        task_recipe=Recipe(lr=0.0075, epochs=8, batch_size=32, min_steps=200, label_smoothing=0.1),
        own_head=True,
        more={
            "start": "network",
            "granularity": "unit",
            "precision": "coded",
            "bit_price": 0.003,
            "tune": ("norm", "bias"),
            "max_bytes": 2000,
            "staged": True,
        },
        # On a ResNet-20 training everything at once is ahead of stages: 89.8 against 88.1%.
        small={
            "staged": False,
            "masks": 16,
            "fold_after": 0.5,
            "task_recipe": Recipe(
                lr=0.02, epochs=40, batch_size=32, min_steps=300, label_smoothing=0.1
            ),
        },
    ),
    "few_labels": Preset(
        'A network with head="own" and few examples per task: a coded linear readout of the '
        "features under all masks of its bank, or of the network's own features",
        gain=2.0,
        own_head=True,
        more={
            "granularity": "readout",
            "precision": "coded",
            "bit_price": 0.001,
            "max_bytes": 500,
        },
    ),
    "per_weight": Preset(
        "A coded integer for each weight, without masks: a few kB per task, nothing shared",
        gain=2.0,
        task_recipe=Recipe(lr=0.02, epochs=10, min_steps=300, label_smoothing=0.05),
        more={"granularity": "weight", "precision": "coded", "bit_price": 0.5},
    ),
    "paper_lenet": Preset(
        "LeNet-300-100 on rotated and permuted MNIST, Table 2: RMSprop 0.002, batch 128, λ = 0; "
        "the recipe of edge-popup, which the paper does not give, is ours",
        init="kaiming_normal",
        allocation="uniform",
        score_rule="score",
        task_recipe=Recipe(
            optimizer="rmsprop", lr=0.002, schedule="constant", epochs=5, batch_size=128
        ),
    ),
    "paper_resnet18": Preset(
        "ResNet-18 on Split-CIFAR-100, Table 2: Adam 0.02, batch 64, λ = 0.005; edge-popup as in "
        "the authors' published code",
        init="kaiming_normal",
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


@dataclass(frozen=True)
class Candidate:
    """A method to try: a preset, or a variation of one.

    - name: as tables show it.
    - preset: a name of `list_presets`.
    - price, bytes: a `bit_price`, and what a task of 1,000 digits took at it.
    - masks: disjoint masks that are drawn.
    - basis: whether masks are trained on basis tasks.
    - features: whether readouts see principal components of their features.
    - backbone: name of the network to create; None takes the network that `advise` gets.
    - settings: of `ImpressLearner`, in place of the preset's.
    """

    name: str
    preset: str
    price: float
    bytes: int
    masks: int = 0
    basis: bool = False
    features: bool = False
    backbone: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def suits(self, backbone: Backbone | None, has_basis: bool) -> bool:
        """Whether it can be tried on a network; None stands for one made for the data."""
        chosen = PRESETS[self.preset]
        pretrained = backbone is not None and backbone.pretrained
        if chosen.more.get("start") == "network":
            return pretrained
        if backbone is not None and chosen.own_head and backbone.own_head is None:
            return False
        # A mixture of masks starts from nothing and would throw away pretrained weights.
        if pretrained and (self.masks or self.basis):
            return False
        return (has_basis or not self.basis) and (backbone is None or self.backbone is None)


_LAYERS = {"granularity": "layer", "precision": "coded"}
_UNITS = {"granularity": "unit", "precision": "coded"}

# The quickest come first, so that a short time is well used.
CANDIDATES = (
    Candidate("readout of the inputs", "few_labels", 0.001, 760, backbone="linear"),
    Candidate("readout of the network", "few_labels", 0.001, 660),
    Candidate("readout of learned features", "few_labels", 0.001, 810, basis=True, features=True),
    Candidate("readout under basis masks", "few_labels", 0.002, 1400, basis=True),
    Candidate("basis masks per layer", "default", 0.03, 60, basis=True, settings=_LAYERS),
    Candidate("one integer per weight", "per_weight", 0.26, 460),
    Candidate("basis masks per unit", "default", 0.07, 450, basis=True, settings=_UNITS),
    Candidate("20 disjoint masks per unit", "default", 0.08, 660, masks=20, settings=_UNITS),
    Candidate("60 disjoint masks per unit", "default", 0.065, 700, masks=60, settings=_UNITS),
    Candidate("a readout, then the network", "pretrained", 0.003, 1700),
)
