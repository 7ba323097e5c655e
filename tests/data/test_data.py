import os

import numpy as np
import pytest
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
)

from impresslearn.data import (
    Examples,
    StreamedExamples,
    TensorBatches,
    as_examples,
    as_inputs,
    classes_of,
    to_batches,
)
from impresslearn.errors import (
    ImpressLearnError,
    InputError,
    MissingDataError,
)

CPU = torch.device("cpu")
X = torch.arange(30, dtype=torch.float32).reshape(10, 3)
Y = torch.arange(10) % 2


class Pairs(Dataset):
    """(input, label) pairs that count how often they are read."""

    def __init__(self, inputs, labels):
        self.inputs, self.labels = inputs, labels
        self.reads = 0

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        self.reads += 1
        return self.inputs[index], self.labels[index]


class Flow(IterableDataset):
    def __init__(self, items):
        self.items = items

    def __iter__(self):
        yield from self.items


def refused(data, message):
    with pytest.raises(InputError, match=message) as caught:
        as_examples(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        (X, Y),
        [X, Y],
        (X.numpy(), Y.numpy()),
        (X.tolist(), Y.tolist()),
        (X.double().numpy(), Y.numpy().astype(np.float64)),
        (X.int(), Y.bool()),
        (list(X), Y[:, None]),
        Examples(X, Y.numpy()),
        TensorDataset(X, Y),
        Subset(TensorDataset(X, Y), range(10)),
        Pairs(X, Y),
        Pairs(X.numpy(), Y.tolist()),
        DataLoader(TensorDataset(X, Y), batch_size=4),
        DataLoader(TensorDataset(X, Y), batch_size=4, shuffle=True, drop_last=True),
        DataLoader(TensorDataset(X, Y), batch_size=None),
        DataLoader(list(zip(X, Y, strict=True)), batch_size=4),
        DataLoader(Flow(list(zip(X, Y, strict=True))), batch_size=4),
        Flow(list(zip(X, Y, strict=True))),
    ],
    ids=lambda data: type(data).__name__,
)
def test_every_form_gives_the_same_examples(data):
    examples = as_examples(data)
    assert isinstance(examples, Examples)
    assert examples.inputs.dtype == torch.float32
    assert torch.equal(examples.inputs, X)
    assert examples.labels.dtype == np.int64
    assert examples.labels.tolist() == Y.tolist()


def test_bytes_are_pixels_and_other_integers_are_not():
    values = np.array([[0, 51, 255]])
    assert as_inputs(values.astype(np.uint8)).tolist() == [[0, pytest.approx(0.2), 1]]
    for dtype in (np.int8, np.int32, np.uint16, np.int64):
        assert as_inputs(values.clip(0, 100).astype(dtype)).tolist() == [[0, 51, 100]]
    assert as_inputs(values > 50).tolist() == [[0, 1, 1]]


BYTES = torch.arange(30, dtype=torch.uint8).reshape(10, 3)


@pytest.mark.parametrize("limit", [120, 4096])
@pytest.mark.parametrize(
    "form",
    [
        lambda x: (x, Y),
        lambda x: (x.numpy(), Y),
        lambda x: (list(x), Y),
        lambda x: Examples(x, Y.numpy()),
        lambda x: TensorDataset(x, Y),
        lambda x: Pairs(x, Y),
        lambda x: DataLoader(TensorDataset(x, Y), batch_size=4),
        lambda x: Flow(list(zip(x, Y, strict=True))),
    ],
)
def test_it_is_known_whether_inputs_came_as_pixels(form, limit):
    assert as_examples(form(BYTES), memory_limit=limit, workers=0).pixels
    assert not as_examples(form(BYTES.float() / 255), memory_limit=limit, workers=0).pixels


def test_examples_of_pixels_stay_so():
    once = as_examples((BYTES, Y))
    twice = as_examples(once.subset([3, 0]))
    assert twice.pixels
    assert torch.equal(twice.inputs, once.inputs[[3, 0]])


def test_number_formats():
    assert as_inputs(X.double()).dtype == torch.float32
    assert as_inputs(X.half()).dtype == torch.float16
    assert not as_inputs(X.clone().requires_grad_()).requires_grad


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([["a", "b"]], "must be a numeric tensor or array, got list"),
        (None, "got NoneType"),
        ([[1, 2], [3]], "got list: .*inhomogeneous"),
        ([torch.zeros(2), torch.zeros(3)], "got list: .*equal size"),
        (X + 1j, "real numbers, got complex"),
        (torch.tensor([[1.0, np.nan], [np.inf, 2]]), "hold 2 NaN or infinite values"),
        (np.array([[1e300, 0]]), "hold 1 NaN or infinite value"),
    ],
)
def test_inputs_that_are_no_finite_numbers(values, message):
    refused((values, [0, 1]), message)


def test_large_finite_inputs_are_not_taken_for_infinite_ones():
    huge = torch.full((3, 2), 3e38)
    assert torch.equal(as_inputs(huge), huge)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (([], []), "no example"),
        ((X[:0], Y[:0]), "no example"),
        (TensorDataset(X[:0], Y[:0]), "no example"),
        (Pairs([], []), "no example"),
        (DataLoader(Flow([])), "no example"),
        ((X, Y[:4]), "10 inputs came with 4 labels"),
        (TensorDataset(X), "pairs"),
        (TensorDataset(X, X, Y), "pairs"),
        (Flow(list(X)), "must give pairs"),
        (DataLoader(Flow(list(X))), "must give pairs"),
        (
            DataLoader(Flow([(X[0], 0), (X[0, :2], 1)])),
            r"one shape .*, got \(3,\) and \(2,\)",
        ),
        (Pairs([X[0], X[0, :2]], [0, 1]), r"one shape .*, item 1 has \(2,\), the first \(3,\)"),
        ((torch.tensor(1.0), [0]), "got a single number"),
        (X, "got Tensor"),
        ((X, Y, Y), "got tuple"),
        ({"x": X}, "got dict"),
    ],
)
def test_unusable_data(data, message):
    refused(data, message)


def test_a_loader_that_selects_gives_its_selection():
    data = TensorDataset(X, Y)
    sampler = SubsetRandomSampler([7, 2], generator=torch.Generator().manual_seed(0))
    selected = as_examples(DataLoader(data, sampler=sampler))
    assert sorted(selected.inputs[:, 0].tolist()) == [6, 21]
    batches = as_examples(DataLoader(data, batch_sampler=[[0, 1], [5]]))
    assert torch.equal(batches.inputs, X[[0, 1, 5]])


def test_a_collate_function_of_ones_own_is_used():
    def doubled(items):
        return torch.stack([2 * x for x, _ in items]), torch.stack([y for _, y in items])

    examples = as_examples(DataLoader(TensorDataset(X, Y), batch_size=3, collate_fn=doubled))
    assert torch.equal(examples.inputs, 2 * X)


def test_a_data_set_beyond_the_limit_is_streamed():
    pairs = Pairs(X, [f"class {int(y)}" for y in Y])
    bytes_of_all = X.numel() * 4
    assert isinstance(as_examples(pairs, memory_limit=bytes_of_all), Examples)
    streamed = as_examples(pairs, memory_limit=bytes_of_all - 1, workers=0)
    assert isinstance(streamed, StreamedExamples)
    assert len(streamed) == 10
    assert classes_of(streamed.labels) == ("class 0", "class 1")
    source = to_batches(streamed, ("class 0", "class 1"), CPU)
    inputs, targets = zip(*source.batches(4), strict=True)
    assert [len(batch) for batch in inputs] == [4, 3, 3]
    assert torch.equal(torch.cat(inputs), X)
    assert torch.equal(torch.cat(targets), Y)


class Broken(Pairs):
    fault = None

    def __getitem__(self, index):
        if index == 3 and self.fault is not None:
            raise self.fault
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (InputError("cannot read number 3"), r"^cannot read number 3$"),
        (KeyError("x\ny"), r"^item 3 of 10 in the Broken cannot be read: KeyError: 'x.ny'$"),
        (MissingDataError("gone"), "^gone$"),
    ],
)
def test_errors_while_streaming_are_one_line(workers, fault, message):
    broken = Broken(X, Y)
    source = to_batches(as_examples(broken, memory_limit=0, workers=workers), (0, 1), CPU)
    broken.fault = fault
    kind = type(fault) if isinstance(fault, ImpressLearnError) else InputError
    with pytest.raises(kind, match=message):
        list(source.batches(4))


def test_a_worker_that_dies_is_one_line(monkeypatch):
    class Deadly(Pairs):
        def __getitem__(self, index):
            if torch.utils.data.get_worker_info() is not None and self.fault:
                os._exit(1)
            return super().__getitem__(index)

    deadly = Deadly(X, Y)
    deadly.fault = False
    source = to_batches(as_examples(deadly, memory_limit=0, workers=1), (0, 1), CPU)
    deadly.fault = True
    with pytest.raises(InputError, match=r"^a process that read the data came to an end \(.*\); "):
        list(source.batches(4))


def test_streamed_values_are_checked_as_they_come():
    inputs = X.clone()
    inputs[8, 0] = np.nan
    streamed = as_examples(Pairs(inputs, Y), memory_limit=0, workers=0)
    with pytest.raises(InputError, match="hold 1 NaN"):
        list(to_batches(streamed, (0, 1), CPU).batches(4))
    with pytest.raises(InputError, match="label 1 was never seen"):
        list(to_batches(streamed, (0,), CPU).batches(4))


def test_batches_in_order_and_shuffled():
    for source in (
        TensorBatches(X, Y),
        to_batches(as_examples(Pairs(X, Y), memory_limit=0, workers=0), (0, 1), CPU),
    ):
        inputs, targets = zip(*source.batches(4), strict=True)
        assert [len(batch) for batch in targets] == [4, 3, 3]
        assert torch.equal(torch.cat(inputs), X)

        def shuffled(seed, source=source):
            batches = source.batches(4, torch.Generator().manual_seed(seed))
            return [torch.cat(parts) for parts in zip(*batches, strict=True)]

        inputs, targets = shuffled(3)
        assert not torch.equal(inputs, X)
        assert torch.equal(inputs, shuffled(3)[0])
        assert not torch.equal(inputs, shuffled(4)[0])
        assert torch.equal(inputs.sort(dim=0).values, X)
        assert torch.equal((inputs[:, 0] / 3 % 2).long(), targets)


def test_augmentation_touches_training_batches_only():
    examples = Examples(X, Y.numpy(), augment=lambda batch, generator: batch + 100)
    source = to_batches(as_examples(examples), (0, 1), CPU)
    assert all(inputs.max() < 100 for inputs, _ in source.batches(4))
    generator = torch.Generator().manual_seed(0)
    assert all(inputs.min() >= 100 for inputs, _ in source.batches(4, generator))


def test_a_subset_keeps_order_labels_and_augmentation():
    examples = Examples(X, Y.numpy(), augment=lambda batch, generator: batch)
    for index in ([3, 0], np.array([3, 0]), torch.tensor([3, 0])):
        subset = examples.subset(index)
        assert torch.equal(subset.inputs, X[[3, 0]])
        assert subset.labels.tolist() == [1, 0]
        assert subset.augment is examples.augment
