"""Streams by name, for the command line and for experiment records.

Every stream that plain settings describe is here under the name of its function, which is also the
`name` of the stream it makes (`from_folder` streams are named after their folder).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from impresslearn.errors import InputError
from impresslearn.streams.base import Stream
from impresslearn.streams.cifar import split_cifar100
from impresslearn.streams.custom import from_folder
from impresslearn.streams.digits import permuted_digits, rotated_digits
from impresslearn.streams.imagenet import split_imagenet
from impresslearn.streams.mnist import permuted_mnist, rotated_mnist

_MAKERS: MappingProxyType[str, Callable[..., Stream]] = MappingProxyType(
    {
        maker.__name__: maker
        for maker in (
            rotated_digits,
            permuted_digits,
            rotated_mnist,
            permuted_mnist,
            split_cifar100,
            split_imagenet,
            from_folder,
        )
    }
)


def list_streams() -> tuple[str, ...]:
    """The names that `create_stream` takes."""
    return tuple(_MAKERS)


def create_stream(name: str, **settings: Any) -> Stream:
    """The stream of this name, with the settings of its function.

    Raises InputError for an unknown name or setting, and whatever the function raises.
    """
    maker = _MAKERS.get(name)
    if maker is None:
        raise InputError(f"unknown stream {name!r}; choose from {', '.join(_MAKERS)}")
    parameters = inspect.signature(maker).parameters
    unknown = [setting for setting in settings if setting not in parameters]
    if unknown:
        raise InputError(f"{name} has no setting {unknown[0]!r}; it has {', '.join(parameters)}")
    needed = [
        key
        for key, parameter in parameters.items()
        if parameter.default is parameter.empty and key not in settings
    ]
    if needed:
        raise InputError(f"{name} needs the setting {needed[0]!r}")
    return maker(**settings)
