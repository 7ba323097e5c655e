"""What ImpressLearn is compared with, on the same frozen network and streams."""

from impresslearn.baselines.adapters import Adapter
from impresslearn.baselines.finetuning import FineTuning
from impresslearn.baselines.hybrid import Hybrid
from impresslearn.baselines.sequential import SequentialFineTuning
from impresslearn.baselines.single_mask import single_mask_accuracy
from impresslearn.baselines.supsup import SupSup

__all__ = [
    "Adapter",
    "FineTuning",
    "Hybrid",
    "SequentialFineTuning",
    "SupSup",
    "single_mask_accuracy",
]
