"""Streams of tasks: the standard ones and a user's own.

A stream is a sequence of tasks; a task has a name, classes and train, validation and test examples
that are made when asked for. `create_stream("rotated_digits", tasks=5)` is
`rotated_digits(tasks=5)` for callers that have a name; `register_stream` adds a name.
"""

from impresslearn.streams.cifar import split_cifar100
from impresslearn.streams.custom import from_arrays, from_folder
from impresslearn.streams.imagenet import split_imagenet
from impresslearn.streams.mnist import (
    permuted_digits,
    permuted_mnist,
    rotated_digits,
    rotated_mnist,
)
from impresslearn.streams.registry import (
    STANDARD_STREAMS,
    create_stream,
    list_streams,
    register_stream,
    stream_settings,
)
from impresslearn.streams.stream import Stream, Task
from impresslearn.streams.torchvision import import_torchvision

__all__ = [
    "STANDARD_STREAMS",
    "Stream",
    "Task",
    "create_stream",
    "from_arrays",
    "from_folder",
    "import_torchvision",
    "list_streams",
    "permuted_digits",
    "permuted_mnist",
    "register_stream",
    "rotated_digits",
    "rotated_mnist",
    "split_cifar100",
    "split_imagenet",
    "stream_settings",
]
