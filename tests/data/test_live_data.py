"""Data sets that draw at random are drawn anew each epoch, and none is read behind its own back."""

import random
import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
)

from impresslearn import Recipe
from impresslearn.data import Examples, StreamedExamples, as_examples, to_batches
from impresslearn.errors import InputError
from toys import blobs, quick_learner

N = 40
X = torch.arange(3.0 * N).reshape(N, 3)
Y = torch.arange(N) % 2
CPU = torch.device("cpu")
OWN = np.random.default_rng(0)


class Pairs(Dataset):
    """Items to which `noise` is added, drawn anew at each reading."""

    def __init__(self, noise=None, length=N):
        self.noise, self.length = noise, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return X[index] + (self.noise() if self.noise is not None else 0), Y[index]


class Negated(TensorDataset):
    def __getitem__(self, index):
        value, label = super().__getitem__(index)
        return -value, 1 - label


class Flow(IterableDataset):
    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter(self.items())


def by_torch():
    return torch.rand(3)


def by_numpy():
    return torch.from_numpy(np.random.rand(3)).float()


def by_python():
    return random.random()


def rarely():
    """Draws each time, but seldom changes anything."""
    return float(random.random() < 1e-9)


GLOBAL = [by_torch, by_numpy, by_python]


def epoch(examples, generator=None):
    inputs, targets = zip(*to_batches(examples, (0, 1), CPU).batches(8, generator), strict=True)
    return torch.cat(inputs), torch.cat(targets)


def in_order(read):
    """Shuffled inputs by their rows; noise below 1 does not change the order."""
    return read[0][read[0][:, 0].argsort()]


def refused(data, message, **settings):
    with pytest.raises(InputError, match=message) as caught:
        as_examples(data, **settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("limit", [0, 2**20])
@pytest.mark.parametrize(
    ("data", "inputs", "labels"),
    [
        (Negated(X, Y), -X, 1 - Y),
        (Subset(Negated(X, Y), range(5)), -X[:5], 1 - Y[:5]),
        (ConcatDataset([TensorDataset(X, Y), Negated(X, Y)]), torch.cat([X, -X]), None),
        (Subset(TensorDataset(X, Y), [7, 2]), X[[7, 2]], Y[[7, 2]]),
        (Subset(Subset(TensorDataset(X, Y), [7, 2]), [-1]), X[[2]], Y[[2]]),
        (DataLoader(Negated(X, Y)), -X, 1 - Y),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Dataset) else "",
)
def test_a_data_set_is_read_as_it_gives_itself(data, inputs, labels, limit):
    labels = torch.cat([Y, 1 - Y]) if labels is None else labels
    examples = as_examples(data, memory_limit=limit, workers=0)
    assert examples.labels.tolist() == labels.tolist()
    assert all(map(torch.equal, epoch(examples), (inputs, labels)))


def test_labels_come_from_the_items_not_from_targets():
    data = Pairs()
    data.targets = [7] * (N + 5)
    data.target_transform = None
    for limit in (0, 2**20):
        examples = as_examples(data, memory_limit=limit, workers=0)
        assert examples.labels.tolist() == Y.tolist()


@pytest.mark.parametrize("lie", ["transform", "length", "heir", "labels"])
def test_targets_of_a_known_type_are_believed_only_where_they_hold(monkeypatch, lie):
    monkeypatch.setitem(sys.modules, "torchvision.datasets.toy", ModuleType("toy"))
    reads = []

    class Known(Pairs):
        target_transform = None
        targets = Y.tolist()

        def __getitem__(self, index):
            reads.append(index)
            value, label = super().__getitem__(index)
            return value, label if self.target_transform is None else 1 - label

    Known.__module__ = "torchvision.datasets.toy"
    as_examples(Subset(Known(), range(N)), memory_limit=0, workers=0)
    assert len(reads) <= 3 * 16 + 1
    data = Known()
    if lie == "transform":
        data.target_transform = "swapped"
    elif lie == "length":
        data.targets = [*data.targets, 5]
    elif lie == "labels":
        data.targets = [5] * N
    else:
        data = type("Heir", (Known,), {"__module__": "mine", "targets": [5] * N})()
    examples = as_examples(data, memory_limit=0, workers=0)
    assert examples.labels.tolist() == [data[i][1] for i in range(N)]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("noise", GLOBAL)
def test_each_epoch_draws_anew_and_as_the_seed_says(noise, workers):
    examples = as_examples(DataLoader(Pairs(noise), num_workers=workers))
    assert isinstance(examples, StreamedExamples)

    def epochs(seed):
        generator = torch.Generator().manual_seed(seed)
        return [in_order(epoch(examples, generator)) for _ in range(2)]

    first, second = epochs(0)
    assert not torch.equal(first, second)
    assert len(set((first - X)[:, 0].tolist())) > N - 3  # no two workers draw the same
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    states = torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())
    assert all(map(torch.equal, epochs(0), (first, second)))
    now = torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())
    assert now == states
    assert not torch.equal(epochs(1)[0], first)


def test_scoring_draws_the_same_each_time_and_leaves_the_generators_alone():
    examples = as_examples(Pairs(by_torch))
    for each in (lambda: epoch(examples)[0], lambda: examples.inputs_at(np.arange(5))):
        torch.manual_seed(3)
        state = torch.get_rng_state()
        first = each()
        assert torch.equal(torch.get_rng_state(), state)
        torch.manual_seed(4)
        assert torch.equal(first, each())


def test_what_is_drawn_rarely_is_noticed():
    assert isinstance(as_examples(Pairs(rarely)), StreamedExamples)


def test_a_generator_of_the_data_sets_own_is_not_copied_to_workers():
    own = np.random.default_rng(0)
    examples = as_examples(
        DataLoader(Pairs(lambda: float(own.random())), num_workers=2), memory_limit=0
    )
    assert isinstance(examples, StreamedExamples)
    assert examples.workers == 0
    first, second = (epoch(examples)[0] for _ in range(2))
    assert not torch.equal(first, second)


def test_what_does_not_change_is_held_even_if_it_is_not_a_number():
    inputs = X.clone()
    inputs[0, 0] = torch.nan
    data = Pairs(lambda: torch.zeros(3))
    assert isinstance(as_examples(data), Examples)
    refused(Subset(Negated(inputs, Y), range(N)), "1 NaN")


def test_a_sampler_selects_and_the_selection_stays_live():
    sampler = SubsetRandomSampler([7, 2, 5])
    live = as_examples(DataLoader(Pairs(by_torch), sampler=sampler))
    assert isinstance(live, StreamedExamples)
    assert len(live) == 3
    drawn = RandomSampler(TensorDataset(X, Y), replacement=True, num_samples=100)
    assert len(as_examples(DataLoader(TensorDataset(X, Y), sampler=drawn))) == 100
    some = as_examples(DataLoader(TensorDataset(X, Y), sampler=SequentialSampler(range(5))))
    assert torch.equal(some.inputs, X[:5])


def test_loaders_of_ready_batches():
    lists = BatchSampler(SequentialSampler(range(N)), 7, drop_last=False)
    examples = as_examples(DataLoader(TensorDataset(X, Y), batch_size=None, sampler=lists))
    assert torch.equal(examples.inputs, X)
    ready = Flow(lambda: zip(X.split(7), Y.split(7), strict=True))
    assert torch.equal(as_examples(DataLoader(ready, batch_size=None)).inputs, X)
    single = Flow(lambda: zip(X, Y, strict=True))
    assert torch.equal(as_examples(DataLoader(single, batch_size=None)).inputs, X)


def noisy(items):
    return torch.stack([x + torch.rand(3) for x, _ in items]), [y for _, y in items]


def own_noise(items):
    return torch.stack([x + float(OWN.random()) for x, _ in items]), [y for _, y in items]


class Shuffling(DataLoader):
    def __iter__(self):
        return iter([(X + torch.rand(3), Y)])


@pytest.mark.parametrize(
    "data",
    [
        DataLoader(TensorDataset(X, Y), batch_size=8, collate_fn=noisy),
        DataLoader(TensorDataset(X, Y), batch_size=8, collate_fn=own_noise),
        DataLoader(Flow(lambda: zip(X, Y, strict=True)), batch_size=8, collate_fn=noisy),
        Flow(lambda: ((x + torch.rand(3), y) for x, y in zip(X, Y, strict=True))),
        Flow(lambda: ((x + float(OWN.random()), 1) for x in X)),
        Flow(lambda: random.sample(list(zip(X, Y, strict=True)), N)),
        Shuffling(TensorDataset(X, Y)),
    ],
    ids=["collate", "collate, own", "flow, collate", "flow", "flow, own", "shuffled", "heir"],
)
def test_what_is_read_once_must_not_draw(data):
    refused(data, "read only once; draw in the __getitem__ of a Dataset, or give Examples with a")


def test_what_can_be_read_only_once_is_read_whole():
    stream = iter(list(zip(X, Y, strict=True)))
    assert torch.equal(as_examples(Flow(lambda: stream)).inputs, X)


def test_an_endless_flow_ends_at_the_limit():
    endless = Flow(lambda: iter(lambda: (X[0], 1), None))
    refused(endless, "more memory than the limit of 1,000 bytes", memory_limit=1000)


class Sizes(Dataset):
    """Items whose input is what `items` says."""

    def __init__(self, *items, length=None):
        self.items, self.length = items, length or len(items)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.items[index], index % 2


@pytest.mark.parametrize("limit", [0, 2**20])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Pairs(length=N + 1), "item 40 of 41 in the Pairs cannot be read: IndexError: index 40"),
        (Sizes(X[0], X[0, :2]), r"item 1 has \(2,\), the first \(3,\)"),
        (Sizes(X[0], X[0].byte()), r"item 1 has \(3,\) of uint8, the first \(3,\)"),
        (Sizes(X[0], length=2), "item 1 of 2 in the Sizes cannot be read: IndexError: tuple ind"),
        (Sizes("cat"), "inputs must be a numeric tensor or array, got str"),
        (Subset(TensorDataset(X, Y), [1, 99]), "item 1 of 2 in the Subset cannot .* index 99"),
        (DataLoader(Sizes(X[0], X[0, :2]), collate_fn=noisy, batch_size=2), "expand|match"),
        (Flow(lambda: zip(X, ["1"] * 20 + [1] * 20, strict=True)), "all integers or all strings"),
        (Flow(lambda: 1 / 0), "cannot be read after batch 0: ZeroDivisionError"),
        (type("Lengthless", (Dataset,), {})(), "a Dataset must know its length"),
    ],
)
def test_data_sets_that_are_not_what_they_say(data, message, limit):
    if isinstance(data, Flow):
        limit = 2**20
    refused(data, message, memory_limit=limit, workers=0)


def test_augmentation_of_streamed_examples_touches_training_only():
    examples = as_examples(Pairs(), memory_limit=0, workers=0)
    examples = StreamedExamples(
        examples.dataset, examples.labels, augment=lambda batch, generator: batch + 1000
    )
    assert epoch(examples)[0].max() < 1000
    assert epoch(examples, torch.Generator())[0].min() >= 1000


class Noisy(Dataset):
    """Blobs to which each reading adds other noise."""

    inputs, labels = blobs()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.inputs[index] + float(np.random.rand()) + torch.rand(16), self.labels[index]


def test_a_learner_repeats_what_it_learned_from_live_data():
    def learned(global_seed):
        torch.manual_seed(global_seed)
        np.random.seed(global_seed)
        learner = quick_learner(task_recipe=Recipe(epochs=2, batch_size=32)).add_random_masks(2)
        learner.learn_task("a", Noisy())
        values = [value for task in learner.coefficients_.values() for value in task.tensors()]
        return values, learner.score(Noisy(), "a")

    (first, score), (second, again) = learned(0), learned(1)
    assert all(map(torch.equal, first, second))
    assert score == again
