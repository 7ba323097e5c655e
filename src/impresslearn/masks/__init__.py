"""Binary masks over the weights of a frozen network: trained, pruned or randomly drawn.

A mask maps each layer's name to booleans of the weight's shape. `MaskBank` keeps masks packed.
"""

from impresslearn.masks.bank import MaskBank as MaskBank
from impresslearn.masks.bank import Overlap as Overlap
from impresslearn.masks.edge_popup import POPUP_RECIPE as POPUP_RECIPE
from impresslearn.masks.edge_popup import PopupScores as PopupScores
from impresslearn.masks.edge_popup import PrunedMask as PrunedMask
from impresslearn.masks.edge_popup import ScoreRule as ScoreRule
from impresslearn.masks.edge_popup import TrainedMask as TrainedMask
from impresslearn.masks.edge_popup import accuracy as accuracy
from impresslearn.masks.edge_popup import prune as prune
from impresslearn.masks.edge_popup import train_mask as train_mask
from impresslearn.masks.edge_popup import trainable_scores as trainable_scores
from impresslearn.masks.sources import disjoint_mask as disjoint_mask
from impresslearn.masks.sources import draw_masks as draw_masks
from impresslearn.masks.sources import random_bank as random_bank
from impresslearn.masks.sources import random_mask as random_mask
from impresslearn.masks.sparsity import Allocation as Allocation
