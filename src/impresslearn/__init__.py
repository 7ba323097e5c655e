"""Continual learning over a frozen network: every new task adds only a few numbers.

This module only defines the public names. A name is imported on first use, so that `import
impresslearn` and the command line's `--help` do not wait for torch. Type checkers and editors read
the names from the `TYPE_CHECKING` block.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from impresslearn import inference as inference
    from impresslearn import masks as masks
    from impresslearn import methods as methods
    from impresslearn import networks as networks
    from impresslearn import streams as streams
    from impresslearn.data import Examples as Examples
    from impresslearn.data import Inputs as Inputs
    from impresslearn.data import Prepared as Prepared
    from impresslearn.data import Preprocessing as Preprocessing
    from impresslearn.errors import ImpressLearnError as ImpressLearnError
    from impresslearn.errors import InputError as InputError
    from impresslearn.errors import MissingDataError as MissingDataError
    from impresslearn.errors import MissingDependencyError as MissingDependencyError
    from impresslearn.errors import StoreBusyError as StoreBusyError
    from impresslearn.errors import StoreDamagedError as StoreDamagedError
    from impresslearn.errors import StoreError as StoreError
    from impresslearn.errors import StoreFullError as StoreFullError
    from impresslearn.errors import TasksFailedError as TasksFailedError
    from impresslearn.errors import TrainingError as TrainingError
    from impresslearn.errors import UnknownTaskError as UnknownTaskError
    from impresslearn.inference import TaskGuess as TaskGuess
    from impresslearn.learner import Advice as Advice
    from impresslearn.learner import ImpressLearner as ImpressLearner
    from impresslearn.learner import advise as advise
    from impresslearn.learner import charts as charts
    from impresslearn.learner import list_presets as list_presets
    from impresslearn.learner import load as load
    from impresslearn.learner import open_store as open_store
    from impresslearn.learner import preset as preset
    from impresslearn.masks import MaskBank as MaskBank
    from impresslearn.masks import random_bank as random_bank
    from impresslearn.methods import FineTuning as FineTuning
    from impresslearn.methods import Hybrid as Hybrid
    from impresslearn.methods import SupSup as SupSup
    from impresslearn.methods import class_incremental as class_incremental
    from impresslearn.methods import compare as compare
    from impresslearn.methods import evaluate as evaluate
    from impresslearn.networks import Backbone as Backbone
    from impresslearn.networks import BlockFeatures as BlockFeatures
    from impresslearn.networks import adapt as adapt
    from impresslearn.networks import create_backbone as create_backbone
    from impresslearn.networks import list_backbones as list_backbones
    from impresslearn.networks import register_backbone as register_backbone
    from impresslearn.training.first_session import adapt_to as adapt_to
    from impresslearn.training.loop import Recipe as Recipe

__version__ = "0.3.0"

_NAMES = {
    "data": "Examples Inputs Prepared Preprocessing",
    "errors": "ImpressLearnError InputError MissingDataError MissingDependencyError StoreBusyError"
    " StoreDamagedError StoreError StoreFullError TasksFailedError TrainingError UnknownTaskError",
    "inference": "TaskGuess",
    "learner": "Advice ImpressLearner advise charts list_presets load open_store preset",
    "masks": "MaskBank random_bank",
    "methods": "FineTuning Hybrid SupSup class_incremental compare evaluate",
    "networks": "Backbone BlockFeatures adapt create_backbone list_backbones register_backbone",
    "training.first_session": "adapt_to",
    "training.loop": "Recipe",
}
# Public name -> the module that defines it. A public submodule is its own module.
_MODULE_OF = {
    name: f"impresslearn.{module}" for module, names in _NAMES.items() for name in names.split()
}
_SUBMODULES = ("inference", "masks", "methods", "networks", "streams")
_MODULE_OF |= {module: f"impresslearn.{module}" for module in _SUBMODULES}

__all__ = sorted([*_MODULE_OF, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_MODULE_OF[name])
    value = module if _MODULE_OF[name] == f"{__name__}.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
