"""Creates a learner for data at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from impresslearn.data.preprocessing import Preprocessing
from impresslearn.errors import InputError
from impresslearn.learner.learner import ImpressLearner
from impresslearn.learner.presets import preset as find_preset
from impresslearn.networks import Backbone, create_backbone

DEFAULT_BACKBONE = "lenet_300_100"


def create_learner(
    shape: Sequence[int],
    classes: int,
    *,
    preset: str = "default",
    backbone: Backbone | str | None = None,
    network: Mapping[str, Any] | None = None,
    preprocessing: Preprocessing | None = None,
    seed: int = 0,
    **settings: Any,
) -> ImpressLearner:
    """A learner without tasks, with the masks of its preset, for inputs of a shape.

    - shape: of one input, without the batch.
    - classes: outputs of the network.
    - preset: a name of `list_presets`.
    - backbone: a network, or a name of `list_backbones`; by default a LeNet-300-100.
    - network: settings of `create_backbone`, which count more than those that follow the data.
    - preprocessing: gets this shape if the network is flat and the preprocessing has none.
    - seed: of the network and the learner.
    - settings: further settings of the learner.

    Raises as `create_backbone` and `ImpressLearner.from_preset` do.
    """
    chosen = find_preset(preset)
    if not isinstance(backbone, Backbone):
        if chosen.more.get("start") == "network":
            raise InputError(
                f"the preset {preset!r} needs a pretrained network; give il.adapt(module), or "
                "--module FILE:FUNCTION on the command line"
            )
        arguments: dict[str, Any] = {
            "name": backbone or DEFAULT_BACKBONE,
            "num_classes": classes,
            "seed": seed,
            "head": "own" if chosen.own_head else "shared",
            **chosen.backbone_settings(),
            **(network or {}),
        }
        # Which sizes a network has is known from its spec; those not given follow the data.
        spec = create_backbone(**arguments).spec or {}
        if "in_features" in spec:
            arguments["in_features"] = prod(shape)
        if "in_channels" in spec and len(shape) == 3:
            arguments["in_channels"] = shape[0]
        backbone = create_backbone(**arguments | dict(network or {}))
    is_flat = backbone.input_shape is not None and len(backbone.input_shape) == 1
    if preprocessing is not None and preprocessing.shape is None and is_flat and len(shape) > 1:
        # A flat network accepts any order of the values: fix the shape, so that it cannot change.
        preprocessing = replace(preprocessing, shape=tuple(shape))
    settings = {"preprocessing": preprocessing, "seed": seed, **settings}
    return ImpressLearner.from_preset(backbone, preset, **settings)
