"""Methods of continual learning behind one protocol, and their evaluation on streams."""

from impresslearn.methods.adapters import Adapter as Adapter
from impresslearn.methods.bitfit import bitfit as bitfit
from impresslearn.methods.classical import SklearnClassifier as SklearnClassifier
from impresslearn.methods.evaluation import Comparison as Comparison
from impresslearn.methods.evaluation import Evaluation as Evaluation
from impresslearn.methods.evaluation import Method as Method
from impresslearn.methods.evaluation import compare as compare
from impresslearn.methods.evaluation import evaluate as evaluate
from impresslearn.methods.finetuning import FineTuning as FineTuning
from impresslearn.methods.finetuning import SequentialFineTuning as SequentialFineTuning
from impresslearn.methods.hybrid import Hybrid as Hybrid
from impresslearn.methods.pruned import pruned as pruned
from impresslearn.methods.random_bases import nola as nola
from impresslearn.methods.random_bases import pranc as pranc
from impresslearn.methods.registry import create_method as create_method
from impresslearn.methods.registry import list_methods as list_methods
from impresslearn.methods.registry import method_settings as method_settings
from impresslearn.methods.registry import register_method as register_method
from impresslearn.methods.results import average_accuracy as average_accuracy
from impresslearn.methods.results import backward_transfer as backward_transfer
from impresslearn.methods.results import forgetting as forgetting
from impresslearn.methods.results import forward_transfer as forward_transfer
from impresslearn.methods.supsup import BestMask as BestMask
from impresslearn.methods.supsup import SingleMask as SingleMask
from impresslearn.methods.supsup import SupSup as SupSup
from impresslearn.methods.supsup import single_mask_accuracy as single_mask_accuracy
