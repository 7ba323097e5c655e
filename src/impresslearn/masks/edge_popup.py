"""Edge-popup (Ramanujan et al. 2020): a binary mask from trainable scores.

A layer's mask keeps the weights with the highest scores, exactly as many as asked. The forward pass
uses W ⊙ mask; the backward pass treats the mask as if it were the score itself (straight-through),
so scores get the gradient grad ⊙ W. Selection is partial, never a sort.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from impresslearn.checks import check_choice, torch_seed
from impresslearn.errors import InputError, TrainingError
from impresslearn.kernels.selection import keep_above, kth_largest, signed_product
from impresslearn.networks.layers import MaskableLayer

ScoreRule = Literal["score", "magnitude"]
RULES: tuple[ScoreRule, ...] = get_args(ScoreRule)


@dataclass(frozen=True)
class PopupScores:
    """Trainable scores for some layers of a network: edge-popup (Ramanujan et al. 2020).

    ones: how many ones the mask of each layer has; score_rule: whether the highest "score" or
    "magnitude" is kept; tensors: the scores, float32 of each layer's shape, the leaves to optimise.
    `weights` raises TrainingError for scores that became NaN.
    """

    layers: tuple[MaskableLayer, ...]
    ones: tuple[int, ...]
    score_rule: ScoreRule
    tensors: list[Tensor]

    @classmethod
    def create(
        cls,
        layers: Sequence[MaskableLayer],
        ones: Sequence[int],
        seed: int,
        score_rule: ScoreRule = "magnitude",
        device: torch.device | str = "cpu",
    ) -> PopupScores:
        """Fresh scores ~ U(-b, b) with b = 1/sqrt(fan_in): Kaiming uniform with a = √5."""
        generator = torch.Generator().manual_seed(torch_seed(seed))
        scores = []
        for layer in layers:
            bound = 1 / math.sqrt(layer.fan_in)
            score = torch.empty(layer.shape).uniform_(-bound, bound, generator=generator)
            scores.append(score.to(device).requires_grad_(True))
        return cls(tuple(layers), tuple(ones), score_rule, scores)

    def weights(self, frozen: dict[str, Tensor]) -> dict[str, Tensor]:
        """Layer name -> W ⊙ mask, straight-through in the scores."""
        return {
            layer.name: popup(score, frozen[layer.name], ones, self.score_rule)
            for layer, score, ones in zip(self.layers, self.tensors, self.ones, strict=True)
        }

    def masks(self) -> dict[str, Tensor]:
        """Layer name -> booleans."""
        return {
            layer.name: top_mask(score, ones, self.score_rule)
            for layer, score, ones in zip(self.layers, self.tensors, self.ones, strict=True)
        }


def top_mask(scores: Tensor, ones: int, score_rule: ScoreRule = "magnitude") -> Tensor:
    """The mask that keeps exactly `ones` of the highest scores; booleans of the scores' shape.

    score_rule: "score" ranks the scores themselves, "magnitude" their absolute values. Among equal
    scores the earlier position wins. Raises TrainingError for NaN scores and InputError for a
    count outside [0, scores.numel()] or an unknown rule.
    """
    check_choice("score_rule", score_rule, RULES)
    if not 0 <= ones <= scores.numel():
        raise InputError(f"cannot keep {ones} of {scores.numel()} weights")
    ranked = scores.detach().abs() if score_rule == "magnitude" else scores.detach()
    if ranked.numel() == 0:
        return torch.zeros_like(ranked, dtype=torch.bool)
    threshold, reached = _threshold(ranked, max(ones, 1))
    mask = ranked >= threshold
    if reached > ones:
        flat, tied = mask.flatten(), (ranked == threshold).flatten().nonzero().flatten()
        flat[tied[len(tied) - (reached - ones) :]] = False
        mask = flat.view_as(mask)
    return mask


def popup(scores: Tensor, weight: Tensor, ones: int, score_rule: ScoreRule = "magnitude") -> Tensor:
    """W ⊙ mask(scores), with the straight-through gradient for the scores.

    scores and weight share one shape; the result has it too. Errors as `top_mask`.
    """
    return _Popup.apply(scores, weight, ones, score_rule)


class _Popup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, weight: Tensor, ones: int, rule: ScoreRule) -> Tensor:
        ctx.save_for_backward(weight, scores if rule == "magnitude" else None)
        if _plain(scores, weight) and 0 < ones <= scores.numel() and rule in RULES:
            flat, magnitude = scores.detach().flatten(), rule == "magnitude"
            threshold, reached = _threshold(flat.abs() if magnitude else flat, ones)
            if reached == ones:  # one pass does
                weights = weight.detach().flatten().numpy()
                kept = keep_above(flat.numpy(), weights, threshold, magnitude)
                return torch.from_numpy(kept).view(weight.shape)
        return weight * top_mask(scores, ones, rule)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:
        weight, scores = ctx.saved_tensors
        if scores is None:
            return grad * weight, None, None, None
        if _plain(grad, weight, scores):
            flat = (tensor.detach().flatten().numpy() for tensor in (grad, weight, scores))
            product = torch.from_numpy(signed_product(*flat))
            return product.view(grad.shape), None, None, None
        return grad * weight * scores.sign(), None, None, None


def _threshold(ranked: Tensor, ones: int) -> tuple[float, int]:
    """The score of the last weight kept, and how many reach it (more than `ones` if tied)."""
    if ranked.device.type == "cpu" and ranked.dtype != torch.float64:
        threshold, reached = kth_largest(ranked.float().flatten().numpy(), ones)
    else:
        threshold = float(ranked.flatten().kthvalue(ranked.numel() - ones + 1).values)
        reached = int((ranked >= threshold).sum())
        threshold = math.nan if torch.isnan(ranked).any() else threshold
    if math.isnan(threshold):
        raise TrainingError("edge-popup scores became NaN; lower the learning rate")
    return threshold, reached


def _plain(*tensors: Tensor) -> bool:
    """Whether NumPy can see the tensors as they lie."""
    return all(
        tensor.device.type == "cpu" and tensor.dtype == torch.float32 and tensor.is_contiguous()
        for tensor in tensors
    )
