from pathlib import Path

import numpy as np
import pytest
import torch

from impresslearn.data import Examples
from impresslearn.errors import InputError, MissingDataError
from impresslearn.streams import cifar, split_cifar100
from impresslearn.streams.base import LabelledData
from impresslearn.streams.torchvision import RawImages
from impresslearn.streams.transforms import flip_and_shift

NAMES = tuple(f"class-{i:02d}" for i in range(100))


def toy_raw(per_class: int = 4) -> RawImages:
    """Images of grey level 2 * label, so that an image tells its class, and one green pixel."""
    labels = np.tile(np.arange(100), per_class)
    images = np.broadcast_to((2 * labels)[:, None, None, None], (len(labels), 32, 32, 3))
    images = images.astype(np.uint8)
    images[:, 2, 9] = (0, 255, 0)
    return RawImages(images, labels, images[:100].copy(), labels[:100].copy(), NAMES)


@pytest.fixture
def full_copy(monkeypatch: pytest.MonkeyPatch) -> RawImages:
    raw = toy_raw()
    monkeypatch.setattr(cifar, "load_cifar100", lambda root, download: raw)
    return raw


def write_subset(folder: Path, **changes: np.ndarray) -> None:
    raw = toy_raw(2)
    arrays = {
        "train_images": raw.train_images,
        "train_labels": raw.train_labels,
        "test_images": raw.test_images,
        "test_labels": raw.test_labels,
        "class_names": np.array(NAMES),
    }
    np.savez(folder / "cifar100-subset.npz", **{**arrays, **changes})


def in_memory(data: LabelledData | None) -> Examples:
    assert isinstance(data, Examples)
    return data


@pytest.mark.usefixtures("full_copy")
def test_tasks_have_disjoint_named_classes_and_their_own_images() -> None:
    stream = split_cifar100()
    assert stream.names[:2] == ("cifar100-00", "cifar100-01")
    assert len(stream) == 20
    assert {name for task in stream for name in task.classes} == set(NAMES)
    task = stream[3]
    assert sorted(task.settings["classes"]) == list(task.classes)
    train = in_memory(task.train)
    assert train.inputs.shape == (20, 3, 32, 32)
    for image, label in zip(train.inputs, train.labels, strict=True):
        grey = 2 * NAMES.index(label) / 255
        expected = (torch.full((3,), grey) - torch.tensor(cifar.MEAN)) / torch.tensor(cifar.STD)
        torch.testing.assert_close(image[:, 5, 7], expected)
        assert (image[:, 2, 9] > 0).tolist() == [False, True, False]


@pytest.mark.usefixtures("full_copy")
def test_class_order_follows_the_seed_and_not_the_number_of_tasks() -> None:
    assert split_cifar100(tasks=2)[1].classes == split_cifar100()[1].classes
    assert split_cifar100(seed=1)[1].classes != split_cifar100()[1].classes
    assert [len(task.classes) for task in split_cifar100(tasks=5, classes_per_task=20)] == [20] * 5


@pytest.mark.usefixtures("full_copy")
def test_only_training_examples_are_augmented() -> None:
    task = split_cifar100(validation=0.25)[0]
    assert in_memory(task.train).augment is flip_and_shift
    assert in_memory(task.validation).augment is in_memory(task.test).augment is None
    assert in_memory(split_cifar100(augment=False)[0].train).augment is None
    assert (len(task.train), len(in_memory(task.validation))) == (15, 5)
    assert sorted(in_memory(task.validation).labels) == list(task.classes)


def test_unusable_settings_are_refused_before_any_file_is_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="21 tasks of 5 classes need 105 classes, there are 100"):
        split_cifar100(tasks=21, root=tmp_path)
    with pytest.raises(InputError, match="validation"):
        split_cifar100(validation=1.0, root=tmp_path)


def test_subset_is_read_only_where_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(root: Path, download: bool) -> RawImages:
        raise MissingDataError("no full copy")

    monkeypatch.setattr(cifar, "load_cifar100", nothing)
    with pytest.raises(MissingDataError, match=r"^no full copy$"):
        split_cifar100(root=tmp_path)
    with pytest.raises(MissingDataError, match=r"cifar100-subset\.npz: put the archive there"):
        split_cifar100(root=tmp_path, subset=True)
    write_subset(tmp_path)
    with pytest.raises(MissingDataError, match="pass subset=True"):
        split_cifar100(root=tmp_path)
    task = split_cifar100(root=tmp_path, subset=True)[0]
    assert task.settings["subset"] is True
    assert len(task.train) == 10


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_images": np.zeros((200, 3, 32, 32), np.uint8)}, "train_images must be"),
        ({"test_images": np.zeros((100, 32, 32, 3), np.float32)}, "test_images must be"),
        ({"test_labels": np.zeros(99, np.int64)}, r"test_labels must be \(100,\) integers"),
        ({"train_labels": np.full(200, 100)}, "positions in the 100 class_names"),
        ({"class_names": np.array([{}], dtype=object)}, "is no archive of"),
    ],
)
def test_unusable_archives_are_refused(
    tmp_path: Path, changes: dict[str, np.ndarray], message: str
) -> None:
    write_subset(tmp_path, **changes)
    with pytest.raises(InputError, match=message):
        split_cifar100(root=tmp_path, subset=True)


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cifar100-subset.npz").write_bytes(b"PK\x03\x04 broken")
    with pytest.raises(InputError, match="is no archive of"):
        split_cifar100(root=tmp_path, subset=True)


def test_real_subset(cifar100_root: Path) -> None:
    stream = split_cifar100(root=cifar100_root, subset=True, validation=0.1)
    task = stream[0]
    assert len(stream) == 20
    train, test = in_memory(task.train), in_memory(task.test)
    assert train.inputs.shape == (540, 3, 32, 32)
    assert test.inputs.shape == (250, 3, 32, 32)
    assert set(train.labels) == set(test.labels) == set(task.classes)
    every = torch.cat([in_memory(task.train).inputs for task in stream])
    assert every.mean((0, 2, 3)).abs().max() < 0.05
    assert (every.std((0, 2, 3)) - 1).abs().max() < 0.05
