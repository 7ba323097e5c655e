from pathlib import Path

import numpy as np
import pytest
import torch

from impresslearn.data import Examples, StreamedExamples, to_batches
from impresslearn.errors import InputError, MissingDataError
from impresslearn.streams import from_folder, split_imagenet
from impresslearn.streams.base import LabelledData
from impresslearn.streams.imagenet import MEAN, STD

Image = pytest.importorskip("PIL.Image")


def write_image(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def grey(level: int, height: int = 12, width: int = 20) -> np.ndarray:
    return np.full((height, width, 3), level, np.uint8)


def in_memory(data: LabelledData | None) -> Examples:
    assert isinstance(data, Examples)
    return data


def stripes(level: int) -> np.ndarray:
    """A centre of one grey level, as wide as the crop and its resizing see, in white borders."""
    pixels = grey(255)
    pixels[:, 3:17] = level
    return pixels


@pytest.fixture
def image_root(tmp_path: Path) -> Path:
    """Six classes, four training and two test images each; class i is of grey level 10 * i."""
    for label in range(6):
        for split, count in (("train", 4), ("val", 2)):
            for number in range(count):
                path = tmp_path / split / f"n{label}" / f"{number}.png"
                landscape = stripes(10 * label)
                write_image(path, landscape if number % 2 else landscape.transpose(1, 0, 2).copy())
    (tmp_path / "train" / "n0" / "notes.txt").write_text("no image")
    return tmp_path


def test_classes_are_split_into_tasks_of_normalised_centre_crops(image_root: Path) -> None:
    stream = split_imagenet(image_root, classes_per_task=2, size=6)
    assert stream.names == ("imagenet-00", "imagenet-01", "imagenet-02")
    assert {name for task in stream for name in task.classes} == {f"n{i}" for i in range(6)}
    train = in_memory(stream[0].train)
    assert train.inputs.shape == (8, 3, 6, 6)
    assert set(train.labels) == set(stream[0].classes) == set(stream[0].settings["classes"])
    for image, label in zip(train.inputs, train.labels, strict=True):
        level = 10 * int(label[1:]) / 255
        expected = (torch.full((3,), level) - torch.tensor(MEAN)) / torch.tensor(STD)
        torch.testing.assert_close(image, expected[:, None, None].expand(3, 6, 6))


def test_validation_is_stratified_and_only_training_is_augmented(image_root: Path) -> None:
    task = split_imagenet(image_root, classes_per_task=2, size=16, validation=0.25)[0]
    assert sorted(in_memory(task.validation).labels) == list(task.classes)
    assert len(task.train) == 6
    assert in_memory(task.train).augment is not None
    assert in_memory(task.validation).augment is in_memory(task.test).augment is None
    plain = split_imagenet(image_root, classes_per_task=2, size=16, augment=False)[0]
    assert in_memory(plain.train).augment is None


def test_larger_images_than_memory_are_streamed_with_the_same_pixels(image_root: Path) -> None:
    held = split_imagenet(image_root, classes_per_task=2, size=6)[1]
    read = split_imagenet(image_root, classes_per_task=2, size=6, memory_limit=100, workers=0)[1]
    test = read.test
    assert isinstance(test, StreamedExamples)
    batches = to_batches(test, read.classes, torch.device("cpu")).batches(3)
    inputs, targets = (torch.cat(part) for part in zip(*batches, strict=True))
    assert torch.equal(inputs, in_memory(held.test).inputs)
    assert [read.classes[i] for i in targets] == in_memory(held.test).labels.tolist()


def test_streamed_training_images_are_augmented_as_they_are_read(tmp_path: Path) -> None:
    ramp = np.repeat(np.arange(0, 256, 8, dtype=np.uint8)[None, :, None], 32, 0).repeat(3, 2)
    for split in ("train", "val"):
        write_image(tmp_path / split / "a" / "0.png", ramp)
    stream = split_imagenet(tmp_path, classes_per_task=1, size=32, memory_limit=1, workers=0)
    train, test = stream[0].train, stream[0].test
    assert isinstance(train, StreamedExamples)
    assert isinstance(test, StreamedExamples)
    generator = torch.Generator().manual_seed(0)

    def shown(data: StreamedExamples, generator: torch.Generator | None, epochs: int) -> int:
        source = to_batches(data, ("a",), torch.device("cpu"))
        epoch = [next(source.batches(1, generator))[0] for _ in range(epochs)]
        return len({images.numpy().tobytes() for images in epoch})

    assert 1 < shown(train, generator, 20) <= 2 * 5 * 5
    assert shown(train, None, 5) == shown(test, generator, 5) == 1


def test_unusable_image_folders_are_refused(image_root: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="no image folder at nowhere/train"):
        split_imagenet("nowhere")
    with pytest.raises(InputError, match="4 tasks of 2 classes need 8 classes, there are 6"):
        split_imagenet(image_root, tasks=4, classes_per_task=2)
    with pytest.raises(InputError, match="size must be"):
        split_imagenet(image_root, size=0)
    (image_root / "train" / "n9").mkdir()
    with pytest.raises(InputError, match=r"no image below .*n9"):
        split_imagenet(image_root, classes_per_task=2)
    write_image(image_root / "train" / "n9" / "0.png", grey(3))
    with pytest.raises(InputError, match=r"class 'n9' has no folder in .*val"):
        split_imagenet(image_root, classes_per_task=7)


def test_a_broken_image_is_named(image_root: Path) -> None:
    (image_root / "val" / "n3" / "0.png").write_bytes(b"no image")
    stream = split_imagenet(image_root, classes_per_task=6, size=4)
    with pytest.raises(InputError, match=r"cannot read the image .*n3.0\.png"):
        _ = stream[0].test


def test_folder_of_tasks(tmp_path: Path) -> None:
    for task in ("site-b", "site-a"):
        for split in ("train", "test", "val"):
            for level, label in ((0, "off"), (255, "on")):
                write_image(tmp_path / task / split / label / "0.png", grey(level))
    (tmp_path / "site-a" / "val" / "off" / "0.png").unlink()
    (tmp_path / "site-a" / "val" / "off").rmdir()
    stream = from_folder(tmp_path)
    assert stream.name == tmp_path.name
    assert stream.names == ("site-a", "site-b")
    assert stream[0].classes == ("off", "on")
    train = in_memory(stream[0].train)
    assert train.inputs.shape == (2, 3, 12, 20)
    assert train.inputs[:, 0, 0, 0].tolist() == [0.0, 1.0]
    assert in_memory(stream[0].validation).labels.tolist() == ["on"]
    assert in_memory(from_folder(tmp_path, size=8)[0].test).inputs.shape == (2, 3, 8, 8)


def test_folders_of_another_layout_are_refused(tmp_path: Path) -> None:
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
    write_image(tmp_path / "a" / "train" / "y" / "0.png", grey(0, 5, 5))
    mixed = from_folder(tmp_path)
    with pytest.raises(InputError, match="0.png has 5x5 pixels, the first image 20x12"):
        _ = mixed[0].train


def test_real_tiny_imagenet(tiny_imagenet_root: Path) -> None:
    stream = split_imagenet(tiny_imagenet_root, size=64)
    assert len(stream) == 4
    assert [len(task.classes) for task in stream] == [10] * 4
    test = in_memory(stream[0].test)
    assert test.inputs.shape == (200, 3, 64, 64)
    assert test.inputs.mean((0, 2, 3)).abs().max() < 0.5
    assert set(test.labels) == set(stream[0].classes)
