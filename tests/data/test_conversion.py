"""Labelled data of every form become the same examples, in memory or read anew each epoch."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.data import Subset, TensorDataset

from impresslearn.data import Examples, StreamedExamples, as_examples, classes_of, to_batches
from impresslearn.data.examples import data_fingerprint
from impresslearn.errors import ImpressLearnError, InputError, MissingDataError
from toys import Pairs, refused

N = 40
X = torch.arange(3.0 * N).reshape(N, 3)
Y = torch.arange(N) % 2
DATA = TensorDataset(X, Y)


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


def test_items_of_several_inputs():
    memory = torch.empty(3)
    named = [{"a": X[place], "b": place.tolist()} for place in torch.arange(N)]
    for give in (
        lambda i: (named[i], Y[i]),
        lambda i: {**named[i], "a": memory.copy_(X[i]), "y": Y[i]},
    ):
        data = type("Given", (Pairs,), {"__getitem__": lambda _, index, give=give: give(index)})
        examples = as_examples(data(X, Y))
        assert examples.labels.tolist() == Y.tolist()
        assert torch.equal(examples.inputs.named["a"], X)
        assert torch.equal(examples.inputs.named["b"], torch.arange(N))


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


def test_a_part_is_chosen_by_positions_or_by_a_mask():
    examples = as_examples((X, Y))
    few = examples.subset(Y == 0)
    assert torch.equal(few.inputs, X[Y == 0])
    assert (set(few.labels), len(examples.subset([]))) == ({0}, 0)
    assert torch.equal(examples.subset(torch.tensor([3, 1])).inputs, X[[3, 1]])


CPU = torch.device("cpu")


def streamed(data, workers=0):
    examples = as_examples(data, memory_limit=0, workers=workers)
    assert isinstance(examples, StreamedExamples)
    return examples


def epoch(examples, generator=None, classes=(0, 1)):
    batches = to_batches(examples, classes, CPU).batches(8, generator)
    return tuple(map(torch.cat, zip(*batches, strict=True)))


def in_order(read):
    """Shuffled inputs by their rows; noise below 1 does not change the order."""
    return read[0][read[0][:, 0].argsort()]


def test_a_data_set_beyond_the_limit_is_streamed():
    pairs = Pairs(X.byte(), [f"class {int(y)}" for y in Y])
    assert isinstance(as_examples(pairs, memory_limit=4 * 3 * N), Examples)
    read = as_examples(pairs, memory_limit=4 * 3 * N - 1, workers=0)
    assert isinstance(read, StreamedExamples)
    assert (read.pixels, len(read)) == (True, N)
    assert all(map(torch.equal, epoch(read, classes=classes_of(read.labels)), (X / 255, Y)))


@pytest.mark.parametrize("form", [as_examples, streamed])
def test_batches_in_order_and_shuffled(form):
    examples = form(Pairs(X, Y))
    sizes = [len(targets) for _, targets in to_batches(examples, (0, 1), CPU).batches(12)]
    assert sizes == [10] * 4  # of one length, not 12 and a rest
    assert all(map(torch.equal, epoch(examples), (X, Y)))

    def shuffled(seed):
        return epoch(examples, torch.Generator().manual_seed(seed))

    inputs, targets = shuffled(3)
    assert torch.equal(inputs, shuffled(3)[0])
    assert not any(torch.equal(inputs, other) for other in (X, shuffled(4)[0]))
    assert torch.equal(inputs.sort(dim=0).values, X)
    assert torch.equal((inputs[:, 0] / 3 % 2).long(), targets)
    augmented = as_examples(replace(examples, augment=lambda batch, generator: batch + 1000))
    assert epoch(augmented)[0].max() < 1000  # only training is
    assert epoch(augmented, torch.Generator())[0].min() >= 1000


class Broken(Pairs):
    fault = None

    def __getitem__(self, index):
        if index == 3 and self.fault:
            raise self.fault
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (KeyError("x\ny"), r"^item 3 of 40 in the Broken is not a readable .*: KeyError: 'x.ny'$"),
        (MissingDataError("gone"), "^gone$"),
    ],
)
def test_errors_while_streaming_are_one_line(workers, fault, message):
    broken = Broken(X, Y)
    examples = streamed(broken, workers)
    broken.fault = fault
    kind = type(fault) if isinstance(fault, ImpressLearnError) else InputError
    refused(message, epoch, examples, error=kind)


def test_streamed_values_are_checked_as_they_come():
    inputs = X.clone()
    inputs[8, 0] = np.nan
    refused("NaN, infinite or too large for float32 .1 of", epoch, streamed(Pairs(inputs, Y)))
    refused("label 1 is not among", epoch, streamed(Pairs(X, Y)), classes=(0,))


GLOBAL = [
    lambda: torch.rand(3),
    lambda: torch.from_numpy(np.random.rand(3)).float(),
    random.random,
    lambda: float(random.random() < 1e-9),  # draws each time, but seldom changes anything
]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("noise", GLOBAL[:3])
def test_each_epoch_draws_anew_and_as_the_seed_says(noise, workers):
    examples = replace(as_examples(Pairs(X, Y, noise)), workers=workers)

    def epochs(seed):
        generator = torch.Generator().manual_seed(seed)
        return [in_order(epoch(examples, generator)) for _ in range(2)]

    def states():
        return torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())

    first, second = epochs(0)
    assert not torch.equal(first, second)
    assert len(set((first - X)[:, 0].tolist())) > N - 3  # no two workers draw the same
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(5)
    before = states()
    assert all(map(torch.equal, epochs(0), (first, second)))
    assert states() == before
    assert not torch.equal(epochs(1)[0], first)


def test_scoring_draws_the_same_each_time_and_leaves_the_generators_alone():
    examples = as_examples(Pairs(X, Y, GLOBAL[0]))
    for each in (lambda: epoch(examples)[0], lambda: examples.inputs_at(np.arange(5))):
        torch.manual_seed(3)
        state = torch.get_rng_state()
        first = each()
        assert torch.equal(torch.get_rng_state(), state)
        torch.manual_seed(4)
        assert torch.equal(first, each())


def test_what_draws_is_never_held():
    for noise in GLOBAL:
        assert isinstance(as_examples(Pairs(X, Y, noise)), StreamedExamples)
    assert isinstance(as_examples(Pairs(X, Y, lambda: torch.zeros(3))), Examples)
    own = np.random.default_rng(0)  # a generator of its own, of which only the values tell
    assert isinstance(as_examples(Pairs(X, Y, own.random)), StreamedExamples)


def test_fingerprints():
    x, y = torch.arange(12.0).reshape(4, 3), np.array([0, 1, 0, 1])
    digest = data_fingerprint(Examples(x, y))
    # Stores keep it: the same data must have it on another day.
    assert digest.startswith("cdb7746b12c059d7")
    for same in (
        Examples(x.clone().requires_grad_(), y.astype(np.int32)),
        Examples(x.t().contiguous().t(), y, augment=lambda batch, generator: batch),
    ):
        assert data_fingerprint(same) == digest
    inputs = [x, x.nextafter(x + 1), x.reshape(4, 1, 3), x.half(), x.bfloat16(), x.flip(0)]
    texts = [["a", "b", "c,d", "e"], ["a", "b,c", "d", "e"]]
    labels = [1 - y, y.astype(str), *map(np.array, texts)]
    digests = [data_fingerprint(Examples(each, y)) for each in inputs]
    digests += [data_fingerprint(Examples(x, each)) for each in labels]
    for each in (y, 1 - y):  # of streamed data only the labels count
        digests.append(data_fingerprint(StreamedExamples(TensorDataset(x), each)))
        assert data_fingerprint(StreamedExamples(TensorDataset(-x), each, 3)) == digests[-1]
    assert len(set(digests)) == len(digests)
    assert data_fingerprint(Examples(x, np.array(texts[0], dtype="U9"))) in digests
