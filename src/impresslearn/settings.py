"""A learner's settings as plain values: for a file and back, and as what it learns was made by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from impresslearn.training import Recipe

PLAIN = (
    "sparsity",
    "allocation",
    "granularity",
    "output_scale",
    "input_scale",
    "precision",
    "bit_price",
    "penalty",
    "score_rule",
    "seed",
)
LATER = {"bit_price": 1.0}
"""Settings that learners in older files do not have, and what they did."""
RECIPES = ("basis_recipe", "task_recipe")


def plain_settings(learner: Any) -> dict[str, Any]:
    """The constructor's settings that shape what is learned, as JSON values."""
    own = {name: getattr(learner, name) for name in PLAIN}
    return own | {name: getattr(learner, name).settings() for name in RECIPES}


def restored_settings(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments for the constructor. Raises KeyError or TypeError for other values."""
    known = LATER | dict(plain)
    own = {name: known[name] for name in PLAIN}
    return own | {name: Recipe(**plain[name]) for name in RECIPES}


def mask_recipe(learner: Any, seed: int) -> dict[str, Any]:
    """How the learner trains a mask from a seed."""
    own = {name: getattr(learner, name) for name in ("sparsity", "allocation")}
    return {"seed": seed, **own, "rule": learner.score_rule, **learner.basis_recipe.settings()}


def task_recipe(learner: Any, seed: int) -> dict[str, Any]:
    """How the learner learns a task's coefficients from a seed."""
    own = {"penalty": learner.penalty}
    if learner.precision == "coded":
        own["bit_price"] = learner.bit_price
    return {"seed": seed, **own, **learner.task_recipe.settings()}
