"""Streams whose tasks are groups of classes, or folders: CIFAR-100, ImageNet, image folders."""

import numpy as np
import pytest
import torch

from impresslearn.data import StreamedExamples, to_batches
from impresslearn.errors import InputError, MissingDataError
from impresslearn.streams import cifar, from_folder, imagenet, split_cifar100, split_imagenet
from impresslearn.streams.torchvision import RawImages
from impresslearn.streams.transforms import flip_and_shift

NAMES = tuple(f"class-{i:02d}" for i in range(100))


def toy_raw(per_class=4):
    """Images of grey level 2 * label, so that an image tells its class, and one green pixel."""
    labels = np.tile(np.arange(100), per_class)
    images = np.broadcast_to((2 * labels)[:, None, None, None], (len(labels), 32, 32, 3))
    images = images.astype(np.uint8)
    images[:, 2, 9] = (0, 255, 0)
    return RawImages(images, labels, images[:100].copy(), labels[:100].copy(), NAMES)


@pytest.fixture
def full_copy(monkeypatch):
    monkeypatch.setattr(cifar, "load_cifar100", lambda root, download: toy_raw())


def write_subset(folder, **changes):
    arrays = vars(toy_raw(2)) | {"class_names": np.array(NAMES)}
    np.savez(folder / "cifar100-subset.npz", **{**arrays, **changes})


@pytest.mark.usefixtures("full_copy")
def test_tasks_of_cifar_have_disjoint_named_classes_and_their_own_images():
    stream = split_cifar100()
    assert stream.names[:2] == ("cifar100-00", "cifar100-01")
    assert len(stream) == 20
    assert {name for task in stream for name in task.classes} == set(NAMES)
    task = stream[3]
    assert sorted(task.settings["classes"]) == list(task.classes)
    train = task.train
    assert train.inputs.shape == (20, 3, 32, 32)
    for image, label in zip(train.inputs, train.labels, strict=True):
        grey = 2 * NAMES.index(label) / 255
        expected = (torch.full((3,), grey) - torch.tensor(cifar.MEAN)) / torch.tensor(cifar.STD)
        torch.testing.assert_close(image[:, 5, 7], expected)
        assert (image[:, 2, 9] > 0).tolist() == [False, True, False]
    assert split_cifar100(tasks=2)[1].classes == stream[1].classes
    assert split_cifar100(seed=1)[1].classes != stream[1].classes
    assert [len(task.classes) for task in split_cifar100(tasks=5, classes_per_task=20)] == [20] * 5


@pytest.mark.usefixtures("full_copy")
def test_only_training_examples_are_augmented():
    task = split_cifar100(validation=0.25)[0]
    assert task.train.augment is flip_and_shift
    assert task.validation.augment is task.test.augment is None
    assert split_cifar100(augment=False)[0].train.augment is None
    assert (len(task.train), len(task.validation)) == (15, 5)
    assert sorted(task.validation.labels) == list(task.classes)


def test_a_subset_is_read_only_where_asked_for(tmp_path, monkeypatch):
    def nothing(root, download):
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
    for settings in ({"tasks": 21}, {"validation": 1.0}):
        with pytest.raises(InputError, match="need 105 classes, there are 100|validation"):
            split_cifar100(root=tmp_path, **settings)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_images": np.zeros((200, 3, 32, 32), np.uint8)}, "train_images must be"),
        ({"test_images": np.zeros((100, 32, 32, 3), np.float32)}, "test_images must be"),
        ({"test_labels": np.zeros(99, np.int64)}, r"test_labels must be \(100,\) integers"),
        ({"train_labels": np.full(200, 100)}, "positions in the 100 class_names"),
        ({"class_names": np.array([{}], dtype=object)}, "is no archive of"),
        (None, "is no archive of"),
    ],
)
def test_unusable_archives_are_refused(tmp_path, changes, message):
    if changes is None:
        (tmp_path / "cifar100-subset.npz").write_bytes(b"PK\x03\x04 broken")
    else:
        write_subset(tmp_path, **changes)
    with pytest.raises(InputError, match=message):
        split_cifar100(root=tmp_path, subset=True)


def test_the_real_subset(cifar100_root):
    stream = split_cifar100(root=cifar100_root, subset=True, validation=0.1)
    task = stream[0]
    assert len(stream) == 20
    assert (task.train.inputs.shape, task.test.inputs.shape[0]) == ((540, 3, 32, 32), 250)
    assert set(task.train.labels) == set(task.test.labels) == set(task.classes)
    every = torch.cat([task.train.inputs for task in stream])
    assert every.mean((0, 2, 3)).abs().max() < 0.05
    assert (every.std((0, 2, 3)) - 1).abs().max() < 0.05


def write_image(path, pixels):
    image = pytest.importorskip("PIL.Image")
    path.parent.mkdir(parents=True, exist_ok=True)
    image.fromarray(pixels).save(path)


def grey(level, height=12, width=20):
    return np.full((height, width, 3), level, np.uint8)


@pytest.fixture
def image_root(tmp_path):
    """Six classes, four training and two test images each; class i is of grey level 10 * i.

    Its pixels are a centre as wide as the crop and its resizing see, in white borders.
    """
    for label in range(6):
        for split, count in (("train", 4), ("val", 2)):
            for number in range(count):
                pixels = grey(255)
                pixels[:, 3:17] = 10 * label
                turned = pixels if number % 2 else pixels.transpose(1, 0, 2).copy()
                write_image(tmp_path / split / f"n{label}" / f"{number}.png", turned)
    return tmp_path


def test_tasks_of_imagenet_are_normalised_centre_crops(image_root):
    stream = split_imagenet(image_root, classes_per_task=2, size=6)
    assert stream.names == ("imagenet-00", "imagenet-01", "imagenet-02")
    assert {name for task in stream for name in task.classes} == {f"n{i}" for i in range(6)}
    train = stream[0].train
    assert train.inputs.shape == (8, 3, 6, 6)
    assert set(train.labels) == set(stream[0].classes) == set(stream[0].settings["classes"])
    mean, std = torch.tensor(imagenet.MEAN), torch.tensor(imagenet.STD)
    for image, label in zip(train.inputs, train.labels, strict=True):
        expected = (torch.full((3,), 10 * int(label[1:]) / 255) - mean) / std
        torch.testing.assert_close(image, expected[:, None, None].expand(3, 6, 6))


def test_validation_is_stratified_and_only_training_is_augmented(image_root):
    task = split_imagenet(image_root, classes_per_task=2, size=16, validation=0.25)[0]
    assert sorted(task.validation.labels) == list(task.classes)
    assert len(task.train) == 6
    assert task.train.augment is not None
    assert task.validation.augment is task.test.augment is None
    plain = split_imagenet(image_root, classes_per_task=2, size=16, augment=False)[0]
    assert plain.train.augment is None


def test_larger_images_than_memory_are_streamed_with_the_same_pixels(image_root):
    held = split_imagenet(image_root, classes_per_task=2, size=6)[1]
    read = split_imagenet(image_root, classes_per_task=2, size=6, memory_limit=100, workers=0)[1]
    assert isinstance(read.test, StreamedExamples)
    batches = to_batches(read.test, read.classes, torch.device("cpu")).batches(3)
    inputs, targets = (torch.cat(part) for part in zip(*batches, strict=True))
    assert torch.equal(inputs, held.test.inputs)
    assert [read.classes[i] for i in targets] == held.test.labels.tolist()


def test_streamed_training_images_are_augmented_as_they_are_read(tmp_path):
    ramp = np.repeat(np.arange(0, 256, 8, dtype=np.uint8)[None, :, None], 32, 0).repeat(3, 2)
    for split in ("train", "val"):
        write_image(tmp_path / split / "a" / "0.png", ramp)
    stream = split_imagenet(tmp_path, classes_per_task=1, size=32, memory_limit=1, workers=0)
    generator = torch.Generator().manual_seed(0)

    def shown(data, generator, epochs):
        source = to_batches(data, ("a",), torch.device("cpu"))
        epoch = [next(source.batches(1, generator))[0] for _ in range(epochs)]
        return len({images.numpy().tobytes() for images in epoch})

    assert 1 < shown(stream[0].train, generator, 20) <= 2 * 5 * 5
    assert shown(stream[0].train, None, 5) == shown(stream[0].test, generator, 5) == 1


def test_unusable_image_folders_are_refused(image_root):
    with pytest.raises(MissingDataError, match="no image folder at nowhere/train"):
        split_imagenet("nowhere")
    with pytest.raises(InputError, match="4 tasks of 2 classes need 8 classes, there are 6"):
        split_imagenet(image_root, tasks=4, classes_per_task=2)
    with pytest.raises(InputError, match="size must be"):
        split_imagenet(image_root, size=0)
    write_image(image_root / "train" / "n9" / "0.png", grey(3))
    with pytest.raises(InputError, match=r"class 'n9' has no folder in .*val"):
        split_imagenet(image_root, classes_per_task=7)


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


def test_folders_of_another_layout_are_refused(tmp_path):
    with pytest.raises(MissingDataError, match="no folder nowhere"):
        from_folder("nowhere")
    with pytest.raises(InputError, match="no task in"):
        from_folder(tmp_path)
    write_image(tmp_path / "a" / "train" / "x" / "0.png", grey(0))
    with pytest.raises(MissingDataError, match=r"no image folder at .*test"):
        from_folder(tmp_path)
    write_image(tmp_path / "a" / "test" / "y" / "0.png", grey(0))
    with pytest.raises(InputError, match="task 'a': the test part has label 'y', which train"):
        from_folder(tmp_path)


def test_real_tiny_imagenet(tiny_imagenet_root):
    stream = split_imagenet(tiny_imagenet_root, size=64)
    assert [len(task.classes) for task in stream] == [10] * 4
    test = stream[0].test
    assert test.inputs.shape == (200, 3, 64, 64)
    assert test.inputs.mean((0, 2, 3)).abs().max() < 0.5
    assert set(test.labels) == set(stream[0].classes)
