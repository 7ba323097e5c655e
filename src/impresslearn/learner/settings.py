"""Validates a learner's settings, and converts them to plain values for a file and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, cast, get_args

from impresslearn.checks import (
    check_choice,
    check_flag,
    check_integer,
    check_number,
    check_seed,
)
from impresslearn.coefficients.learning import CoefficientTraining
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
HIGHEST_PRICE = 1e9
"""Of a bit; beyond it gradients overflow float32."""


def checked_tune(tune: Any) -> tuple[TunedKind, ...]:
    """The kinds of small parameters, each once. Raises InputError for other words and values."""
    words: Any = (tune,) if isinstance(tune, str) else tune
    if not isinstance(words, Iterable):
        raise InputError(f"tune takes words out of {', '.join(TUNED)}, got {tune!r}")
    kinds = tuple(check_choice("tune", kind, TUNED) for kind in dict.fromkeys(words))
    return cast("tuple[TunedKind, ...]", kinds)


@dataclass(frozen=True)
class LearnerSettings:
    """The settings of `ImpressLearner` that shape what is learned, checked and as plain values.

    Raises InputError that names the setting, what was expected and what came.
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
            "fold_after": check_number("fold_after", self.fold_after, 0.0),
            "tune": checked_tune(self.tune),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.max_bytes is not None:
            check_integer("max_bytes", self.max_bytes, 1)
            if self.precision != "coded" or not self.bit_price:
                raise InputError(
                    "max_bytes raises the price of bits until a task fits: it needs "
                    'precision="coded" and a bit_price above 0; else give max_bytes=None'
                )
        if self.precision != "coded" and self.bit_price != DEFAULT_PRICE:
            raise InputError(
                f'bit_price is for precision="coded"; with {self.precision!r} it has no effect'
            )
        if self.fold_after > 1:
            raise InputError(f"fold_after is a share in [0, 1], got {self.fold_after}")
        if self.fold_after and "norm" not in self.tune:
            raise InputError('fold_after needs norms that are tuned: tune=("norm",)')
        if self.start == "network" and self.penalty:
            raise InputError('penalty is that of a mixture; with start="network" it must be 0')
        if self.granularity == "weight" and self.penalty:
            raise InputError('penalty is that of a mixture; with granularity="weight" it must be 0')
        self.coefficient_training  # noqa: B018  # raises for numbers that cannot be learned so
        for name in RECIPES:
            _instance(name, getattr(self, name), Recipe)
        if self.preprocessing is not None:
            _instance("preprocessing", self.preprocessing, Preprocessing)

    @property
    def coefficient_training(self) -> CoefficientTraining:
        """Which numbers a task learns, and how."""
        price = self.bit_price if self.precision == "coded" else None
        spec = CoefficientSpec(
            self.granularity,
            self.output_scale,
            price,
            residual=self.start == "network",
            tune=self.tune,
        )
        return CoefficientTraining(spec, self.task_recipe, self.penalty, self.fold_after)

    def plain(self) -> dict[str, Any]:
        """The settings as JSON values."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        own |= {name: own[name].settings() for name in RECIPES} | {"tune": list(self.tune)}
        if self.preprocessing is not None:
            own["preprocessing"] = self.preprocessing.settings()
        return own

    def mask_recipe(self, seed: int) -> dict[str, Any]:
        """How a mask is trained from a seed, for its history."""
        own = {"seed": seed, "sparsity": self.sparsity, "allocation": self.allocation}
        return own | {"rule": self.score_rule, **self.basis_recipe.settings()}

    def task_history(self, seed: int) -> dict[str, Any]:
        """How a task's coefficients are learned from a seed, for its history."""
        own: dict[str, Any] = {"seed": seed, "granularity": self.granularity, "start": self.start}
        own["penalty"] = self.penalty
        if self.precision == "coded":
            own["bit_price"] = self.bit_price
        if self.tune:
            own |= {"tune": list(self.tune), "fold_after": self.fold_after}
        return own | self.task_recipe.settings()


def restored_settings(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments for `ImpressLearner` from what `plain` gave.

    Raises KeyError, TypeError or InputError for anything else.
    """
    own = {field.name: plain[field.name] for field in fields(LearnerSettings)}
    own |= {name: Recipe(**own[name]) for name in RECIPES} | {"tune": tuple(own["tune"])}
    if own["preprocessing"] is not None:
        own["preprocessing"] = Preprocessing(**own["preprocessing"])
    return own


def _instance(name: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise InputError(f"{name} must be a {kind.__name__}, got {type(value).__name__}")
