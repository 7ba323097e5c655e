"""Labelled data of every form become the same examples, or are refused in one line."""

import random

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
)

from impresslearn.data import Examples, as_examples, as_inputs
from toys import Flow, Pairs, refused

N = 40
X = torch.arange(3.0 * N).reshape(N, 3)
Y = torch.arange(N) % 2
DATA = TensorDataset(X, Y)
OWN = np.random.default_rng(0)


def rows(inputs=X, labels=Y):
    return zip(inputs, labels, strict=True)


@pytest.mark.parametrize(
    "form",
    [
        lambda x: (x, Y),
        lambda x: [x.numpy(), Y.numpy()],
        lambda x: Examples(x, Y.numpy()),
        lambda x: TensorDataset(x, Y),
        lambda x: Pairs(x, Y),
        lambda x: Pairs(x.numpy(), Y.tolist()),
        lambda x: DataLoader(TensorDataset(x, Y), batch_size=4, shuffle=True, drop_last=True),
        lambda x: DataLoader(list(rows(x)), batch_size=4),
        lambda x: DataLoader(Flow(lambda: rows(x)), batch_size=7),
        lambda x: DataLoader(Flow(lambda: rows(x.split(7), Y.split(7))), batch_size=None),
        lambda x: Flow(lambda: rows(x)),
    ],
)
def test_every_form_gives_the_same_examples(form):
    for given, expected in ((X, X), (X.byte(), X / 255)):
        examples = as_examples(form(given))
        assert isinstance(examples, Examples)
        assert examples.inputs.dtype == torch.float32
        assert torch.equal(examples.inputs, expected)
        assert examples.labels.tolist() == Y.tolist()
        again = as_examples(examples.subset([3, 0]))
        assert torch.equal(again.inputs, expected[[3, 0]])
        assert again.pixels == examples.pixels == (given is not X)


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
@pytest.mark.parametrize(
    ("data", "inputs", "labels"),
    [
        (Negated(X, Y), -X, 1 - Y),
        (Subset(DATA, [7, 2]), X[[7, 2]], Y[[7, 2]]),
        (Subset(Negated(X, Y), [7, 2]), -X[[7, 2]], 1 - Y[[7, 2]]),
        (DataLoader(Negated(X, Y)), -X, 1 - Y),
        (DataLoader(DATA, sampler=SequentialSampler(range(5))), X[:5], Y[:5]),
        (DataLoader(DATA, batch_sampler=[[0, 1], [5]]), X[[0, 1, 5]], Y[[0, 1, 5]]),
    ],
)
def test_a_data_set_is_read_as_it_gives_itself(data, inputs, labels, limit):
    examples = as_examples(data, memory_limit=limit, workers=0)
    assert examples.labels.tolist() == labels.tolist()
    assert torch.equal(examples.inputs_at(np.arange(len(examples))), inputs)


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({"sampler": RandomSampler(DATA, replacement=True, num_samples=100)}, 100),
        ({"batch_sampler": BatchSampler(RandomSampler(range(10)), 3, True)}, 10),
        ({"sampler": BatchSampler(SequentialSampler(DATA), 7, False), "batch_size": None}, N),
    ],
)
def test_a_sampler_says_which_examples(settings, count):
    assert len(as_examples(DataLoader(DATA, **settings))) == count


def test_memory_that_is_used_again_and_again_is_copied():
    memory = torch.empty(5, 3)

    class Reusing(Pairs):
        def __getitem__(self, index):
            return memory[0].copy_(X[index]), Y[index]

    def doubled(items):
        memory.copy_(torch.stack([2 * x for x, _ in items]))
        return memory, torch.stack([y for _, y in items])

    loader = DataLoader(DATA, batch_size=5, collate_fn=doubled)
    assert torch.equal(as_examples(loader).inputs, 2 * X)
    assert torch.equal(as_examples(Reusing(X, Y)).inputs, X)
    once = iter(list(rows()))
    assert torch.equal(as_examples(Flow(lambda: once)).inputs, X)


@pytest.mark.parametrize(
    ("module", "changes", "believed"),
    [
        ("torchvision.datasets.toy", {}, True),
        ("torchvision.datasets.toy", {"target_transform": "swapped"}, False),
        ("torchvision.datasets.toy", {"targets": [5] * N}, False),
        ("torchvision.datasets.toy", {"targets": [*Y.tolist(), 5]}, False),
        ("mine", {}, False),
    ],
)
def test_targets_are_believed_only_of_a_known_type_where_they_hold(module, changes, believed):
    reads = []

    class Known(Pairs):
        def __getitem__(self, index):
            reads.append(index)
            value, label = super().__getitem__(index)
            return value, 1 - label if hasattr(self, "target_transform") else label

    Known.__module__ = module
    data = Known(X, Y)
    vars(data).update({"targets": Y.tolist()} | changes)
    examples = as_examples(data, memory_limit=0, workers=0)
    assert (len(reads) <= 3 * 16 + 1) == believed  # which spares a reading of all
    assert examples.labels.tolist() == [data[i][1] for i in range(N)]


def noisy(items):
    return torch.stack([x + torch.rand(3) for x, _ in items]), [y for _, y in items]


class Shuffling(DataLoader):
    def __iter__(self):
        return iter([(X + torch.rand(3), Y)])


NOISY_ONCE = ((x + torch.rand(3), y) for x, y in rows())


@pytest.mark.parametrize(
    "data",
    [
        DataLoader(DATA, batch_size=8, collate_fn=noisy),
        DataLoader(DATA, collate_fn=lambda items: (torch.tensor([[OWN.random()]]), [0])),
        Flow(lambda: ((x + torch.rand(3), y) for x, y in rows())),
        Flow(lambda: random.sample(list(rows()), N)),
        Flow(lambda: NOISY_ONCE),
        Shuffling(DATA),
    ],
    ids=["collate", "own", "flow", "shuffled", "once", "heir"],
)
def test_what_is_read_once_must_not_draw(data):
    refused("read only once; draw in the __getitem__ of a Dataset, or give", as_examples, data)


MIXED = Pairs([X[0], X[0, :2]], [0, 1])
SHAPES = r"item 1 has \(2,\), the first \(3,\)"


@pytest.mark.parametrize("limit", [0, 2**20])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Pairs(X[:4], Y[:5]), "item 4 of 5 in the Pairs cannot be read: IndexError: index 4"),
        (Subset(DATA, [1, 99]), "item 1 of 2 in the Subset cannot .* index 99"),
        (MIXED, SHAPES),
        (Pairs([X[0], X[0].byte()], [0, 1]), r"item 1 has \(3,\) of uint8, the first \(3,\)"),
        (DataLoader(MIXED, collate_fn=noisy, batch_size=2), "expand|match"),
        (Pairs(["cat"], [0]), "inputs must be a numeric tensor or array, got str"),
        (type("Lengthless", (Dataset,), {})(), "a Dataset must know its length"),
        (TensorDataset(X, X, Y), "must give pairs"),
        (TensorDataset(X[:0], Y[:0]), "no example"),
        (Pairs([], []), "no example"),
    ],
)
def test_data_sets_that_are_not_what_they_say(data, message, limit):
    refused(message, as_examples, data, memory_limit=limit, workers=0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X[:0], Y[:0]), "no example"),
        (DataLoader(Flow(list)), "no example"),
        ((X, Y[:4]), "40 inputs came with 4 labels"),
        (Flow(lambda: X), "must give pairs"),
        (DataLoader(Flow(lambda: [(X[0], 0), (X[0, :2], 1)])), r"got \(3,\) and \(2,\)"),
        (Flow(lambda: rows(X, ["1"] * 20 + [1] * 20)), "all integers or all strings"),
        (Flow(lambda: 1 / 0), "cannot be read after batch 0: ZeroDivisionError"),
        (Flow(lambda: iter(lambda: (X[0], 1), None)), "than the limit of 1,000 bytes"),  # endless
        (Examples(X[:2], np.array([1, "1"], dtype=object)), "all integers or all strings"),
        ((torch.tensor(1.0), [0]), "got a single number"),
        ((None, [0]), "must be a numeric tensor or array, got NoneType"),
        (([[1, 2], [3]], [0, 1]), "got list: .*inhomogeneous"),
        ((X + 1j, Y), "real numbers, got complex"),
        ((torch.tensor([[1.0, np.nan], [np.inf, 2]]), [0, 1]), "hold 2 NaN or infinite values"),
        ((np.array([[1e300, 0]]), [0]), "hold 1 NaN or infinite value"),
        ((csr_matrix(X.numpy()), Y), "sparse matrix; make it dense, .toarray()"),
        ((X, Y, Y), "got tuple"),
        ({"x": X}, "got dict"),
    ],
)
def test_unusable_data(data, message):
    refused(message, as_examples, data, memory_limit=1000)


def test_bytes_in_the_order_of_another_machine_are_taken():
    for kind in (">f4", ">f8", ">i8", ">u2"):
        given, expected = (
            as_examples((X.numpy().astype(each), Y)).inputs for each in (kind, f"={kind[1:]}")
        )
        assert torch.equal(given, expected)


def test_a_part_is_chosen_by_positions_or_by_a_mask():
    examples = as_examples((X, Y))
    few = examples.subset(Y == 0)
    assert torch.equal(few.inputs, X[Y == 0])
    assert (set(few.labels), len(examples.subset([]))) == ({0}, 0)
    assert torch.equal(examples.subset(torch.tensor([3, 1])).inputs, X[[3, 1]])
    for wrong in ([0.9, 1.9], np.array([True, False]), ["a"]):
        refused("indices must be integers, or one boolean an example", examples.subset, wrong)
