"""Continual learning in which every new task costs a handful of numbers.

This module holds the public names and nothing else. They are imported on first use, so that
`import impresslearn` and the command line's `--help` do not wait for torch; type checkers and
editors read the same names from the `TYPE_CHECKING` block.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from impresslearn import masks as masks
    from impresslearn import methods as methods
    from impresslearn import networks as networks
    from impresslearn import streams as streams
    from impresslearn.data import Examples as Examples
    from impresslearn.data.preprocessing import Prepared as Prepared
    from impresslearn.data.preprocessing import Preprocessing as Preprocessing
    from impresslearn.errors import ImpressLearnError as ImpressLearnError
    from impresslearn.errors import InputError as InputError
    from impresslearn.errors import MissingDataError as MissingDataError
    from impresslearn.errors import MissingDependencyError as MissingDependencyError
    from impresslearn.errors import StoreError as StoreError
    from impresslearn.errors import TrainingError as TrainingError
    from impresslearn.errors import UnknownTaskError as UnknownTaskError
    from impresslearn.hub import from_hub as from_hub
    from impresslearn.hub import push_to_hub as push_to_hub
    from impresslearn.inference import TaskGuess as TaskGuess
    from impresslearn.learner import ImpressLearner as ImpressLearner
    from impresslearn.learner.loading import load as load
    from impresslearn.learner.loading import open_store as open_store
    from impresslearn.learner.presets import list_presets as list_presets
    from impresslearn.learner.presets import preset as preset
    from impresslearn.learner.rounding import rounded as rounded
    from impresslearn.masks import disjoint_bank as disjoint_bank
    from impresslearn.masks import random_bank as random_bank
    from impresslearn.masks.bank import MaskBank as MaskBank
    from impresslearn.methods import FineTuning as FineTuning
    from impresslearn.methods import Hybrid as Hybrid
    from impresslearn.methods import SupSup as SupSup
    from impresslearn.methods import compare as compare
    from impresslearn.methods import evaluate as evaluate
    from impresslearn.methods import single_mask_accuracy as single_mask_accuracy
    from impresslearn.networks import Backbone as Backbone
    from impresslearn.networks import adapt as adapt
    from impresslearn.networks import create_backbone as create_backbone
    from impresslearn.networks import list_backbones as list_backbones
    from impresslearn.networks import register_backbone as register_backbone
    from impresslearn.optimisation.loop import Recipe as Recipe

    __version__: str

_HOME = {
    "adapt": "impresslearn.networks",
    "Backbone": "impresslearn.networks",
    "compare": "impresslearn.methods",
    "create_backbone": "impresslearn.networks",
    "disjoint_bank": "impresslearn.masks",
    "evaluate": "impresslearn.methods",
    "Examples": "impresslearn.data",
    "FineTuning": "impresslearn.methods",
    "from_hub": "impresslearn.hub",
    "Hybrid": "impresslearn.methods",
    "ImpressLearner": "impresslearn.learner",
    "ImpressLearnError": "impresslearn.errors",
    "InputError": "impresslearn.errors",
    "list_backbones": "impresslearn.networks",
    "list_presets": "impresslearn.learner.presets",
    "load": "impresslearn.learner.loading",
    "MaskBank": "impresslearn.masks.bank",
    "masks": "impresslearn.masks",
    "methods": "impresslearn.methods",
    "MissingDataError": "impresslearn.errors",
    "MissingDependencyError": "impresslearn.errors",
    "networks": "impresslearn.networks",
    "open_store": "impresslearn.learner.loading",
    "Prepared": "impresslearn.data.preprocessing",
    "Preprocessing": "impresslearn.data.preprocessing",
    "preset": "impresslearn.learner.presets",
    "push_to_hub": "impresslearn.hub",
    "random_bank": "impresslearn.masks",
    "Recipe": "impresslearn.optimisation.loop",
    "register_backbone": "impresslearn.networks",
    "rounded": "impresslearn.learner.rounding",
    "single_mask_accuracy": "impresslearn.methods",
    "StoreError": "impresslearn.errors",
    "streams": "impresslearn.streams",
    "SupSup": "impresslearn.methods",
    "TaskGuess": "impresslearn.inference",
    "TrainingError": "impresslearn.errors",
    "UnknownTaskError": "impresslearn.errors",
}
"""Public name -> the module that defines it; a sub-module is its own home."""

__all__ = sorted([*_HOME, "__version__"])


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _version()
    elif name in _HOME:
        module = import_module(_HOME[name])
        value = module if module.__name__ == f"{__name__}.{name}" else getattr(module, name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(__name__)
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "0+unknown"
