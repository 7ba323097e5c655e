"""Checks names, seeds, numbers and settings before any work is done.

Each check returns the value as a plain Python value, or raises InputError with one line that says
which value is expected and which was given.
"""

import functools
import inspect
import json
import math
import numbers
import sys
import zlib
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from contextvars import ContextVar
from difflib import get_close_matches
from importlib import import_module
from typing import Any, TypeVar, cast
from unicodedata import normalize

import numpy as np

from impresslearn.errors import FixedSettingError, InputError, MissingDependencyError, visible

Call = TypeVar("Call", bound=Callable[..., Any])
# Whether the caller has set torch's default device. Inside this package that device is the CPU.
device_is_set: ContextVar[bool | None] = ContextVar("device_is_set", default=None)


def clear_calls(call: Call) -> Call:
    """A decorator for a function, or a class with its public methods: clear errors for wrong calls.

    During a call, torch's default device is the CPU.
    """
    if isinstance(call, type):
        for name, method in list(vars(call).items()):
            if inspect.isfunction(method) and (name == "__init__" or name[0] != "_"):
                setattr(call, name, clear_calls(method))
            elif isinstance(method, classmethod) and name[0] != "_":
                setattr(call, name, classmethod(clear_calls(method.__func__)))
        return call

    @functools.wraps(call)
    def checked(*given: Any, **named: Any) -> Any:
        try:
            if device_is_set.get() is not None:  # a call from inside the package
                return call(*given, **named)
            torch: Any = sys.modules.get("torch")  # a command may not have imported it
            is_set = torch is not None and torch.get_default_device().type != "cpu"
            token = device_is_set.set(is_set)
            try:
                with torch.device("cpu") if is_set else nullcontext():
                    return call(*given, **named)
            finally:
                device_is_set.reset(token)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next:
                raise  # the error was raised inside the call
            place, line = call.__qualname__.removesuffix(".__init__"), str(error)
            parameters = inspect.signature(call).parameters
            takes = [name for name in parameters if name not in ("self", "cls")]
            for name in named:
                check_known(f"{place} has no argument", name, takes)
            missing = line.partition(": ")[2]
            line = f"needs {missing}" if missing else "got too many values without a name"
            raise InputError(f"{place} {line}; its arguments are {', '.join(takes)}") from None

    return cast(Call, checked)


class ReadOnlySettings:
    """A base class whose public attributes cannot be changed after the constructor has set them."""

    _changeable = frozenset({"progress"})

    def __init_subclass__(cls) -> None:
        clear_calls(cls)

    def __setattr__(self, name: str, value: Any) -> None:
        # A changed setting would apply only to what is learned later.
        if not name.startswith("_") and name in self.__dict__ and name not in self._changeable:
            kind = type(self).__name__
            line = f"{name} of {kind} is fixed once it is made"
            raise FixedSettingError(f"{line}; make another {kind} with {name}={shown(value)}")
        super().__setattr__(name, value)


def shown(value: Any) -> str:
    """The repr of a value, on one line of at most 60 characters."""
    text = visible(repr(value))
    return text if len(text) <= 60 else f"{' '.join(repr(value).split())[:59]}…"


def check_name(name: Any, what: str = "a task's name") -> str:
    """The name, which must be a non-empty string that UTF-8 can encode."""
    if not isinstance(name, str) or not name:
        is_data = isinstance(name, (tuple, list)) or hasattr(name, "shape")
        got = f"{type(name).__name__}; the name comes first" if is_data else shown(name)
        raise InputError(f"{what} must be a non-empty string, got {got}")
    if not encodable(name):
        raise InputError(f"{what} is no valid Unicode, which no file can keep: {name!r}")
    return composed(str.__str__(name))  # turns a member of an enumeration into its value


def composed(text: str) -> str:
    """The text in Unicode's form NFC, so that all ways to encode "é" give the same name."""
    return normalize("NFC", text)


def encodable(text: str) -> bool:
    """Whether UTF-8 can encode a text; it cannot encode lone surrogates."""
    return text.encode(errors="replace").decode() == text


def check_integer(name: str, value: Any, low: int, high: int = 2**63) -> int:
    """The value, which must be an integer with low <= value < high."""
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not is_integer or not low <= value < high:
        bound = f"of at least {low}" if high == 2**63 else f"from {low} to {high - 1}"
        bound = "of 64 bits" if low == -(2**63) or (is_integer and value >= 2**63) else bound
        raise InputError(f"{name} must be an integer {bound}, got {shown(value)}")
    return int(value)


def check_number(name: str, value: Any, low: float = -math.inf, high: float = math.inf) -> float:
    """The value as a float, which must be finite with low <= value <= high."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (is_number and abs(value) <= sys.float_info.max and low <= value <= high):
        bound = "a finite number" if low == -math.inf else f"a finite number of at least {low:g}"
        bound = bound if high == math.inf else f"a number from {low:g} to {high:g}"
        raise InputError(f"{name} must be {bound}, got {shown(value)}")
    return float(value)


def check_kind(name: str, value: Any, kind: type) -> None:
    """Raises InputError if a value is not an instance of `kind`."""
    if not isinstance(value, kind):
        raise InputError(f"{name} must be of type {kind.__name__}, got {type(value).__name__}")


def check_mapping(name: str, value: Any, entries: str, least: int = 1) -> None:
    """Raises InputError unless value is a mapping with at least `least` entries.

    entries: the form of a valid mapping, for the error.
    """
    if not isinstance(value, Mapping) or len(value) < least:
        got = "an empty one" if isinstance(value, Mapping) else type(value).__name__
        raise InputError(f"{name} must be a dictionary {entries}, got {got}")


def check_seed(seed: Any) -> int:
    """The seed, which must be an integer of 64 bits, because torch takes such seeds."""
    return check_integer("seed", seed, -(2**63))


def torch_seed(seed: int) -> int:
    """A seed of 32 bits for any seed, because torch's CPU generator ignores all higher bits."""
    return seed if 0 <= seed < 2**32 else zlib.crc32(str(seed).encode())


def check_flag(name: str, value: Any) -> bool:
    """The value, which must be True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise InputError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def check_choice(name: str, value: Any, known: Collection[str]) -> Any:
    """The value, which must be one of the known strings."""
    if not isinstance(value, str) or value not in known:
        wanted = "one of " + ", ".join(known) if len(known) > 1 else repr(*known)
        # Three similar words, such as int4, int5 and int8, would only repeat the list.
        hint = did_you_mean(value, known) if len(nearest(value, known)) < 3 else ""
        raise InputError(f"{name} must be {wanted}, got {shown(value)}{hint}")
    return str.__str__(value)


def check_known(line: str, word: Any, known: Collection[str]) -> None:
    """Raises InputError (`line`, then similar known words) if a word is not known."""
    if word not in known:
        hint = did_you_mean(word, known) or f"; choose from {', '.join(known)}"
        recipes = [name for name in known if "recipe" in name]
        if recipes and word in ("lr", "learning_rate", "epochs", "batch_size"):
            how = f"{recipes[-1]}=il.Recipe(lr=0.1, epochs=3)"
            if line[0] == "-":
                how = f"{line.split()[0]} '{recipes[-1]}={{\"lr\":0.1}}'"
            hint = f"; it is a setting of a recipe, as in {how}"
        raise InputError(f"{line} {shown(word)}{hint}")


def did_you_mean(word: Any, known: Collection[str]) -> str:
    """Text such as "; did you mean 'resnet18'?", or "" if no known word is similar."""
    close = nearest(word, known)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


def nearest(word: Any, known: Collection[str], count: int = 3) -> list[str]:
    """At most `count` known words that start with the word, contain it, or look similar."""
    text = str(word)[:100].casefold()
    folded = {other.casefold(): other for other in known}
    begun = [name for name in folded if text and name.startswith(text)]
    holding = [name for name in folded if len(text) > 2 and text in name]
    # "basiss" is a typing error for "basis_recipe", but "start" is not one for "sparsity".
    stem = [name for name in folded if len(text) > 4 and text[:-1] in name]
    close = begun + holding or stem or get_close_matches(text, folded, n=count, cutoff=0.65)
    return [folded[name] for name in dict.fromkeys(close)][:count]


def imported(module: str, line: str, extra: str) -> Any:
    """Imports a module that an extra of this package installs.

    Raises MissingDependencyError if this fails. line: the start of the message if it is missing.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and f"{error.name}.".startswith(f"{package}."):
            raise MissingDependencyError(f"{line}: pip install 'impresslearn[{extra}]'") from None
        raise MissingDependencyError(f"{package} cannot be imported: {error}") from error


def plain_json(value: Any, what: str) -> Any:
    """A copy that consists of JSON values; NumPy's numbers and arrays are converted."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=lambda x: x.tolist())
        text.encode()
        return json.loads(text)
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(f"{what} must consist of JSON values: {error}") from None
