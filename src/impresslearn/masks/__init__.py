"""Masks over a frozen network: trained, pruned, drawn, combined and compared.

Every source gives layer name -> booleans of the weight's shape. `MaskBank` keeps them packed.
"""

from impresslearn.masks.arithmetic import (
    Overlap,
    complement,
    dense_weights,
    density,
    difference,
    intersection,
    overlap,
    symmetric_difference,
    union,
)
from impresslearn.masks.bank import MaskBank
from impresslearn.masks.edge_popup import (
    POPUP_RECIPE,
    PopupScores,
    ScoreRule,
    TrainedMask,
    train_mask,
    trainable_scores,
)
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
from impresslearn.masks.weights import (
    PRUNING_RECIPE,
    PrunedMask,
    TrainedWeights,
    accuracy,
    prune,
    train_weights,
)

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
    "TrainedWeights",
    "accuracy",
    "add_random_masks",
    "complement",
    "dense_weights",
    "density",
    "difference",
    "disjoint_bank",
    "disjoint_mask",
    "draw_masks",
    "intersection",
    "list_mask_sources",
    "overlap",
    "prune",
    "random_bank",
    "random_mask",
    "register_mask_source",
    "symmetric_difference",
    "train_mask",
    "train_weights",
    "trainable_scores",
    "union",
]
