"""Edge-popup (Ramanujan et al. 2020): a binary mask from trainable scores.

Every weight has a score; a layer's mask keeps the weights with the highest scores, exactly as many
as asked. The forward pass uses W ⊙ mask; the backward pass treats the mask as if it were the score
itself (straight-through), so scores get the gradient grad ⊙ W. Selection is partial, never a
sort.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from impresslearn.errors import InputError, TrainingError
from impresslearn.kernels.selection import keep_above, kth_largest, signed_product

RULES = ("score", "magnitude")
NAN_SCORES = "edge-popup scores became NaN; lower the learning rate"


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
    threshold, at_least = _threshold(ranked, ones)
    mask = ranked >= threshold
    return mask if at_least == ones else _drop_ties(ranked, mask, torch.tensor(threshold), ones)


def _threshold(ranked: Tensor, ones: int) -> tuple[float, int]:
    """The score of the last weight kept, and how many reach it (more than `ones` if tied)."""
    threshold, at_least = kth_largest(ranked.detach().float().flatten().numpy(), ones)
    if math.isnan(threshold):
        raise TrainingError(NAN_SCORES)
    return threshold, at_least


def _drop_ties(ranked: Tensor, mask: Tensor, threshold: Tensor, ones: int) -> Tensor:
    """The mask less the last of the scores that equal the threshold."""
    tied = (ranked == threshold).flatten().nonzero().flatten()
    surplus = int(mask.sum()) - ones
    exact = mask.flatten().clone()
    exact[tied[len(tied) - surplus :]] = False
    return exact.view_as(mask)


def _refuse_nan(values: Tensor) -> None:
    if torch.isnan(values).any():
        raise TrainingError(NAN_SCORES)


def _fused(scores: Tensor, weight: Tensor, ones: int, rule: str) -> Tensor | None:
    """weight ⊙ mask in one pass on the CPU; None where that cannot be, or where scores tie."""
    if not (_is_plain(scores) and _is_plain(weight)):
        return None
    if not 0 < ones < scores.numel() or rule not in RULES:
        return None
    magnitude = rule == "magnitude"
    flat = scores.detach().flatten()
    threshold, at_least = _threshold(flat.abs() if magnitude else flat, ones)
    if at_least != ones:
        return None
    kept = keep_above(flat.numpy(), weight.detach().flatten().numpy(), threshold, magnitude)
    return None if kept is None else torch.from_numpy(kept).view(weight.shape)


class _Popup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, weight: Tensor, ones: int, rule: str) -> Tensor:
        ctx.save_for_backward(weight, scores if rule == "magnitude" else None)
        kept = _fused(scores, weight, ones, rule)
        return weight * top_mask(scores, ones, rule) if kept is None else kept

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:
        weight, scores = ctx.saved_tensors
        if scores is None:
            return grad * weight, None, None, None
        return _straight_through(grad, weight, scores), None, None, None


def _straight_through(grad: Tensor, weight: Tensor, scores: Tensor) -> Tensor:
    """grad ⊙ weight ⊙ sign(scores): the gradient through the scores' magnitude."""
    tensors = (grad, weight, scores)
    if all(_is_plain(tensor) for tensor in tensors):
        product = signed_product(*(tensor.detach().flatten().numpy() for tensor in tensors))
        if product is not None:
            return torch.from_numpy(product).view(grad.shape)
    return grad * weight * scores.sign()


def _is_plain(tensor: Tensor) -> bool:
    """Whether NumPy can see the tensor as it lies."""
    return tensor.device.type == "cpu" and tensor.dtype == torch.float32 and tensor.is_contiguous()


def popup(scores: Tensor, weight: Tensor, ones: int, rule: str = "score") -> Tensor:
    """W ⊙ mask(scores), with the straight-through gradient for the scores.

    scores and weight share one shape; the result has it too. Errors as `top_mask`.
    """
    return _Popup.apply(scores, weight, ones, rule)
