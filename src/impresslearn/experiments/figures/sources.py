"""Where the figures of a document come from, as a TOML file says.

file        the document, or a pattern such as docs/**/*.md for all that have no file of their own;
            records the folder of records; paths from the root of the checkout
[[said]]    text: a piece of the document, which is there once, with {} for figures and ... for
            anything between; from: a table for each figure, or for several if a value is a list
            (see `lookups.Lookup`): record, columns of its rows, value, of, against, unit. What
            all have in common stands beside `text`
[[exempt]]  text: likewise; because: why its figures are in no record
[not_in_a_record]    beginning of a paragraph = how many of its figures were measured apart
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from impresslearn.errors import InputError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class Said(BaseModel):
    """A piece of text, and the sources of its figures in their order."""

    model_config = ConfigDict(extra="allow")

    text: str
    each: list[dict[str, Any]] = Field(default=[{}], alias="from")

    def sources(self) -> Iterator[dict[str, Any]]:
        """Each source, with what all have in common."""
        for source in self.each:
            yield {**(self.model_extra or {}), **source}


class Exempt(BaseModel):
    """A piece of text whose figures are in no record."""

    model_config = ConfigDict(extra="forbid")

    text: str
    because: str = Field(min_length=3)


class Sources(BaseModel):
    """What is known of a document's figures."""

    model_config = ConfigDict(extra="forbid")

    file: str
    records: str = "paper/results"
    said: list[Said] = []
    exempt: list[Exempt] = []
    not_in_a_record: dict[str, int] = {}


def read_sources(path: Path) -> Sources:
    """The sources in a file. Raises InputError that names it."""
    try:
        return Sources.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no TOML: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(f"{path}: {place}: {first['msg']}") from None
