import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from impresslearn.errors import InputError
from impresslearn.streams import from_arrays

X = np.arange(12, dtype=np.float32).reshape(6, 2)
Y = np.array([0, 1, 2, 0, 1, 2])


def test_pairs_and_triples_of_anything_become_tasks() -> None:
    dataset = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    stream = from_arrays({"b": ((X, Y), (X[:2], Y[:2])), "a": (dataset, (X[:1], Y[:1]), dataset)})
    assert stream.name == "own"
    assert stream.names == ("b", "a")
    assert stream["b"].classes == (0, 1, 2)
    assert stream["b"].validation is None
    assert stream["a"].validation is not None
    assert len(stream["a"].validation) == 1
    assert torch.equal(stream["b"].train.inputs, torch.from_numpy(X))  # type: ignore[union-attr]
    assert stream["b"].test.labels.tolist() == [0, 1]


def test_string_labels_stay_strings() -> None:
    labels = ["cat", "dog", "cat"]
    task = from_arrays({"pets": ((X[:3], labels), (X[:3], labels))}, name="mine")[0]
    assert task.classes == ("cat", "dog")
    assert task.train.labels.tolist() == labels


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ({}, "an empty mapping"),
        ([((X, Y), (X, Y))], "got list"),
        ({"a": ((X, Y),)}, "task 'a' needs .* got 1 parts"),
        ({"a": X}, "task 'a' needs .* got ndarray"),
        ({3: ((X, Y), (X, Y))}, "task name must be a non-empty string, got 3"),
        ({"a": ((X, Y), (X, Y[:4]))}, "task 'a', test: 6 inputs came with 4 labels"),
        ({"a": ((X, Y), (X[:0], Y[:0]), (X, Y))}, "task 'a', validation: .* no example"),
        ({"a": ((X * np.nan, Y), (X, Y))}, "task 'a', train: .*NaN"),
        ({"a": ((X, Y), (X, Y + 1))}, "the test part has label 3, which train lacks"),
    ],
)
def test_unusable_data_are_refused_at_once(tasks: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_arrays(tasks)  # type: ignore[arg-type]
