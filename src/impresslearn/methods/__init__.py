"""What ImpressLearn is compared with, on the same frozen network and streams."""

from impresslearn.methods.adapters import Adapter
from impresslearn.methods.finetuning import FineTuning
from impresslearn.methods.hybrid import Hybrid
from impresslearn.methods.sequential import SequentialFineTuning
from impresslearn.methods.single_mask import single_mask_accuracy
from impresslearn.methods.supsup import SupSup

__all__ = [
    "Adapter",
    "FineTuning",
    "Hybrid",
    "SequentialFineTuning",
    "SupSup",
    "single_mask_accuracy",
]
