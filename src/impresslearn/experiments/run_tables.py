"""The tables of a configuration file as pydantic models.

Settings of streams, networks, methods and a user's functions are checked by these themselves.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

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


def _distinct(seeds: list[int]) -> list[int]:
    if not seeds or len(set(seeds)) != len(seeds):
        raise ValueError(f"must be distinct, and at least one, got {seeds}")
    return seeds


Plain = Annotated[Any, AfterValidator(_plain)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Open(_Table):
    """A table that also holds the settings of some function, which checks them itself."""

    model_config = ConfigDict(extra="allow", strict=True)
    __pydantic_extra__: dict[str, Plain] = Field(init=False)


class _Source(_Open):
    name: str | None = None
    module: Annotated[str, AfterValidator(_reference)] | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> _Source:
        if (self.name is None) == (self.module is None):
            raise ValueError('needs name = "…" or module = "file:function", one of them')
        return self


class _NetworkSettings(_Open):
    """Settings of a network: `create_backbone`'s, or for a user's own network `adapt`'s."""

    norm: str | None = None
    input_shape: list[int] | None = None
    num_classes: int | None = None
    skip: list[str] | None = None

    @model_validator(mode="after")
    def _without_seed(self) -> _NetworkSettings:
        if "seed" in (self.model_extra or {}):
            raise ValueError("seed is given by [run] seeds, leave it out here")
        return self


class StreamTable(_Source):
    """[stream]: a standard stream, or the user's."""


class BackboneTable(_Source, _NetworkSettings):
    """[backbone]: a network of the library, or the user's."""


class NetworkChanges(_NetworkSettings):
    """What is different in the network of one method."""

    @model_validator(mode="after")
    def _without_source(self) -> NetworkChanges:
        if not {"name", "module"}.isdisjoint(self.model_extra or {}):
            raise ValueError("name and module stand in [backbone] only")
        return self


class MethodTable(_Source):
    """[[method]]: a method of the library, one that was registered, or the user's."""

    label: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)] | None = None
    backbone: NetworkChanges = NetworkChanges()
    basis: int = Field(default=0, ge=0)


class RunTable(_Table):
    """[run]."""

    seeds: Annotated[list[Seed], AfterValidator(_distinct)] = [0]
    out: str = "results"
    order: Literal["shuffled", "given"] = "shuffled"
    tensorboard: str | None = None


class ConfigurationFile(_Table):
    """The whole file."""

    stream: StreamTable
    backbone: BackboneTable
    method: Annotated[list[MethodTable], Field(min_length=1)]
    run: RunTable = RunTable()
