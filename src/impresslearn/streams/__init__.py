"""Streams of tasks: the standard ones and your own.

A stream is a sequence of tasks. A task has a name, classes, and train, validation and test
examples that are made when you ask for them.
"""

from impresslearn.streams.custom import from_arrays, from_folder
from impresslearn.streams.standard import (
    permuted_digits,
    permuted_mnist,
    rotated_digits,
    rotated_mnist,
    split_cifar100,
)
from impresslearn.streams.stream import Stream, Task
from impresslearn.streams.torchvision import import_torchvision

__all__ = [
    "Stream",
    "Task",
    "from_arrays",
    "from_folder",
    "import_torchvision",
    "permuted_digits",
    "permuted_mnist",
    "rotated_digits",
    "rotated_mnist",
    "split_cifar100",
]
