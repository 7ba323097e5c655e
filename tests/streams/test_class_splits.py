"""Streams whose tasks are groups of classes, or folders: CIFAR-100, ImageNet, image folders."""

from functools import partial

import numpy as np
import pytest
import torch

from impresslearn.errors import MissingDataError
from impresslearn.streams import cifar, from_folder, split_cifar100
from impresslearn.streams.torchvision import RawImages
from toys import refused

NAMES = tuple(f"class-{i:02d}" for i in range(100))
CPU = torch.device("cpu")


def toy_raw(root=None, download=True, per_class=4):
    """Images of grey level 2 * label, so that an image tells its class, and one green pixel."""
    labels = np.tile(np.arange(100), per_class)
    images = np.broadcast_to((2 * labels)[:, None, None, None], (len(labels), 32, 32, 3))
    images = images.astype(np.uint8)
    images[:, 2, 9] = (0, 255, 0)
    return RawImages(images, labels, images[:100].copy(), labels[:100].copy(), NAMES)


def test_tasks_of_cifar_have_disjoint_named_classes_and_their_own_images(monkeypatch):
    monkeypatch.setattr(cifar, "load_cifar100", toy_raw)
    stream = split_cifar100()
    assert (len(stream), stream.names[:2]) == (20, ("cifar100-00", "cifar100-01"))
    assert sorted(name for task in stream for name in task.classes) == sorted(NAMES)
    task = stream[3]
    assert sorted(task.settings["classes"]) == list(task.classes)
    for image, label in zip(task.train.inputs, task.train.labels, strict=True):
        grey = 2 * NAMES.index(label) / 255
        expected = (torch.full((3,), grey) - torch.tensor(cifar.MEAN)) / torch.tensor(cifar.STD)
        torch.testing.assert_close(image[:, 5, 7], expected)
        assert (image[:, 2, 9] > 0).tolist() == [False, True, False]
    assert split_cifar100(tasks=2)[1].classes == stream[1].classes
    assert split_cifar100(seed=1)[1].classes != stream[1].classes


def test_classes_and_normalisation_may_be_those_of_a_pretrained_network(monkeypatch):
    monkeypatch.setattr(cifar, "load_cifar100", toy_raw)
    order = [32, 6, 97, 84, 0, 44]
    given = {"classes_per_task": 3, "classes": order, "mean": [0.5, 0.25, 0.5], "std": [2, 2, 4]}
    first, second = split_cifar100(tasks=2, **given)
    assert first.settings["classes"] == [NAMES[place] for place in (32, 6, 97)]
    assert second.classes == (NAMES[0], NAMES[44], NAMES[84])
    grey = 2 * 6 / 255
    expected = torch.tensor([(grey - 0.5) / 2, (grey - 0.25) / 2, (grey - 0.5) / 4])
    torch.testing.assert_close(first.test.inputs[0][:, 5, 7], expected)
    for changes, message in (
        ({"classes": [1, 2, 1]}, r"classes must be distinct positions, got \[1, 2, 1\]"),
        ({"classes": [100]}, "a class must be"),
        ({"tasks": 3}, "3 tasks of 3 classes need 9 classes, there are 6"),
        ({"mean": [0.5]}, r"mean must be three numbers, one a channel, got \[0.5\]"),
        ({"std": [1, 0, 1]}, "std must be a number of at least 1e-06, got 0"),
    ):
        refused(message, split_cifar100, **{"tasks": 2, **given, **changes})


def test_a_subset_is_read_only_where_asked_for(tmp_path, monkeypatch):
    def nothing(root, download):
        raise MissingDataError("no full copy")

    monkeypatch.setattr(cifar, "load_cifar100", nothing)

    make = partial(split_cifar100, root=tmp_path)
    refused(r"^no full copy$", make, error=MissingDataError)
    refused("npz: put the archive there", make, subset=True, error=MissingDataError)
    np.savez(tmp_path / "cifar100-subset.npz", **vars(toy_raw(per_class=2)))
    refused("pass subset=True", make, error=MissingDataError)
    task = make(subset=True)[0]
    assert task.settings["subset"] is True
    assert len(task.train) == 10
    for settings, message in (
        ({"tasks": 21}, "21 tasks of 5 classes need 105 classes, there are 100"),
        ({"classes_per_task": 0}, "classes_per_task must be"),
        ({"tasks": None, "classes_per_task": 101}, "only 100 classes"),
    ):
        refused(message, make, **settings)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_images": np.zeros((400, 3, 32, 32), np.uint8)}, "train_images must be"),
        ({"test_labels": np.zeros(99, np.int64)}, "positions in the 100 class_names"),
        ({"train_labels": np.full(400, 100)}, "positions in the 100 class_names"),
        ({"class_names": np.array([{}], dtype=object)}, "is no archive of"),
        (None, "is no archive of"),
    ],
)
def test_unusable_archives_are_refused(tmp_path, changes, message):
    path = tmp_path / "cifar100-subset.npz"
    if changes is None:
        path.write_bytes(b"PK\x03\x04 broken")
    else:
        np.savez(path, **{**vars(toy_raw()), **changes})
    refused(message, split_cifar100, root=tmp_path, subset=True)


def test_the_real_subset(cifar100_root):
    stream = split_cifar100(root=cifar100_root, subset=True, validation=0.1)
    assert (len(stream), len(stream[0].train), len(stream[0].test)) == (20, 540, 250)
    every = torch.cat([task.train.inputs for task in stream])
    assert every.mean((0, 2, 3)).abs().max() < 0.05
    assert (every.std((0, 2, 3)) - 1).abs().max() < 0.05


def write_image(path, pixels):
    image = pytest.importorskip("PIL.Image")
    path.parent.mkdir(parents=True, exist_ok=True)
    image.fromarray(pixels).save(path)


def grey(level):
    return np.full((12, 20, 3), level, np.uint8)


def test_validation_is_stratified_and_only_training_is_augmented(monkeypatch):
    monkeypatch.setattr(cifar, "load_cifar100", toy_raw)
    settings = {"classes_per_task": 2, "validation": 0.25}
    task, plain = (split_cifar100(**settings, augment=augment)[0] for augment in (True, False))
    assert sorted(task.validation.labels) == list(task.classes)
    assert (len(task.train), len(task.validation)) == (6, 2)
    assert task.train.augment is not None
    assert task.validation.augment is task.test.augment is plain.train.augment is None


def test_a_folder_of_tasks(tmp_path):
    for task in ("site-b", "site-a"):
        for split in ("train", "test", "val"):
            for level, label in ((0, "off"), (255, "on")):
                if (task, split, label) != ("site-a", "val", "off"):
                    write_image(tmp_path / task / split / label / "0.png", grey(level))
    stream = from_folder(tmp_path)
    assert (stream.name, stream.names) == (tmp_path.name, ("site-a", "site-b"))
    assert stream[0].classes == ("off", "on")
    assert stream[0].train.inputs.shape == (2, 3, 12, 20)
    assert stream[0].train.inputs[:, 0, 0, 0].tolist() == [0.0, 1.0]
    assert stream[0].validation.labels.tolist() == ["on"]
    assert from_folder(tmp_path, size=8)[0].test.inputs.shape == (2, 3, 8, 8)


def test_unusable_folders_are_refused(tmp_path):
    missing = partial(refused, error=MissingDataError)
    root = tmp_path / "tasks"
    missing("no folder nowhere", from_folder, "nowhere")
    root.mkdir()
    refused("no task in", from_folder, root)
    write_image(root / "a" / "train" / "x" / "0.png", grey(0))
    missing(r"no image folder at .*test", from_folder, root)
    write_image(root / "a" / "test" / "y" / "0.png", grey(0))
    refused("task 'a': the test part has label 'y', which train lacks", from_folder, root)
