"""Faults of one class: an answer that was wrong, and no word about it."""

import enum

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    TensorDataset,
)

import impresslearn as il
from impresslearn.data import as_examples, label_array
from impresslearn.errors import InputError
from impresslearn.learner.creation import CreationSettings, create_learner
from impresslearn.networks.inputs import checked_examples
from toys import blobs, lenet, quick_learner

X, Y = torch.arange(40.0).reshape(20, 2), torch.arange(20) % 2
UINT8 = np.random.default_rng(0).integers(0, 256, (30, 16)).astype(np.uint8)


def test_a_store_without_preprocessing_takes_none_later(tmp_path):
    quick_learner().add_random_masks(2).learn_task("a", blobs()).save(tmp_path / "s")
    for verb in (il.load, il.open_store):
        with pytest.raises(InputError, match="with the preprocessing None, not with"):
            verb(tmp_path / "s", preprocessing=il.Preprocessing(mean=3.0))


def test_a_flat_network_keeps_the_shape_of_its_first_images():
    learner = create_learner(CreationSettings(), 3, (6, 6, 3), il.Preprocessing())
    assert learner.preprocessing.shape == (6, 6, 3)
    learner.prepare(np.zeros((2, 6, 6, 3)))
    learner.prepare(np.zeros((2, 108)))
    with pytest.raises(InputError, match="cannot be given the shape"):
        learner.prepare(np.zeros((2, 3, 6, 6)))


class Reusing(Dataset):
    """Gives the same memory for every item."""

    memory = np.empty(2, np.float32)

    def __len__(self):
        return 20

    def __getitem__(self, index):
        self.memory[:] = X[index].numpy()
        return self.memory, int(Y[index])


def test_memory_that_is_used_again_is_copied():
    memory = torch.empty(5, 2)

    def collate(items):
        memory.copy_(torch.stack([item for item, _ in items]))
        return memory, torch.tensor([label for _, label in items])

    loader = DataLoader(TensorDataset(X, Y), batch_size=5, collate_fn=collate)
    for data in (Reusing(), loader):
        assert torch.equal(as_examples(data).inputs, X)


def test_batch_samplers_of_a_loader():
    data = TensorDataset(X, Y)
    part = BatchSampler(RandomSampler(range(10)), 3, True)
    whole = BatchSampler(RandomSampler(data), 8, False)
    counts = [len(as_examples(DataLoader(data, batch_sampler=each))) for each in (part, whole)]
    assert counts == [10, 20]


def test_what_is_measured_is_what_is_applied():
    for raw in (UINT8, UINT8.astype(np.int64), UINT8 / 255):
        made = il.Preprocessing.standardising(raw, pixels=True)
        values = made.apply(raw)
        assert float(values.mean()) == pytest.approx(0, abs=1e-4)
        assert float(values.std(correction=0)) == pytest.approx(1, abs=1e-4)
    with pytest.raises(InputError, match="no pixels, got uint8"):
        il.Preprocessing.standardising(UINT8, pixels=False)
    with pytest.raises(InputError, match="mean and std are measured"):
        il.Preprocessing.standardising(UINT8, mean=3)


def test_integers_are_pixels_in_every_container():
    made, dark = il.Preprocessing(pixels=True), (UINT8 > 128).astype(np.int64)
    labels = np.arange(30) % 3
    data = TensorDataset(torch.tensor(dark), torch.tensor(labels))
    for form in ((dark, labels), data, DataLoader(data, batch_size=7)):
        assert checked_examples(lenet(), form, made).inputs.max() == np.float32(1 / 255)
    assert made.apply(dark).max() == np.float32(1 / 255)


@pytest.mark.parametrize(
    "labels",
    [
        [torch.tensor(value, dtype=torch.bfloat16) for value in (256.0, 257)],
        [np.float32(2**24 + 1), np.float32(2**24)],
        [np.array([4097], np.float16), np.array([4098], np.float16)],
        np.array([3, 2.0**63], np.longdouble),
        np.ma.masked_equal([0, 1, 2], 2),
    ],
)
def test_labels_by_the_limits_of_their_own_type(labels):
    with pytest.raises(InputError, match="^labels "):
        label_array(labels)


def test_names_of_an_enumeration_are_its_values():
    class Site(str, enum.Enum):
        NORTH = "north"

    learner = quick_learner().add_random_masks(2).learn_task(Site.NORTH, blobs())
    assert list(learner.tasks_) == ["north"]
    inputs = blobs()[0][:4]
    assert list(learner.predict(inputs, Site.NORTH)) == list(learner.predict(inputs, "north"))


def test_outputs_that_are_no_numbers_are_no_answers():
    learner = quick_learner().add_random_masks(2).learn_task("a", blobs()).learn_task("b", blobs(1))
    huge = torch.full((3, 16), 3e38)
    for verb in (
        lambda: learner.predict(huge, "a"),
        lambda: learner.predict(huge),
        lambda: learner.logits(huge, "a"),
        lambda: learner.score((huge, [0, 1, 0]), "a"),
        lambda: learner.infer_task(huge),
    ):
        with pytest.raises(InputError, match="no finite numbers; the inputs are too large"):
            verb()


@pytest.mark.parametrize(
    "make",
    [
        lambda: il.Recipe(lr=10**400),
        lambda: quick_learner(penalty=10**400),
        lambda: quick_learner(bit_price=10**400),
    ],
)
def test_numbers_beyond_every_float(make):
    with pytest.raises(InputError, match="must be"):
        make()
