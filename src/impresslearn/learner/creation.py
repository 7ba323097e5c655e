"""Creates a learner for data at hand, and checks settings against those of a store.

What a store was created with holds for all of its tasks. Whoever gives a setting again may only
repeat it: anything else would not do what it says.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from impresslearn.data.preprocessing import Preprocessing
from impresslearn.errors import InputError
from impresslearn.learner.learner import ImpressLearner
from impresslearn.learner.presets import Preset
from impresslearn.learner.presets import preset as find_preset
from impresslearn.networks import Backbone, create_backbone
from impresslearn.state.settings import RECIPES

DEFAULT_BACKBONE = "lenet_300_100"
DEFAULT_PRESET = "default"
LEARNER_SETTINGS = ("granularity", "output_scale", "sparsity", "seed")


@dataclass(frozen=True)
class CreationSettings:
    """Settings of a new learner and its network; None where nothing was said.

    backbone: a name of `list_backbones`; network: its own settings; classes: outputs of the
    network; norm, seed: as in `create_backbone`; preset: a name of `list_presets`; the others are
    settings of `ImpressLearner`.
    """

    backbone: str | None = None
    network: Mapping[str, Any] = field(default_factory=dict)
    classes: int | None = None
    norm: str | None = None
    seed: int | None = None
    preset: str | None = None
    granularity: str | None = None
    output_scale: bool | None = None
    sparsity: float | None = None

    def learner_settings(self) -> dict[str, Any]:
        """Those of the learner that were given."""
        named = {name: getattr(self, name) for name in LEARNER_SETTINGS}
        return {name: value for name, value in named.items() if value is not None}


def create_learner(
    given: CreationSettings,
    classes: int,
    shape: Sequence[int],
    preprocessing: Preprocessing | None = None,
    backbone: Backbone | None = None,
    **settings: Any,
) -> ImpressLearner:
    """A learner without tasks, for inputs of this shape, with the masks of its preset.

    classes: outputs where their number was not given. preprocessing: gets the shape where it has
    none and the network is flat. backbone: a network in place of that of the settings. settings:
    more of the learner's. Raises as `create_backbone` and `ImpressLearner.from_preset` do.
    """
    name = given.preset or DEFAULT_PRESET
    chosen = find_preset(name)
    if backbone is None and chosen.learner_settings().get("start") == "network":
        raise InputError(
            f"the preset {name!r} is for a network that was trained before; bring your own: "
            "il.adapt(module), or --module FILE:FUNCTION on the command line"
        )
    backbone = backbone or _random_network(given, chosen, classes, shape)
    flat = backbone.input_shape is not None and len(backbone.input_shape) == 1 < len(shape)
    if preprocessing is not None and preprocessing.shape is None and flat:
        # A flat network takes any order of values, and cannot tell one from the other.
        preprocessing = replace(preprocessing, shape=tuple(shape))
    own = given.learner_settings() | settings
    return ImpressLearner.from_preset(backbone, name, preprocessing=preprocessing, **own)


def _random_network(
    given: CreationSettings, chosen: Preset, classes: int, shape: Sequence[int]
) -> Backbone:
    arguments: dict[str, Any] = {
        "name": given.backbone or DEFAULT_BACKBONE,
        "num_classes": given.classes or classes,
        "seed": given.seed or 0,
        "norm": given.norm,
        "head": "own" if chosen.own_head else "shared",
        **chosen.backbone_settings(),
        **given.network,
    }
    backbone = create_backbone(**arguments)
    spec, sizes = backbone.spec or {}, {"in_features": prod(shape)}
    if len(shape) == 3:
        sizes["in_channels"] = shape[0]
    inferred = {
        name: size
        for name, size in sizes.items()
        if name not in given.network and spec.get(name, size) != size
    }
    return create_backbone(**arguments | inferred) if inferred else backbone


def check_agreement(
    given: CreationSettings,
    description: Mapping[str, Any],
    where: object,
    others: Collection[str] = (),
) -> None:
    """Raises InputError, naming both values, where a setting contradicts a store's.

    description: of the store, as `describe_store` gives it. others: settings that are given for
    single tasks, by name, which decide in place of the preset.
    """
    network = description["network"]
    spec = network["spec"] or {}
    kept = {**spec, **description["settings"], "backbone": spec.get("name")}
    kept |= {"classes": network["num_classes"], "norm": network["norm"]}
    told = {"backbone": given.backbone, "classes": given.classes, "norm": given.norm}
    told |= {**given.network, **given.learner_settings()}
    implied: dict[str, Any] = {}
    if given.preset is not None:
        chosen = find_preset(given.preset)
        implied = {**(chosen.backbone_settings() if spec else {}), **chosen.learner_settings()}
        implied |= {name: implied[name].settings() for name in RECIPES}
        implied |= {name: list(each) for name, each in implied.items() if isinstance(each, tuple)}
        if not kept.get("fold_after"):  # where nothing can be folded
            implied.pop("fold_after", None)
    told = {name: wanted for name, wanted in told.items() if wanted is not None}
    implied = {name: wanted for name, wanted in implied.items() if name not in others}
    for name, wanted in (implied | told).items():
        if wanted != kept.get(name):
            source = "" if name in told else f" as in the preset {given.preset!r}"
            raise InputError(
                f"{where} was created with {name} {kept.get(name)!r}, not {wanted!r}{source}"
            )
