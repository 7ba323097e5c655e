"""Streams that only benchmarks use: customers of MNIST and Split ImageNet."""

import numpy as np
import pytest
import torch
from benchmarks.streams import images as image_streams
from benchmarks.streams.images import mnist_customers, split_imagenet

from impresslearn.streams import standard
from impresslearn.streams.pixels import Pixels, rotate
from impresslearn.streams.standard import MNIST_MEAN, MNIST_STD
from impresslearn.streams.torchvision import channels_first


def test_a_customer_has_its_own_angle_classes_and_images(monkeypatch):
    """Of 600 images of each digit, all of one grey level, darker ones to train on."""
    labels = np.tile(np.arange(10), 600)
    levels = np.arange(6000) // 80 + 50
    images = np.broadcast_to(levels[:, None, None], (6000, 28, 28)).astype(np.uint8)
    train, test = (Pixels(channels_first(part), labels) for part in (images, images + 100))
    monkeypatch.setattr(standard, "load_images", lambda *_: (train, test))
    stream = mnist_customers("", tasks=14, seed=3)
    assert (stream.name, stream.names[:2]) == ("mnist_customers", ("customer-0", "customer-1"))
    assert [len(task.train) for task in stream] == [2000] * 12 + [100] * 2
    assert len({task.settings["angle"] for task in stream}) == 14
    for task in stream[11:]:
        assert list(task.classes) == task.settings["classes"] == sorted(set(task.train.labels))
        for part, levels in ((task.train, (50, 125)), (task.test, (150, 225))):
            assert set(np.bincount(part.labels).tolist()) == {0, len(part) // 5}
            pixels = part.inputs * MNIST_STD[0] + MNIST_MEAN[0]
            level = pixels[:, :, 14:15, 14:15]
            assert torch.isin((255 * level).round(), torch.arange(*levels)).all()
            turned = rotate(level.expand(pixels.shape), task.settings["angle"])
            torch.testing.assert_close(pixels, turned, atol=1e-5, rtol=0)
    assert mnist_customers("", tasks=1, seed=4)[0].settings != stream[0].settings


def test_tasks_of_imagenet_are_normalised_centre_crops(tmp_path):
    """Class i has grey level 10 * i in the centre, between white borders."""
    image = pytest.importorskip("PIL.Image")
    for label in range(6):
        pixels = np.full((12, 20, 3), 255, np.uint8)
        pixels[:, 3:17] = 10 * label
        for number, split in enumerate(["train"] * 4 + ["val"] * 2):
            folder = tmp_path / split / f"n{label}"
            folder.mkdir(parents=True, exist_ok=True)
            image.fromarray(pixels).rotate(90 * number, expand=True).save(folder / f"{number}.png")
    stream = split_imagenet(tmp_path, classes_per_task=2, size=6)
    assert stream.names == ("imagenet-00", "imagenet-01", "imagenet-02")
    train = stream[0].train
    assert train.inputs.shape == (8, 3, 6, 6)
    assert train.augment is not stream[0].test.augment is None
    mean, std = torch.tensor(image_streams.MEAN), torch.tensor(image_streams.STD)
    for image, label in zip(train.inputs, train.labels, strict=True):
        expected = (torch.full((3,), 10 * int(label[1:]) / 255) - mean) / std
        torch.testing.assert_close(image, expected[:, None, None].expand(3, 6, 6))
