"""The settings of a learner, and presets: named sets of settings that belong together.

The "paper_…" presets follow Table 2 and the text of the paper. For edge-popup, "paper_lenet" uses
our own recipe (Adam at 0.03, cosine, two epochs) instead of the authors' RMSprop at 1e-4.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, get_args

from impresslearn.checks import (
    check_choice,
    check_flag,
    check_integer,
    check_kind,
    check_number,
    check_seed,
)
from impresslearn.coefficients.deltas import can_fold
from impresslearn.coefficients.learning import COEFFICIENT_RECIPE
from impresslearn.coefficients.parametrisation import CoefficientSpec
from impresslearn.coefficients.quantisation import PRECISIONS, Precision
from impresslearn.data.preprocessing import Preprocessing
from impresslearn.errors import InputError
from impresslearn.masks.edge_popup import POPUP_RECIPE, RULES, ScoreRule
from impresslearn.masks.sparsity import ALLOCATIONS, Allocation, check_sparsity
from impresslearn.networks import Backbone, BlockFeatures
from impresslearn.networks.layers import TUNED, TunedKind
from impresslearn.training.loop import Recipe

StartName = Literal["mixture", "network"]
STARTS: tuple[StartName, ...] = get_args(StartName)
RECIPES = ("basis_recipe", "task_recipe")
DEFAULT_PRICE = 1.0
HIGHEST_PRICE = 1e9  # the largest bit_price; above it gradients overflow float32


def checked_tune(tune: Any) -> tuple[TunedKind, ...]:
    """The setting `tune` as a tuple without duplicates. Raises InputError for other values."""
    words: Any = (tune,) if isinstance(tune, str) else tune
    if not isinstance(words, Iterable):
        raise InputError(f"tune must be a tuple of words out of {', '.join(TUNED)}, got {tune!r}")
    return tuple(check_choice("tune", kind, TUNED) for kind in dict.fromkeys(words))


@dataclass(frozen=True)
class LearnerSettings:
    """The settings of `ImpressLearner` that determine what is learned, checked."""

    sparsity: float
    allocation: Allocation
    granularity: str
    output_scale: bool
    precision: Precision
    bit_price: float
    penalty: float
    basis_recipe: Recipe
    task_recipe: Recipe
    score_rule: ScoreRule
    seed: int
    preprocessing: Preprocessing | None
    start: StartName
    tune: tuple[TunedKind, ...]
    fold_after: float
    max_bytes: int | None
    staged: bool

    def __post_init__(self) -> None:
        checked = {
            "sparsity": check_sparsity(self.sparsity),
            "allocation": check_choice("allocation", self.allocation, ALLOCATIONS),
            "output_scale": check_flag("output_scale", self.output_scale),
            "precision": check_choice("precision", self.precision, PRECISIONS),
            "bit_price": check_number("bit_price", self.bit_price, 0.0, HIGHEST_PRICE),
            "penalty": check_number("penalty", self.penalty, 0.0),
            "score_rule": check_choice("score_rule", self.score_rule, RULES),
            "seed": check_seed(self.seed),
            "start": check_choice("start", self.start, STARTS),
            "fold_after": check_number("fold_after", self.fold_after, 0.0, 1.0),
            "tune": checked_tune(self.tune),
            "staged": check_flag("staged", self.staged),
        }
        vars(self).update(checked)
        if self.max_bytes is not None:
            check_integer("max_bytes", self.max_bytes, 1)
            if self.precision != "coded" or not self.bit_price:
                raise InputError('max_bytes needs precision="coded" and a bit_price above 0')
        if self.precision != "coded" and self.bit_price != DEFAULT_PRICE:
            raise InputError('bit_price is for precision="coded"; with another leave it out')
        if self.staged and (self.start != "network" or self.precision != "coded"):
            raise InputError('staged needs start="network" and precision="coded"')
        if self.fold_after and "norm" not in self.tune:
            raise InputError('fold_after needs norms that are tuned: tune=("norm",)')
        numbers = self.spec.parametrisation  # raises InputError if the settings do not fit
        if self.penalty and (self.start == "network" or not numbers.mixes_masks()):
            line = f"with start={self.start!r} and granularity={self.granularity!r} it must be 0"
            raise InputError(f"penalty is the penalty of a mixture; {line}")
        for name in RECIPES:
            check_kind(name, getattr(self, name), Recipe)
        if self.preprocessing is not None:
            check_kind("preprocessing", self.preprocessing, Preprocessing)

    @cached_property
    def spec(self) -> CoefficientSpec:
        """The kind of numbers that a task learns."""
        price = self.bit_price if self.precision == "coded" else None
        residual = self.start == "network"
        return CoefficientSpec(self.granularity, self.output_scale, price, residual, self.tune)

    def values(self) -> dict[str, Any]:
        """The settings by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def plain(self) -> dict[str, Any]:
        """The settings as JSON values."""
        plain = self.values()
        for name in (*RECIPES, "preprocessing"):
            if plain[name] is not None:
                plain[name] = plain[name].settings()
        return plain

    def task_history(self, seed: int) -> dict[str, Any]:
        """The settings and the seed of a task's training, for the task's history."""
        history: dict[str, Any] = {"seed": seed, "granularity": self.granularity}
        history |= {"start": self.start, "penalty": self.penalty}
        if self.precision == "coded":
            history["bit_price"] = self.bit_price
        if self.tune:
            history |= {"tune": list(self.tune), "fold_after": self.fold_after}
        return history | self.task_recipe.settings()


def restored_settings(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments for `ImpressLearner` from the JSON values of `LearnerSettings.plain`.

    Raises KeyError, TypeError or InputError for other values.
    """
    settings = {field.name: plain[field.name] for field in fields(LearnerSettings)}
    for name in RECIPES:
        settings[name] = Recipe(**settings[name])
    if settings["preprocessing"] is not None:
        settings["preprocessing"] = Preprocessing(**settings["preprocessing"])
    return settings


@dataclass(frozen=True)
class Preset:
    """A set of settings for a network and its learner.

    - init, gain: arguments of `create_backbone`.
    - own_head: whether the preset needs a network with a head per task.
    - more: further settings of `ImpressLearner`, as are the fields from `allocation` to `sparsity`.
    - small: settings that replace the others on a small network, one for which max_bytes allows
      at least a bit per coefficient, and whose head reads only the last block. The entry `masks`
      is a number of disjoint masks to draw.
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

    def settings_on(
        self, backbone: Backbone, overrides: Mapping[str, Any]
    ) -> tuple[dict[str, Any], int]:
        """Keyword arguments of `ImpressLearner` for a network, and a number of masks to draw.

        Overrides and errors are as in `ImpressLearner.from_preset`.
        """
        if self.own_head and backbone.own_head is None:
            line = "this preset needs a network whose tasks have their own heads"
            raise InputError(f'{line}: create it with head="own", or adapt one by il.adapt(module)')
        names = ("allocation", "basis_recipe", "task_recipe", "penalty", "score_rule", "sparsity")
        settings = {name: getattr(self, name) for name in names} | {**self.more, **overrides}
        small = dict(self.small)
        masks = small.pop("masks", 0)
        numbers = masks * sum(layer.units for layer in backbone.layers)
        is_large = numbers > 8 * (settings.get("max_bytes") or 0)
        # Over all blocks, stages are as accurate, with half of the bytes and a fifth of the time.
        if is_large or isinstance(backbone.module, BlockFeatures):
            small, masks = {}, 0
        settings |= {**small, **overrides}
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
        return settings, masks


PRESETS = {
    "default": Preset(
        "Adam with cosine decay, signed-constant weights, Erdős–Rényi sparsity: our best settings",
        gain=2.0,
    ),
    "pretrained": Preset(
        "A pretrained network from `adapt`: a coded readout, then changes of norms and biases if "
        "they pay; in a small network all at once, with masks; in 2,000 bytes",
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
        # On a ResNet-20, training all at once gives 90.1% in 1.9 kB, and stages 86.9% in 0.6 kB.
        small={
            "staged": False,
            "masks": 16,
            "fold_after": 0.5,
            "task_recipe": Recipe(
                lr=0.03, epochs=20, batch_size=32, min_steps=300, label_smoothing=0.1
            ),
        },
    ),
    "few_labels": Preset(
        'A network with head="own" and few examples per task: a coded linear readout of the '
        "features under each mask of its bank, or of the network's own features",
        gain=2.0,
        own_head=True,
        more={"granularity": "readout", "precision": "coded", "bit_price": 0.001, "max_bytes": 500},
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
    """The preset with this name. Raises InputError, which lists the names, if there is none."""
    return PRESETS[check_choice("the preset", name, PRESETS)]


def list_presets() -> list[str]:
    """The names of all presets."""
    return list(PRESETS)


@dataclass(frozen=True)
class Candidate:
    """A method for `advise` to try: a preset, or a preset with some settings replaced.

    - price, bytes: a `bit_price`, and a task's bytes at this price for 1,000 images of digits.
    - masks: the number of disjoint masks to draw.
    - basis: whether to train masks on basis tasks.
    - features: whether readouts read principal components in place of features.
    - backbone: name of the network to create; None uses the network given to `advise`.
    - settings: settings of `ImpressLearner` that replace the preset's.
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
        """Whether the method works on a network; None means that `advise` creates the network."""
        chosen = PRESETS[self.preset]
        pretrained = backbone is not None and backbone.pretrained
        if chosen.more.get("start") == "network":
            return pretrained
        if backbone is not None and chosen.own_head and backbone.own_head is None:
            return False
        # A mixture starts from masked weights, and so would lose what the network has learned.
        if pretrained and (self.masks or self.basis):
            return False
        return (has_basis or not self.basis) and (backbone is None or self.backbone is None)


_LAYERS = {"granularity": "layer", "precision": "coded"}
_UNITS = {"granularity": "unit", "precision": "coded"}

# The fastest methods come first, so that a short time limit still covers several.
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
