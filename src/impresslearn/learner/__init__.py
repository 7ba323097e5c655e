"""`ImpressLearner`, how it is created, loaded and rounded, and its presets."""

from impresslearn.learner.creation import CreationSettings, check_agreement, create_learner
from impresslearn.learner.learner import ImpressLearner
from impresslearn.learner.loading import load, open_store, verify_store
from impresslearn.learner.presets import Preset, list_presets, preset
from impresslearn.learner.rounding import Rounded, Rounding, rounded

__all__ = [
    "CreationSettings",
    "ImpressLearner",
    "Preset",
    "Rounded",
    "Rounding",
    "check_agreement",
    "create_learner",
    "list_presets",
    "load",
    "open_store",
    "preset",
    "rounded",
    "verify_store",
]
