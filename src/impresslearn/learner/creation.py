"""Creates a learner for data at hand, and checks settings against those of a store.

What a store was created with holds for all of its tasks. Whoever gives a setting again may only
repeat it: anything else would not do what it says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from impresslearn.data.preprocessing import Preprocessing
from impresslearn.errors import InputError
from impresslearn.learner.learner import ImpressLearner
from impresslearn.learner.presets import preset as find_preset
from impresslearn.networks import create_backbone
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
    **settings: Any,
) -> ImpressLearner:
    """A learner without masks or tasks, for inputs of this shape.

    classes: outputs where their number was not given. preprocessing: gets the shape where it has
    none and the network is flat. settings: more of the learner's. Raises as `create_backbone` and
    `ImpressLearner` do.
    """
    chosen = find_preset(given.preset or DEFAULT_PRESET)
    arguments: dict[str, Any] = {
        "name": given.backbone or DEFAULT_BACKBONE,
        "num_classes": given.classes or classes,
        "seed": given.seed or 0,
        "norm": given.norm,
        **chosen.backbone_settings(),
        **given.network,
    }
    backbone = create_backbone(**arguments)
    spec = backbone.spec or {}
    inferred = {
        name: value
        for name, value in _sizes(shape).items()
        if name in spec and name not in given.network and spec[name] != value
    }
    if inferred:
        backbone = create_backbone(**arguments | inferred)
    flat = backbone.input_shape is not None and len(backbone.input_shape) == 1 < len(shape)
    if preprocessing is not None and preprocessing.shape is None and flat:
        # A flat network takes any order of values, and cannot tell one from the other.
        preprocessing = replace(preprocessing, shape=tuple(shape))
    own = chosen.learner_settings() | given.learner_settings() | settings
    return ImpressLearner(backbone, preprocessing=preprocessing, **own)


def check_agreement(given: CreationSettings, description: Mapping[str, Any], where: object) -> None:
    """Raises InputError, naming both values, where a setting contradicts a store's.

    description: of the store, as `describe_store` gives it.
    """
    spec = description["network"]["spec"] or {}
    kept = description["settings"]
    named: dict[str, tuple[Any, Any]] = {
        "backbone": (given.backbone, spec.get("name")),
        "classes": (given.classes, description["network"]["num_classes"]),
        "norm": (given.norm, description["network"]["norm"]),
        **{name: (value, spec.get(name)) for name, value in given.network.items()},
        **{name: (value, kept.get(name)) for name, value in given.learner_settings().items()},
    }
    for name, (wanted, found) in named.items():
        if wanted is not None and wanted != found:
            raise InputError(f"{where} was created with {name} {found!r}, not {wanted!r}")
    if given.preset is None:
        return
    chosen = find_preset(given.preset)
    own = {**chosen.backbone_settings(), **chosen.learner_settings()}
    own |= {name: own[name].settings() for name in RECIPES}
    for name, wanted in own.items():
        found = spec.get(name, kept.get(name))
        if name not in named and wanted != found:
            raise InputError(
                f"{where} was created with {name} {found!r}, not {wanted!r} as in the preset "
                f"{given.preset!r}"
            )


def _sizes(shape: Sequence[int]) -> dict[str, int]:
    """What a network has to know of its inputs, by the names of the backbones' settings."""
    sizes = {"in_features": prod(shape)}
    return sizes | {"in_channels": shape[0]} if len(shape) == 3 else sizes
