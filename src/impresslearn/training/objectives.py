"""Objectives beside cross-entropy: entropies of predictions, and the penalty of eq. 2."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def entropies(logits: Tensor) -> Tensor:
    """The entropy in nats of each row's prediction: (..., n, K) to (..., n)."""
    log_probabilities = F.log_softmax(logits, dim=-1)
    return -(log_probabilities.exp() * log_probabilities).sum(dim=-1)


def mean_entropy(logits: Tensor) -> Tensor:
    """Mean entropy of the predictions: the paper's and SupSup's objective without labels.

    (..., n, K) to (...): one number for the n inputs of each task.
    """
    return entropies(logits).mean(dim=-1)


def information_maximisation(logits: Tensor, prior: float = 0.0) -> Tensor:
    """Mean entropy of the predictions minus the entropy of the mean prediction, in nats.

    (..., n, K) to (...). The negative mutual information between input and prediction. Unlike
    plain entropy it is not minimised by answering one class with confidence. prior: uniform
    predictions that count towards the mean beside the n given ones, of which few say little about
    how often a class is answered. A batch of one without a prior falls back to the plain entropy.
    """
    examples, classes = logits.shape[-2:]
    if examples == 1 and not prior:
        return mean_entropy(logits)
    mean = (F.softmax(logits, dim=-1).sum(dim=-2) + prior / classes) / (examples + prior)
    marginal = -(mean * mean.clamp_min(torch.finfo(mean.dtype).tiny).log()).sum(dim=-1)
    return mean_entropy(logits) - marginal


def unit_norm_penalty(alphas: Sequence[Tensor]) -> Tensor:
    """Σ_layers (Σ_t |α_t| - 1)², the penalty of eq. 2; alphas: (N,) or (N, units) a layer.

    With coefficients per unit the squares are averaged over the units of a layer, so that λ means
    the same for both granularities.
    """
    return torch.stack([(alpha.abs().sum(dim=0) - 1).square().mean() for alpha in alphas]).sum()
