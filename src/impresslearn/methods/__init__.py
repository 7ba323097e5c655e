"""Methods of continual learning with one interface, and functions to evaluate and compare them."""

from impresslearn.methods.comparing import compare as compare
from impresslearn.methods.comparison import Comparison as Comparison
from impresslearn.methods.comparison import Run as Run
from impresslearn.methods.evaluation import ClassIncremental as ClassIncremental
from impresslearn.methods.evaluation import Evaluation as Evaluation
from impresslearn.methods.evaluation import Method as Method
from impresslearn.methods.evaluation import class_incremental as class_incremental
from impresslearn.methods.evaluation import evaluate as evaluate
from impresslearn.methods.finetuning import FineTuning as FineTuning
from impresslearn.methods.finetuning import SequentialFineTuning as SequentialFineTuning
from impresslearn.methods.finetuning import lora as lora
from impresslearn.methods.supsup import Hybrid as Hybrid
from impresslearn.methods.supsup import SupSup as SupSup
