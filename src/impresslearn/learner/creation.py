"""Creates a learner for data at hand, and compares settings with those of an existing store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from impresslearn.data.preprocessing import Preprocessing
from impresslearn.errors import InputError
from impresslearn.learner.learner import ImpressLearner
from impresslearn.learner.presets import preset as find_preset
from impresslearn.learner.settings import RECIPES
from impresslearn.networks import Backbone, create_backbone

DEFAULT_BACKBONE = "lenet_300_100"
DEFAULT_PRESET = "default"


@dataclass(frozen=True)
class CreationSettings:
    """Settings of a new learner and its network; None leaves a setting at its default.

    - backbone: a name of `list_backbones`; network: further settings of that network.
    - classes: outputs of the network.
    - norm: as in `create_backbone`; seed: of the network and the learner.
    - preset: a name of `list_presets`.
    - granularity, output_scale, sparsity: as in `ImpressLearner`.
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
        """The learner's settings that are not None."""
        names = ("granularity", "output_scale", "sparsity", "seed")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


def create_learner(
    new: CreationSettings,
    classes: int,
    shape: Sequence[int],
    preprocessing: Preprocessing | None = None,
    backbone: Backbone | None = None,
    **settings: Any,
) -> ImpressLearner:
    """A learner without tasks, with the masks of its preset.

    - classes: outputs of the network, if `new` has no number.
    - shape: of one input, without the batch.
    - preprocessing: gets this shape if the network is flat and the preprocessing has none.
    - backbone: a network in place of the one that `new` describes.
    - settings: further settings of the learner.

    Raises as `create_backbone` and `ImpressLearner.from_preset` do.
    """
    name = new.preset or DEFAULT_PRESET
    if backbone is None:
        if find_preset(name).more.get("start") == "network":
            raise InputError(
                f"the preset {name!r} needs a pretrained network; give il.adapt(module), or "
                "--module FILE:FUNCTION on the command line"
            )
        backbone = _create_network(new, classes, shape)
    is_flat = backbone.input_shape is not None and len(backbone.input_shape) == 1
    if preprocessing is not None and preprocessing.shape is None and is_flat and len(shape) > 1:
        # A flat network accepts any order of the values: fix the shape, so that it cannot change.
        preprocessing = replace(preprocessing, shape=tuple(shape))
    settings = new.learner_settings() | settings
    return ImpressLearner.from_preset(backbone, name, preprocessing=preprocessing, **settings)


def _create_network(new: CreationSettings, classes: int, shape: Sequence[int]) -> Backbone:
    chosen = find_preset(new.preset or DEFAULT_PRESET)
    arguments: dict[str, Any] = {
        "name": new.backbone or DEFAULT_BACKBONE,
        "num_classes": new.classes or classes,
        "seed": new.seed or 0,
        "norm": new.norm,
        "head": "own" if chosen.own_head else "shared",
        **chosen.backbone_settings(),
        **new.network,
    }
    backbone = create_backbone(**arguments)
    # Which sizes a network has is known from its spec; those not given follow the data.
    spec = backbone.spec or {}
    if "in_features" in spec:
        arguments["in_features"] = prod(shape)
    if "in_channels" in spec and len(shape) == 3:
        arguments["in_channels"] = shape[0]
    arguments.update(new.network)
    return create_backbone(**arguments)


def check_agreement(
    given: CreationSettings,
    description: Mapping[str, Any],
    where: object,
    overridden: Collection[str] = (),
) -> None:
    """Raises InputError, naming both values, if a setting contradicts a store's.

    - description: of the store, from `describe_store`.
    - where: the store's path, for the error.
    - overridden: settings given for single tasks, which count more than the preset's.
    """
    network = description["network"]
    spec = network["spec"] or {}
    stored = {
        **spec,
        **description["settings"],
        "backbone": spec.get("name"),
        "classes": network["num_classes"],
        "norm": network["norm"],
    }
    wanted: dict[str, Any] = {}
    if given.preset is not None:
        chosen = find_preset(given.preset)
        wanted = chosen.learner_settings()
        for name in RECIPES:
            wanted[name] = wanted[name].settings()
        if "tune" in wanted:
            wanted["tune"] = list(wanted["tune"])
        if spec:
            wanted |= chosen.backbone_settings()
        if not stored.get("fold_after"):  # a network without norms cannot fold any
            wanted.pop("fold_after", None)
        for name in overridden:
            wanted.pop(name, None)
    wanted |= {**given.network, **given.learner_settings()}
    for name in ("backbone", "classes", "norm"):
        if getattr(given, name) is not None:
            wanted[name] = getattr(given, name)
    for name, value in wanted.items():
        if value != stored.get(name):
            raise InputError(
                f"{where} was created with {name} {stored.get(name)!r}, not {value!r}; leave "
                "the setting out, or create another store"
            )
