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
    MaskSource,
    add_random_masks,
    disjoint_bank,
    disjoint_mask,
    draw_masks,
    list_mask_sources,
    random_bank,
    random_mask,
    register_mask_source,
)
from impresslearn.masks.sparsity import Allocation

__all__ = [
    "POPUP_RECIPE",
    "PRUNING_RECIPE",
    "Allocation",
    "MaskBank",
    "MaskSource",
    "Overlap",
    "PopupScores",
    "PrunedMask",
    "ScoreRule",
    "TrainedMask",
    "accuracy",
    "add_random_masks",
    "disjoint_bank",
    "disjoint_mask",
    "draw_masks",
    "list_mask_sources",
    "prune",
    "random_bank",
    "random_mask",
    "register_mask_source",
    "train_mask",
    "trainable_scores",
]
