"""Methods of continual learning behind one protocol, and their evaluation on streams."""

from impresslearn.methods.adapters import Adapter
from impresslearn.methods.evaluation import Method, compare, evaluate
from impresslearn.methods.finetuning import FineTuning, SequentialFineTuning
from impresslearn.methods.hybrid import Hybrid
from impresslearn.methods.metrics import (
    average_accuracy,
    backward_transfer,
    forgetting,
    forward_transfer,
)
from impresslearn.methods.registry import (
    create_method,
    list_methods,
    method_settings,
    register_method,
)
from impresslearn.methods.results import Comparison, Evaluation
from impresslearn.methods.supsup import SingleMask, SupSup, single_mask_accuracy

__all__ = [
    "Adapter",
    "Comparison",
    "Evaluation",
    "FineTuning",
    "Hybrid",
    "Method",
    "SequentialFineTuning",
    "SingleMask",
    "SupSup",
    "average_accuracy",
    "backward_transfer",
    "compare",
    "create_method",
    "evaluate",
    "forgetting",
    "forward_transfer",
    "list_methods",
    "method_settings",
    "register_method",
    "single_mask_accuracy",
]
