"""The tables of a configuration file as pydantic models: their keys, and the kind of each value.

Settings of streams, networks and a user's functions are checked by these themselves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from math import isfinite
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    create_model,
    model_validator,
)

from impresslearn.optimisation.loop import Recipe

LARGEST_SEED = 2**32 - 1
MODULE = re.compile(r"[^\W\d]\w*:[^\W\d]\w*")


def _plain(value: Any) -> Any:
    """No dates and no infinite numbers: the values are kept as JSON."""
    if isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            _plain(part)
    elif not (isinstance(value, (str, int)) or (isinstance(value, float) and isfinite(value))):
        raise ValueError(f"must be a text, a finite number, or such in a list, got {value}")
    return value


def _reference(text: str) -> str:
    if not MODULE.fullmatch(text):
        raise ValueError(
            f'must be "file:function", the file without .py and beside this one, got {text!r}'
        )
    return text


def _distinct_seeds(seeds: list[int]) -> list[int]:
    if not seeds or len(set(seeds)) != len(seeds):
        raise ValueError(f"must be distinct, and at least one, got {seeds}")
    if not all(0 <= seed <= LARGEST_SEED for seed in seeds):
        raise ValueError(f"must lie in 0 to {LARGEST_SEED}, got {seeds}")
    return seeds


def _not_empty(label: str) -> str:
    if not label.strip():
        raise ValueError("must not be empty")
    return label


Plain = Annotated[Any, AfterValidator(_plain)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Reference = Annotated[str, AfterValidator(_reference)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Open(_Table):
    """A table that also holds the settings of some function, which checks them itself."""

    model_config = ConfigDict(extra="allow", strict=True)
    __pydantic_extra__: dict[str, Plain] = Field(init=False)


class NetworkSettings(_Open):
    """Settings of a network: `create_backbone`'s, or for a user's own network `adapt`'s."""

    norm: str | None = None
    input_shape: list[int] | None = None
    num_classes: int | None = None
    skip: list[str] | None = None

    @model_validator(mode="after")
    def _without_seed(self) -> NetworkSettings:
        if "seed" in (self.__pydantic_extra__ or {}):
            raise ValueError("seed is given by [run] seeds, leave it out here")
        return self


class _Source(_Open):
    name: str | None = None
    module: Reference | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> _Source:
        if (self.name is None) == (self.module is None):
            raise ValueError('needs name = "…" or module = "file:function", one of them')
        return self


class StreamTable(_Source):
    """[stream]: a standard stream, or the user's."""


class BackboneTable(_Source, NetworkSettings):
    """[backbone]: a network of the library, or the user's."""


class NetworkChanges(NetworkSettings):
    """What is different in the network of one method."""

    @model_validator(mode="after")
    def _without_source(self) -> NetworkChanges:
        if not {"name", "module"}.isdisjoint(self.__pydantic_extra__ or {}):
            raise ValueError("name and module stand in [backbone] only")
        return self


_RECIPE_TYPES = {"int": int, "float": Number, "float | None": Number}
RecipeTable: type[BaseModel] = create_model(
    "RecipeTable",
    __base__=_Table,
    **{each.name: (_RECIPE_TYPES.get(str(each.type), str) | None, None) for each in fields(Recipe)},  # type: ignore[call-overload]
)


class MethodTable(_Table):
    """What every [[method]] may have."""

    name: str | None = None
    label: Annotated[str, AfterValidator(_not_empty)] | None = None
    backbone: NetworkChanges = NetworkChanges()


class UserMethod(MethodTable, _Open):
    """A [[method]] of the user's own, or one that was registered; it checks its settings itself."""

    module: Reference | None = None
    basis: int = Field(default=0, ge=0)


class RecipeMethod(MethodTable):
    """finetuning and separate."""

    recipe: RecipeTable | None = None  # type: ignore[valid-type]


class AdapterMethod(RecipeMethod):
    """lora and vera."""

    rank: int | None = None
    precision: str | None = None


class MaskMethod(RecipeMethod):
    """supsup and single_mask."""

    preset: str | None = None
    sparsity: Number | None = None
    allocation: str | None = None
    score_rule: str | None = None
    basis_recipe: RecipeTable | None = None  # type: ignore[valid-type]


class BankMethod(MaskMethod):
    """hybrid."""

    basis: int = 0
    random_masks: int = 0
    task_recipe: RecipeTable | None = None  # type: ignore[valid-type]

    @model_validator(mode="after")
    def _some_masks(self) -> BankMethod:
        counts = (self.basis, self.random_masks)
        if min(counts) < 0 or not any(counts):
            raise ValueError("needs basis or random_masks, a number of at least 1")
        return self


class CoefficientMethod(BankMethod):
    """impresslearn."""

    granularity: str | None = None
    output_scale: bool | None = None
    input_scale: bool | None = None
    precision: str | None = None
    bit_price: Number | None = None
    penalty: Number | None = None


METHODS: Mapping[str, type[MethodTable]] = {
    "impresslearn": CoefficientMethod,
    "supsup": MaskMethod,
    "single_mask": MaskMethod,
    "hybrid": BankMethod,
    "finetuning": RecipeMethod,
    "separate": RecipeMethod,
    "lora": AdapterMethod,
    "vera": AdapterMethod,
}
"""The table that a method has; others take any settings."""


class RunTable(_Table):
    """[run]."""

    seeds: Annotated[list[int], AfterValidator(_distinct_seeds)] = [0]
    out: str = "results"
    order: Literal["shuffled", "given"] = "shuffled"
    tensorboard: str | None = None


class ConfigurationFile(_Table):
    """The whole file; each [[method]] is checked as the table of its name."""

    stream: StreamTable
    backbone: BackboneTable
    method: list[Any]
    run: RunTable = RunTable()
