"""Measures norm statistics one norm after the other, each after those before it are settled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from impresslearn.data import Inputs
from impresslearn.networks.backbone import Backbone
from impresslearn.networks.norms import batch_norms
from impresslearn.networks.prediction import Statistics


@torch.no_grad()
def remeasured(
    backbone: Backbone,
    weights: Mapping[str, Tensor],
    inputs: Tensor | Inputs,
    settle: Callable[[str, Tensor, Tensor], tuple[Tensor, Tensor]],
) -> Statistics:
    """The statistics of all batch norms on one batch of inputs, in one evaluation pass.

    settle: given a norm's name and the means and variances (channels,), float64, of what enters it,
    those that it uses and that are returned. So an error that it makes in a layer's statistics is
    measured, and taken out again, by the layers behind. Norms that are not called keep the
    statistics that tasks start from.
    """
    initial, found = backbone.initial_statistics(), dict[str, Tensor]()

    def enter(name: str, norm: Any, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """What makes the norm, with the statistics tasks start from, give what it shall."""
        entered, *rest = given
        of = f"{name}." if name else ""
        kept = [initial[f"{of}running_{each}"] for each in ("mean", "var")]
        if f"{of}running_mean" not in found:
            values = entered.double().transpose(0, 1).flatten(1)
            mean, variance = settle(name, values.mean(dim=1), values.var(dim=1, correction=0))
            found[f"{of}running_mean"] = mean.to(kept[0])
            found[f"{of}running_var"] = variance.to(kept[1])
        shape = [1, -1] + [1] * (entered.dim() - 2)
        own = [found[f"{of}running_{each}"] for each in ("mean", "var")]
        (mean, variance), (first_mean, first_variance) = (
            [each.to(entered).view(shape) for each in pair] for pair in (own, kept)
        )
        ratio = ((first_variance + norm.eps) / (variance + norm.eps)).sqrt()
        return ((entered - mean) * ratio + first_mean, *rest)

    view = backbone._view("eval")
    hooks = [
        norm.register_forward_pre_hook(partial(enter, name)) for name, norm in batch_norms(view)
    ]
    try:
        backbone.forward(weights, inputs.to(backbone.device, backbone.input_dtype), initial, "eval")
    finally:
        for hook in hooks:
            hook.remove()
    return {name: found.get(name, value) for name, value in initial.items()}
