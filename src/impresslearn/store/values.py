"""Values of rows as JSON, and read back with care.

A checksum proves that a value is what was written, not that this library wrote it.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

from impresslearn.errors import InputError
from impresslearn.validation import DEEPEST, nests

UNREADABLE = (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError)
"""What decoding a row raises that cannot be one."""


def to_json(value: Any) -> str:
    """Plain values as one compact line. Raises InputError for NaN and for what JSON has no word."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"a store keeps plain JSON values only: {error}") from None


def of_kind(kind: type, text: Any) -> Any:
    """The JSON value of a text.

    Raises ValueError for another kind of value, infinite numbers and halves of characters.
    """
    value = None
    if isinstance(text, str):
        value = _DECODER.decode(text)
        if not nests(value, DEEPEST + 4):  # a note lies some levels down in its row
            raise ValueError("JSON that nests too deep")
        if "\\u" in text:
            to_json(value).encode()
    if not isinstance(value, kind):
        raise ValueError(f"a {type(value).__name__} where a {kind.__name__} belongs")
    return value


def _finite(text: str) -> float:
    if not isfinite(value := float(text)):
        raise ValueError(f"the number {text}")
    return value


_DECODER = json.JSONDecoder(parse_constant=_finite, parse_float=_finite)


def check_kinds(row: Any, **kinds: type) -> None:
    """Raises TypeError or ValueError unless columns are of these kinds, and a name not empty."""
    for name, kind in kinds.items():
        value = getattr(row, name)
        if type(value) is not kind:
            raise TypeError(f"its {name} is no {kind.__name__}")
        if name == "name" and not value:
            raise ValueError("its name is empty")
