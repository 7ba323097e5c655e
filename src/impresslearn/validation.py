"""Validates names, seeds, numbers and JSON values before anything is trained.

What a store could not write is refused here, and NumPy's numbers become Python's.
"""

import inspect
import json
import math
import numbers
import re
import sys
import zlib
from collections.abc import Callable, Collection
from difflib import get_close_matches
from typing import Any

import numpy as np

from impresslearn.errors import FixedSettingError, InputError

LARGEST = sys.float_info.max
DEEPEST = 32
"""Levels of JSON: a later reader may have less room on the stack."""


class ReadOnlySettings:
    """Public attributes are set once, by the constructor, and refused afterwards.

    What was learned depends on them, so changing one later would do nothing, or do half.
    """

    _changeable = frozenset({"progress"})

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and name in self.__dict__ and name not in self._changeable:
            kind = type(self).__name__
            raise FixedSettingError(
                f"{name} of a {kind} is fixed once it is made; make another {kind} with "
                f"{name}={str(value)[:40]}"
            )
        super().__setattr__(name, value)


def check_name(name: Any, what: str = "a task's name") -> str:
    """The name as a plain string. Raises InputError for no string, and for one without text."""
    if not isinstance(name, str) or not name:
        raise InputError(f"{what} must be a non-empty string, got {name!r}")
    if not encodable(name):
        raise InputError(f"{what} is no valid Unicode, which no file can keep: {name!r}")
    return str.__str__(name)  # of a member of an enumeration too


def encodable(text: str) -> bool:
    """Whether UTF-8 can write a text; it has no word for lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_integer(name: str, value: Any, low: int, high: int = 2**63) -> int:
    """The value as a plain int. Raises InputError unless it is an integer in [low, high)."""
    known = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not known or not low <= value < high:
        bound = f"of at least {low}" if high == 2**63 else f"from {low} to {high - 1}"
        raise InputError(f"{name} must be an integer {bound}, got {value!r}")
    return int(value)


def check_number(
    name: str, value: Any, low: float = float("-inf"), high: float = float("inf")
) -> float:
    """The value as a plain float. Raises InputError unless it is finite, from `low` to `high`."""
    known = isinstance(value, numbers.Real) and not isinstance(value, bool)
    whole = isinstance(value, numbers.Integral)  # of which isfinite takes none beyond floats
    finite = known and (abs(value) <= LARGEST if whole else math.isfinite(value))
    if not finite or not low <= value <= high:
        bound = "a finite number" if low == float("-inf") else f"a number of at least {low:g}"
        bound = bound if high == float("inf") else f"a number from {low:g} to {high:g}"
        raise InputError(f"{name} must be {bound}, got {value!r}")
    return float(value)


def check_seed(seed: Any) -> int:
    """The seed as a plain int. Raises InputError unless it is an integer that torch takes."""
    return check_integer("seed", seed, -(2**63))


def torch_seed(seed: int) -> int:
    """The seed as torch's generator on the CPU tells it from all others: of 32 bits, by CRC."""
    return seed if 0 <= seed < 2**32 else zlib.crc32(str(seed).encode())


def check_flag(name: str, value: Any) -> bool:
    """The value as a plain bool. Raises InputError for anything else."""
    if not isinstance(value, (bool, np.bool_)):
        raise InputError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def check_choice(name: str, value: Any, known: Collection[str]) -> Any:
    """The value as a plain string. Raises InputError unless it is one of those known."""
    if not isinstance(value, str) or value not in known:
        wanted = ("one of " if len(known) > 1 else "") + ", ".join(known)
        raise InputError(f"{name} must be {wanted}, got {value!r}{did_you_mean(value, known)}")
    return str.__str__(value)  # of a member of an enumeration too


def did_you_mean(word: Any, known: Collection[str]) -> str:
    """ "; did you mean 'resnet18'?", or nothing where no known word is near."""
    close = nearest(word, known)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


def check_known(line: str, word: Any, known: Collection[str]) -> None:
    """Raises InputError with the line of `unknown_word` for a word that is not known."""
    if word not in known:
        raise InputError(unknown_word(line, word, known))


def check_keywords(
    line: str, given: Collection[str], function: Callable[..., Any], also: Collection[str] = ()
) -> None:
    """Raises InputError with the line of `unknown_word` for a keyword that a function refuses.

    also: words that are taken beside those of its signature.
    """
    parameters = inspect.signature(function).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return
    for key in given:
        check_known(line, key, [*(each.name for each in parameters), *also])


def unknown_word(line: str, word: Any, known: Collection[str]) -> str:
    """The line about an unknown word: close ones, or all there are."""
    hint = did_you_mean(word, known) or f"; choose from {', '.join(known)}"
    return f"{line} {word!r}{hint}"


def nearest(word: Any, known: Collection[str], count: int = 3) -> list[str]:
    """At most `count` known words that begin with a word or hold it; else those spelled alike.

    First of all one that differs by zeros before a number: "shop7" is near "shop07".
    """
    text = str(word).casefold()
    folded = {each: each.casefold() for each in known}
    bare = _without_zeros(text)
    same = [each for each, other in folded.items() if _without_zeros(other) == bare]
    begun = [each for each, other in folded.items() if text and other.startswith(text)]
    held = [each for each, other in folded.items() if len(text) > 2 and text in other]
    alike = [] if begun or held else get_close_matches(text, folded.values(), n=count)
    spelled = [each for other in alike for each in folded if folded[each] == other]
    return list(dict.fromkeys([*same, *begun, *held, *spelled]))[:count]


def _without_zeros(text: str) -> str:
    return re.sub(r"(?<![0-9])0+(?=[0-9])", "", text)


def plain_json(value: Any, what: str) -> Any:
    """A copy made of JSON values, NumPy's numbers and arrays among them converted.

    Raises InputError for NaN, text that UTF-8 cannot write, values that JSON has no word for, and
    more than `DEEPEST` levels.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_converted)
        text.encode()
        plain = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{what} must consist of JSON values: {error}") from None
    if not nests(plain, DEEPEST):
        raise InputError(f"{what} must not nest deeper than {DEEPEST} levels")
    return plain


def nests(value: Any, levels: int) -> bool:
    """Whether lists and dictionaries lie within one another in at most so many levels."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels >= 0 and all(nests(each, levels - 1) for each in inner)


def _converted(value: Any) -> Any:
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is none")
