"""Checks of plain data from files: every failure is one line that names the place and the value."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from reprlib import Repr
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationError

from impresslearn.errors import InputError

_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 60


@contextmanager
def naming(source: str) -> Iterator[None]:
    """Puts `source` in front of the message of a failed check."""
    try:
        yield
    except ValidationError as error:
        raise InputError(f"{source}: {one_line(error)}") from None
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    except RecursionError:
        raise InputError(f"{source}: is nested too deeply") from None


def one_line(error: ValidationError) -> str:
    """The first thing that is wrong: `figures[0].x: input should be a valid string, got 3`."""
    first = error.errors(include_url=False)[0]
    loc, message = first["loc"], first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    place = place.lstrip(".") or "the record"
    if first["type"] == "missing":
        return f"{place} is missing"
    if first["type"] == "extra_forbidden":
        return f"{place} is not known here"
    if not loc and first["type"] == "value_error":  # of parts together, which the message names
        return message
    return f"{place} {message.replace('should', 'must')}, got {shown(first['input'])}"


def is_number(value: Any) -> bool:
    """A finite number, no truth value."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False


def shown(value: Any) -> str:
    """The value on one line, its middle left out where it is long."""
    return _SHORT.repr(value)


def _plain(value: Any) -> Any:
    if not (isinstance(value, (str, bool)) or is_number(value)):
        raise ValueError("must be a text, a finite number or a truth value")
    return value


def _without_empty(raw: Any) -> Any:
    if not isinstance(raw, Mapping):
        return raw
    return {key: value for key, value in raw.items() if value is not None}


Plain = Annotated[Any, BeforeValidator(_plain)]
"""A text, a finite number or a truth value."""
WithoutEmpty = BeforeValidator(_without_empty)
"""Entries of None are left out: an empty entry is none."""
