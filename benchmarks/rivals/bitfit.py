"""Tuning of the small parameters alone: biases, and the scales and shifts of norms.

After BitFit (Ben Zaken et al. 2022), which trains biases and a head. Norms are trained with them,
as convolutional networks have their biases there.
"""

from __future__ import annotations

from collections.abc import Collection

from typing_extensions import Unpack

from impresslearn.errors import InputError
from impresslearn.learner.settings import checked_tune
from impresslearn.methods.finetuning import (
    LENGTH,
    FineTuning,
    StatisticsOf,
    TrainingSettings,
    copied_weights,
)
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import check_backbone
from impresslearn.networks.layers import TUNED, TunedKind
from impresslearn.training.loop import Recipe

BITFIT_RECIPE = Recipe(optimizer="adam", lr=0.03, schedule="cosine", **LENGTH)
"""Adam at the best of 0.003, 0.01 and 0.03: 60 steps on a task of CIFAR-100, over a ResNet-20."""


def bitfit(
    backbone: Backbone,
    *,
    tune: Collection[TunedKind] = TUNED,
    statistics: StatisticsOf = "task",
    **settings: Unpack[TrainingSettings],
) -> FineTuning:
    """Trains copies of the small parameters and a head for every task; the weights stay frozen.

    After BitFit (Ben Zaken et al. 2022), with norms beside biases. tune: which of them, "norm" and
    "bias". The head is one of the task's own, or where the network is shared whole a copy of its
    last maskable layer. statistics, of norms, and the other settings are those of `FineTuning`.
    Raises InputError for other kinds and for a network without them.
    """
    kinds = checked_tune(tune)
    groups = check_backbone(backbone).small_parameters(kinds)
    if not groups:
        raise InputError(f"{backbone.name} has no parameters of {' or '.join(kinds)} to tune")
    trained = {each.name: backbone.small[each.name] for group in groups for each in group}
    if backbone.own_head is None:
        name = backbone.layers[-1].name
        bias = f"{name.removesuffix('weight')}bias"
        trained[name] = backbone.weights[name]
        trained |= {bias: backbone.small[bias]} if bias in backbone.small else {}
    settings.setdefault("recipe", BITFIT_RECIPE)
    return FineTuning(
        backbone,
        statistics=statistics,
        make_trainable=lambda _: copied_weights(trained),
        role="learned",
        **settings,
    )
