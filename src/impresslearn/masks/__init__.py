"""Where masks come from. Every source gives the same thing: layer name -> booleans."""

from impresslearn.masks.arithmetic import dense_weights, real_mask, signed_mask
from impresslearn.masks.pruning import PRUNING_RECIPE, prune_mask
from impresslearn.masks.random import (
    add_random_masks,
    disjoint_bank,
    disjoint_mask,
    draw_masks,
    random_bank,
    random_mask,
)
from impresslearn.masks.training import (
    POPUP_RECIPE,
    PopupScores,
    TrainedMask,
    train_mask,
    train_masks_in_turn,
)

__all__ = [
    "POPUP_RECIPE",
    "PRUNING_RECIPE",
    "PopupScores",
    "TrainedMask",
    "add_random_masks",
    "dense_weights",
    "disjoint_bank",
    "disjoint_mask",
    "draw_masks",
    "prune_mask",
    "random_bank",
    "random_mask",
    "real_mask",
    "signed_mask",
    "train_mask",
    "train_masks_in_turn",
]
