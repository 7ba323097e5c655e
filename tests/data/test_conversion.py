"""Labelled data of every form become the same examples, or are refused in one line."""

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset, TensorDataset

from impresslearn.data import as_examples, as_inputs
from toys import Pairs, refused

N = 40
X = torch.arange(3.0 * N).reshape(N, 3)
Y = torch.arange(N) % 2
DATA = TensorDataset(X, Y)


def test_bytes_are_pixels_and_other_numbers_are_not():
    values = np.array([[0, 51, 255]])
    assert as_inputs(values.astype(np.uint8)).tolist() == [[0, pytest.approx(0.2), 1]]
    for dtype in (np.int8, np.int32, np.uint16, np.int64, np.float64):
        assert as_inputs(values.clip(0, 100).astype(dtype)).tolist() == [[0, 51, 100]]
    assert as_inputs(values > 50).tolist() == [[0, 1, 1]]
    assert as_inputs(X.tolist()).dtype == as_inputs(X.double()).dtype == torch.float32
    assert as_inputs(X.half()).dtype == torch.float16
    assert not as_inputs(X.clone().requires_grad_()).requires_grad
    huge = torch.full((3, 2), 3e38)  # whose sum is infinite
    assert torch.equal(as_inputs(huge), huge)


class Negated(TensorDataset):
    def __getitem__(self, index):
        value, label = super().__getitem__(index)
        return -value, 1 - label


@pytest.mark.parametrize("limit", [0, 2**20])
def test_a_data_set_is_read_as_it_gives_itself(limit):
    examples = as_examples(Subset(Negated(X, Y), [7, 2]), memory_limit=limit, workers=0)
    assert examples.labels.tolist() == (1 - Y[[7, 2]]).tolist()
    assert torch.equal(examples.inputs_at(np.arange(2)), -X[[7, 2]])


def test_memory_that_is_used_again_and_again_is_copied():
    memory = torch.empty(3)

    class Reusing(Pairs):
        def __getitem__(self, index):
            return memory.copy_(X[index]), Y[index]

    assert torch.equal(as_examples(Reusing(X, Y)).inputs, X)


@pytest.mark.parametrize("changes", [{}, {"target_transform": "swapped"}])
def test_targets_of_torchvision_spare_a_reading(changes):
    reads = []

    class Known(Pairs):
        def __getitem__(self, index):
            reads.append(index)
            value, label = super().__getitem__(index)
            return value, 1 - label if changes else label

    Known.__module__ = "torchvision.datasets.toy"
    data = Known(X, Y)
    vars(data).update({"targets": Y.tolist()} | changes)
    examples = as_examples(data, memory_limit=0, workers=0)
    assert (len(reads) < N) == (not changes)
    assert examples.labels.tolist() == [data[i][1] for i in range(N)]


@pytest.mark.parametrize("limit", [0, 2**20])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Pairs(X[:4], Y[:5]), "item 4 of 5 in the Pairs cannot be read: IndexError: index 4"),
        (Subset(DATA, [1, 99]), "item 1 of 2 in the Subset cannot .* index 99"),
        (Pairs([X[0], X[0, :2]], [0, 1]), r"item 1 has \(2,\), the first \(3,\)"),
        (Pairs([X[0], X[0].byte()], [0, 1]), r"item 1 has \(3, 'uint8'\), the first \(3,\)"),
        (Pairs(["cat"], [0]), "inputs must be a numeric tensor or array, got str"),
        (Pairs([], []), "no example"),
        (type("Lengthless", (Dataset,), {})(), "a Dataset must know its length"),
    ],
)
def test_data_sets_that_are_not_what_they_say(data, message, limit):
    refused(message, as_examples, data, memory_limit=limit, workers=0)


def test_a_part_is_chosen_by_positions_or_by_a_mask():
    examples = as_examples((X, Y))
    few = examples.subset(Y == 0)
    assert torch.equal(few.inputs, X[Y == 0])
    assert (set(few.labels), len(examples.subset([]))) == ({0}, 0)
    assert torch.equal(examples.subset(torch.tensor([3, 1])).inputs, X[[3, 1]])
