"""Methods of continual learning behind one protocol, and what compares them."""

from impresslearn.methods.comparing import compare as compare
from impresslearn.methods.comparison import Comparison as Comparison
from impresslearn.methods.comparison import Run as Run
from impresslearn.methods.evaluation import Evaluation as Evaluation
from impresslearn.methods.evaluation import Method as Method
from impresslearn.methods.evaluation import average_accuracy as average_accuracy
from impresslearn.methods.evaluation import backward_transfer as backward_transfer
from impresslearn.methods.evaluation import evaluate as evaluate
from impresslearn.methods.evaluation import forgetting as forgetting
from impresslearn.methods.evaluation import forward_transfer as forward_transfer
from impresslearn.methods.finetuning import FineTuning as FineTuning
from impresslearn.methods.finetuning import SequentialFineTuning as SequentialFineTuning
from impresslearn.methods.hybrid import Hybrid as Hybrid
from impresslearn.methods.lora import lora as lora
from impresslearn.methods.probes import LinearProbe as LinearProbe
from impresslearn.methods.supsup import SupSup as SupSup
from impresslearn.methods.supsup import single_mask_accuracy as single_mask_accuracy
