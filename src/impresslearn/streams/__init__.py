"""Streams of tasks: the standard ones and your own.

A stream is a sequence of tasks. A task has a name, classes, and training and test examples, which
are made when you ask for them.
"""

from impresslearn.streams.standard import permuted_digits as permuted_digits
from impresslearn.streams.standard import permuted_mnist as permuted_mnist
from impresslearn.streams.standard import rotated_digits as rotated_digits
from impresslearn.streams.standard import rotated_mnist as rotated_mnist
from impresslearn.streams.standard import split_cifar100 as split_cifar100
from impresslearn.streams.stream import Stream as Stream
from impresslearn.streams.stream import Task as Task
from impresslearn.streams.stream import from_arrays as from_arrays
from impresslearn.streams.torchvision import import_torchvision as import_torchvision
