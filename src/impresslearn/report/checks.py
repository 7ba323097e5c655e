"""Small checks of plain data from a file: every failure is one InputError that names the place.

`record` and `results` use them; `naming` puts the file, or whatever else the data came from, in
front of the message.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from numbers import Real
from reprlib import Repr
from typing import Any

from impresslearn.errors import InputError

_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 60


@contextmanager
def naming(source: str) -> Iterator[None]:
    """Puts `source` in front of the message of an InputError."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def require(condition: bool, message: str) -> None:
    """Raise InputError unless the condition holds."""
    if not condition:
        raise InputError(message)


def entries(part: Any, keys: Sequence[str], place: str) -> list[Any]:
    """The values of the keys, all of which the mapping must have."""
    require(isinstance(part, Mapping), f"{place} must be a mapping, got {kind(part)}")
    missing = [key for key in keys if key not in part]
    require(not missing, f"{place} lacks {listed(missing)}; it needs {listed(keys)}")
    return [part[key] for key in keys]


def has_shape(values: Any, shape: tuple[int, ...]) -> bool:
    """Whether these are nested lists of finite numbers of that shape."""
    if not shape:
        return is_number(values)
    return (
        is_list(values)
        and len(values) == shape[0]
        and all(has_shape(value, shape[1:]) for value in values)
    )


def is_list(value: Any) -> bool:
    """A list or tuple, no string."""
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def is_number(value: Any) -> bool:
    """A finite number, no boolean."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False


def is_fraction(value: Any) -> bool:
    """A number in [0, 1]."""
    return is_number(value) and 0 <= value <= 1


def text(value: Any, place: str) -> str:
    """The value, which must be a string."""
    require(isinstance(value, str), f"{place} must be a text, got {shown(value)}")
    return value


def texts(value: Any, place: str) -> tuple[str, ...]:
    """The value as a tuple of strings; one string is a tuple of itself."""
    if isinstance(value, str):
        return (value,)
    require(is_list(value), f"{place} must be a list of texts, got {shown(value)}")
    return tuple(text(each, f"{place}[{position}]") for position, each in enumerate(value))


def flag(value: Any, place: str) -> bool:
    """The value, which must be true or false."""
    require(isinstance(value, bool), f"{place} must be true or false, got {shown(value)}")
    return value


def plain(value: Any, place: str) -> None:
    """Raise InputError unless the value is made of texts, finite numbers, lists and mappings."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            plain(part, f"{place}.{name}")
    elif is_list(value):
        for position, part in enumerate(value):
            plain(part, f"{place}[{position}]")
    else:
        good = value is None or isinstance(value, (str, bool)) or is_number(value)
        require(good, f"{place} must be a plain, finite value, got {shown(value)}")


def kind(value: Any) -> str:
    """The value's type, in a word."""
    return type(value).__name__


def shown(value: Any) -> str:
    """The value on one line, its middle left out where it is long."""
    return _SHORT.repr(value)


def listed(names: Iterable[str]) -> str:
    """The names, quoted."""
    return ", ".join(map(repr, names))
