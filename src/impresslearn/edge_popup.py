"""Edge-popup (Ramanujan et al. 2020): a binary mask from trainable scores.

Every weight has a score; a layer's mask keeps the weights with the highest scores, exactly as many
as asked. The forward pass uses W ⊙ mask; the backward pass treats the mask as if it were the score
itself (straight-through), so scores get the gradient grad ⊙ W. Selection is partial (`partition`),
never a sort.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.errors import InputError, TrainingError

RULES = ("score", "magnitude")


def initial_scores(shapes: Sequence[tuple[int, ...]], generator: torch.Generator) -> list[Tensor]:
    """Scores ~ U(-b, b) with b = 1/sqrt(fan_in): Kaiming uniform with a = √5. float32, CPU."""
    scores = []
    for shape in shapes:
        bound = 1 / math.sqrt(math.prod(shape[1:]))
        scores.append(torch.empty(shape).uniform_(-bound, bound, generator=generator))
    return scores


def top_mask(scores: Tensor, ones: int, rule: str = "score") -> Tensor:
    """The mask that keeps exactly `ones` of the highest scores; booleans of the scores' shape.

    rule: "score" ranks the scores themselves, "magnitude" their absolute values. Among equal
    scores the earlier position wins. Raises TrainingError for NaN scores and InputError for a
    count outside [0, scores.numel()] or an unknown rule.
    """
    if rule not in RULES:
        raise InputError(f"the score rule must be one of {', '.join(RULES)}, got {rule!r}")
    if not 0 <= ones <= scores.numel():
        raise InputError(f"cannot keep {ones} of {scores.numel()} weights")
    ranked = scores.detach().abs() if rule == "magnitude" else scores.detach()
    if ones == 0 or ones == ranked.numel():
        _refuse_nan(ranked)
        return torch.full_like(ranked, ones > 0, dtype=torch.bool)
    if ranked.device.type == "cpu":
        return _top_mask_cpu(ranked, ones)
    threshold = ranked.flatten().kthvalue(ranked.numel() - ones + 1).values
    _refuse_nan(ranked)
    mask = ranked >= threshold
    return mask if int(mask.sum()) == ones else _drop_ties(ranked, mask, threshold, ones)


def _top_mask_cpu(ranked: Tensor, ones: int) -> Tensor:
    # numpy's partition finds the threshold some 20 times faster than torch's topk or kthvalue. It
    # moves NaN to the end, among the highest, so the largest value tells.
    values = ranked.flatten().numpy()
    parted = np.partition(values, values.size - ones)
    threshold = parted[values.size - ones]
    _refuse_nan(torch.tensor(parted[values.size - ones :].max()))
    mask = ranked >= float(threshold)
    if int(np.count_nonzero(mask.numpy())) == ones:
        return mask
    return _drop_ties(ranked, mask, torch.tensor(threshold), ones)


def _drop_ties(ranked: Tensor, mask: Tensor, threshold: Tensor, ones: int) -> Tensor:
    """The mask less the last of the scores that equal the threshold."""
    tied = (ranked == threshold).flatten().nonzero().flatten()
    surplus = int(mask.sum()) - ones
    exact = mask.flatten().clone()
    exact[tied[len(tied) - surplus :]] = False
    return exact.view_as(mask)


def _refuse_nan(values: Tensor) -> None:
    if torch.isnan(values).any():
        raise TrainingError("edge-popup scores became NaN; lower the learning rate")


class _Popup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, weight: Tensor, ones: int, rule: str) -> Tensor:
        ctx.save_for_backward(weight, scores if rule == "magnitude" else None)
        return weight * top_mask(scores, ones, rule)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:
        weight, scores = ctx.saved_tensors
        straight = grad * weight
        if scores is not None:
            straight = straight * scores.sign()
        return straight, None, None, None


def popup(scores: Tensor, weight: Tensor, ones: int, rule: str = "score") -> Tensor:
    """W ⊙ mask(scores), with the straight-through gradient for the scores.

    scores and weight share one shape; the result has it too. Errors as `top_mask`.
    """
    return _Popup.apply(scores, weight, ones, rule)
