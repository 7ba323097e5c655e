"""Validates a learner's settings, and converts them to plain values for a file and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal, get_args

from impresslearn.checks import check_choice, check_flag, check_integer, check_number, check_seed
from impresslearn.coefficients.parametrisation import CoefficientSpec
from impresslearn.coefficients.quantisation import PRECISIONS, Precision
from impresslearn.data.preprocessing import Preprocessing
from impresslearn.errors import InputError
from impresslearn.masks.edge_popup import RULES, ScoreRule
from impresslearn.masks.sparsity import ALLOCATIONS, Allocation, check_sparsity
from impresslearn.networks.layers import TUNED, TunedKind
from impresslearn.training.loop import Recipe

Start = Literal["mixture", "network"]
STARTS: tuple[Start, ...] = get_args(Start)
RECIPES = ("basis_recipe", "task_recipe")
DEFAULT_PRICE = 1.0
# Of a bit; beyond it gradients overflow float32.
HIGHEST_PRICE = 1e9


def checked_tune(tune: Any) -> tuple[TunedKind, ...]:
    """The kinds of small parameters, each once. Raises InputError for other words and values."""
    words: Any = (tune,) if isinstance(tune, str) else tune
    if not isinstance(words, Iterable):
        raise InputError(f"tune must be a tuple of words out of {', '.join(TUNED)}, got {tune!r}")
    return tuple(check_choice("tune", kind, TUNED) for kind in dict.fromkeys(words))


@dataclass(frozen=True)
class LearnerSettings:
    """The settings of `ImpressLearner` that shape what is learned, checked and as plain values.

    Raises InputError that names the setting, the expected values and the value.
    """

    sparsity: float
    allocation: Allocation
    granularity: str
    output_scale: bool
    precision: Precision
    bit_price: float
    penalty: float
    basis_recipe: Recipe
    task_recipe: Recipe
    score_rule: ScoreRule
    seed: int
    preprocessing: Preprocessing | None
    start: Start
    tune: tuple[TunedKind, ...]
    fold_after: float
    max_bytes: int | None
    staged: bool

    def __post_init__(self) -> None:
        checked = {
            "sparsity": check_sparsity(self.sparsity),
            "allocation": check_choice("allocation", self.allocation, ALLOCATIONS),
            "output_scale": check_flag("output_scale", self.output_scale),
            "precision": check_choice("precision", self.precision, PRECISIONS),
            "bit_price": check_number("bit_price", self.bit_price, 0.0, HIGHEST_PRICE),
            "penalty": check_number("penalty", self.penalty, 0.0),
            "score_rule": check_choice("score_rule", self.score_rule, RULES),
            "seed": check_seed(self.seed),
            "start": check_choice("start", self.start, STARTS),
            "fold_after": check_number("fold_after", self.fold_after, 0.0, 1.0),
            "tune": checked_tune(self.tune),
            "staged": check_flag("staged", self.staged),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.max_bytes is not None:
            check_integer("max_bytes", self.max_bytes, 1)
            if self.precision != "coded" or not self.bit_price:
                raise InputError("max_bytes needs precision 'coded' and a bit_price above 0")
        if self.precision != "coded" and self.bit_price != DEFAULT_PRICE:
            raise InputError(
                f'bit_price is for precision="coded"; with {self.precision!r} it has no effect'
            )
        if self.staged and (self.start != "network" or self.precision != "coded"):
            raise InputError('staged needs start="network" and precision="coded"')
        if self.fold_after and "norm" not in self.tune:
            raise InputError('fold_after needs norms that are tuned: tune=("norm",)')
        numbers = self.spec.parametrisation  # raises for numbers that cannot be learned so
        if self.penalty and (self.start == "network" or not numbers.uses_masks):
            line = f"with start={self.start!r} and granularity={self.granularity!r} it must be 0"
            raise InputError(f"penalty is the penalty of a mixture; {line}")
        kinds: dict[str, type] = dict.fromkeys(RECIPES, Recipe)
        if self.preprocessing is not None:
            kinds["preprocessing"] = Preprocessing
        for name, kind in kinds.items():
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise InputError(f"{name} must be a {kind.__name__}, got {type(value).__name__}")

    @cached_property
    def spec(self) -> CoefficientSpec:
        """The numbers that a task learns."""
        price = self.bit_price if self.precision == "coded" else None
        residual = self.start == "network"
        return CoefficientSpec(self.granularity, self.output_scale, price, residual, self.tune)

    def values(self) -> dict[str, Any]:
        """The settings by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def plain(self) -> dict[str, Any]:
        """The settings as JSON values."""
        plain = self.values() | {"tune": list(self.tune)}
        for name in (*RECIPES, "preprocessing"):
            if plain[name] is not None:
                plain[name] = plain[name].settings()
        return plain

    def mask_recipe(self, seed: int) -> dict[str, Any]:
        """How a mask is trained from a seed, for its history."""
        settings = {"seed": seed, "sparsity": self.sparsity, "allocation": self.allocation}
        return settings | {"rule": self.score_rule, **self.basis_recipe.settings()}

    def task_history(self, seed: int) -> dict[str, Any]:
        """How a task's coefficients are learned from a seed, for its history."""
        history: dict[str, Any] = {
            "seed": seed,
            "granularity": self.granularity,
            "start": self.start,
        }
        history["penalty"] = self.penalty
        if self.precision == "coded":
            history["bit_price"] = self.bit_price
        if self.tune:
            history |= {"tune": list(self.tune), "fold_after": self.fold_after}
        return history | self.task_recipe.settings()


def restored_settings(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments for `ImpressLearner` from what `plain` gave.

    Raises KeyError, TypeError or InputError for anything else.
    """
    settings = {field.name: plain[field.name] for field in fields(LearnerSettings)}
    settings["tune"] = tuple(settings["tune"])
    for name in RECIPES:
        settings[name] = Recipe(**settings[name])
    if settings["preprocessing"] is not None:
        settings["preprocessing"] = Preprocessing(**settings["preprocessing"])
    return settings
