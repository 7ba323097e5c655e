"""Masks over a frozen network: trained, pruned and drawn.

Every source gives layer name -> booleans of the weight's shape. `MaskBank` keeps them packed.
"""

from impresslearn.masks.bank import MaskBank, Overlap
from impresslearn.masks.edge_popup import (
    POPUP_RECIPE,
    PopupScores,
    ScoreRule,
    TrainedMask,
    train_mask,
    trainable_scores,
)
from impresslearn.masks.pruning import PRUNING_RECIPE, PrunedMask, accuracy, prune
from impresslearn.masks.sources import (
    disjoint_bank,
    disjoint_mask,
    draw_masks,
    random_bank,
    random_mask,
)
from impresslearn.masks.sparsity import Allocation

__all__ = [
    "POPUP_RECIPE",
    "PRUNING_RECIPE",
    "Allocation",
    "MaskBank",
    "Overlap",
    "PopupScores",
    "PrunedMask",
    "ScoreRule",
    "TrainedMask",
    "accuracy",
    "disjoint_bank",
    "disjoint_mask",
    "draw_masks",
    "prune",
    "random_bank",
    "random_mask",
    "train_mask",
    "trainable_scores",
]
