"""Streams of tasks: the standard ones and a user's own.

A stream is a sequence of tasks; a task has a name, classes and train, validation and test examples
that are made when asked for. `create_stream("rotated_digits", tasks=5)` is
`rotated_digits(tasks=5)` for callers that have a name; `register_stream` adds a name.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from impresslearn.checks import check_choice, check_name
from impresslearn.errors import InputError
from impresslearn.streams.cifar import split_cifar100
from impresslearn.streams.clinc import clinc150, clinc150_sentences
from impresslearn.streams.custom import from_arrays, from_folder
from impresslearn.streams.customers import mnist_customers
from impresslearn.streams.imagenet import split_imagenet
from impresslearn.streams.mnist import (
    permuted_digits,
    permuted_mnist,
    rotated_digits,
    rotated_mnist,
)
from impresslearn.streams.stream import Stream, Task
from impresslearn.streams.torchvision import import_torchvision

__all__ = [
    "STANDARD_STREAMS",
    "Stream",
    "Task",
    "clinc150",
    "clinc150_sentences",
    "create_stream",
    "from_arrays",
    "from_folder",
    "import_torchvision",
    "list_streams",
    "mnist_customers",
    "permuted_digits",
    "permuted_mnist",
    "register_stream",
    "rotated_digits",
    "rotated_mnist",
    "split_cifar100",
    "split_imagenet",
    "stream_settings",
]

_functions: dict[str, Callable[..., Stream]] = {
    function.__name__: function
    for function in (
        rotated_digits,
        permuted_digits,
        rotated_mnist,
        permuted_mnist,
        mnist_customers,
        split_cifar100,
        split_imagenet,
        clinc150,
        from_folder,
    )
}
STANDARD_STREAMS = tuple(_functions)
"""Those of the library, whose settings alone say what their data are."""


def register_stream(name: str, function: Callable[..., Stream]) -> None:
    """Lets `create_stream`, and with it run's configurations, make a stream by this name.

    function: takes plain settings as keyword arguments and returns a `Stream`. Raises InputError
    for a name that is taken.
    """
    if check_name(name, "a stream's name") in _functions:
        raise InputError(f"there is a stream {name!r} already; choose another name")
    _functions[name] = function


def list_streams() -> tuple[str, ...]:
    """The names that `create_stream` takes."""
    return tuple(_functions)


def stream_settings(name: str) -> Mapping[str, inspect.Parameter]:
    """The settings of a stream. Raises InputError for an unknown name."""
    function = _functions[check_choice("the stream", name, _functions)]
    return inspect.signature(function).parameters


def create_stream(name: str, **settings: Any) -> Stream:
    """The stream of this name, with the settings of its function.

    Raises InputError for an unknown name or setting, and whatever the function raises.
    """
    known = stream_settings(name)
    named = {key: each for key, each in known.items() if each.kind is not each.VAR_KEYWORD}
    for key in settings:
        if key not in known and len(named) == len(known):
            raise InputError(f"{name} has no setting {key!r}; it has {', '.join(known)}")
    for key, each in named.items():
        if each.default is each.empty and key not in settings:
            raise InputError(f"{name} needs the setting {key!r}")
    return _functions[name](**settings)
