"""Continual learning in which every new task costs a handful of numbers.

This module holds the public names and nothing else. They are imported on first use, so that
`import impresslearn` and the command line's `--help` do not wait for torch; type checkers and
editors read the same names from the `TYPE_CHECKING` block.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from impresslearn import streams as streams
    from impresslearn.backbones import Backbone as Backbone
    from impresslearn.backbones import adapt as adapt
    from impresslearn.backbones import create_backbone as create_backbone
    from impresslearn.backbones import list_backbones as list_backbones
    from impresslearn.backbones import register_backbone as register_backbone
    from impresslearn.bank import MaskBank as MaskBank
    from impresslearn.baselines import FineTuning as FineTuning
    from impresslearn.baselines import Hybrid as Hybrid
    from impresslearn.baselines import SupSup as SupSup
    from impresslearn.baselines import single_mask_accuracy as single_mask_accuracy
    from impresslearn.data import Examples as Examples
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
    from impresslearn.persistence import load as load
    from impresslearn.persistence import open_store as open_store
    from impresslearn.preprocessing import Prepared as Prepared
    from impresslearn.preprocessing import Preprocessing as Preprocessing
    from impresslearn.presets import list_presets as list_presets
    from impresslearn.presets import preset as preset
    from impresslearn.rounding import rounded as rounded
    from impresslearn.sources import disjoint_bank as disjoint_bank
    from impresslearn.sources import random_bank as random_bank
    from impresslearn.training import Recipe as Recipe

    __version__: str

_HOME = {
    "Backbone": "impresslearn.backbones",
    "Examples": "impresslearn.data",
    "FineTuning": "impresslearn.baselines",
    "Hybrid": "impresslearn.baselines",
    "ImpressLearnError": "impresslearn.errors",
    "ImpressLearner": "impresslearn.learner",
    "InputError": "impresslearn.errors",
    "MaskBank": "impresslearn.bank",
    "MissingDataError": "impresslearn.errors",
    "MissingDependencyError": "impresslearn.errors",
    "Prepared": "impresslearn.preprocessing",
    "Preprocessing": "impresslearn.preprocessing",
    "StoreError": "impresslearn.errors",
    "Recipe": "impresslearn.training",
    "SupSup": "impresslearn.baselines",
    "TaskGuess": "impresslearn.inference",
    "TrainingError": "impresslearn.errors",
    "UnknownTaskError": "impresslearn.errors",
    "adapt": "impresslearn.backbones",
    "create_backbone": "impresslearn.backbones",
    "disjoint_bank": "impresslearn.sources",
    "from_hub": "impresslearn.hub",
    "list_backbones": "impresslearn.backbones",
    "list_presets": "impresslearn.presets",
    "load": "impresslearn.persistence",
    "open_store": "impresslearn.persistence",
    "preset": "impresslearn.presets",
    "push_to_hub": "impresslearn.hub",
    "random_bank": "impresslearn.sources",
    "rounded": "impresslearn.rounding",
    "register_backbone": "impresslearn.backbones",
    "single_mask_accuracy": "impresslearn.baselines",
    "streams": "impresslearn.streams",
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
