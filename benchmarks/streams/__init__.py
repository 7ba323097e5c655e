"""Streams of the benchmarks: the library's, and three that only benchmarks use."""

from benchmarks.streams.clinc import clinc150
from benchmarks.streams.images import mnist_customers, split_imagenet
from impresslearn import streams

STREAMS = {
    "rotated_digits": streams.rotated_digits,
    "permuted_digits": streams.permuted_digits,
    "rotated_mnist": streams.rotated_mnist,
    "permuted_mnist": streams.permuted_mnist,
    "split_cifar100": streams.split_cifar100,
    "mnist_customers": mnist_customers,
    "split_imagenet": split_imagenet,
    "clinc150": clinc150,
}
"""The function that makes each stream, by the name that jobs use."""
