"""Customers: small tasks with an angle, classes and images of their own."""

import numpy as np
import pytest
import torch

from impresslearn.streams import customers, mnist_customers
from impresslearn.streams.mnist import MNIST_MEAN, MNIST_STD
from impresslearn.streams.torchvision import RawImages
from impresslearn.streams.transforms import rotate
from toys import refused

SIZES = {"train_size": 20, "test_size": 25, "basis": 1, "basis_size": 100}


@pytest.fixture
def toy_mnist(monkeypatch):
    """60 images of each digit, all of one grey level, darker ones to train on."""
    labels = np.tile(np.arange(10), 60)
    levels = np.arange(600) // 8 + 50
    images = np.broadcast_to(levels[:, None, None], (600, 28, 28)).astype(np.uint8)
    raw = RawImages(images, labels, images + 100, labels, tuple("0123456789"))
    monkeypatch.setattr(customers, "load_mnist", lambda root, download: raw)


@pytest.mark.usefixtures("toy_mnist")
def test_a_customer_has_its_own_angle_classes_and_images():
    stream = mnist_customers(tasks=8, seed=3, **SIZES)
    assert (stream.name, stream.names[:2]) == ("mnist_customers", ("customer-0", "customer-1"))
    assert [len(task.train) for task in stream] == [100] + [20] * 7
    assert len({task.settings["angle"] for task in stream}) == 8
    assert len({task.classes for task in stream}) > 4
    for task in stream:
        assert list(task.classes) == task.settings["classes"] == sorted(set(task.train.labels))
        for part, levels in ((task.train, (50, 125)), (task.test, (150, 225))):
            assert set(np.bincount(part.labels).tolist()) == {0, len(part) // 5}
            pixels = part.inputs * MNIST_STD[0] + MNIST_MEAN[0]
            level = pixels[:, :, 14:15, 14:15]
            assert torch.isin((255 * level).round(), torch.arange(*levels)).all()
            turned = rotate(level.expand(pixels.shape), task.settings["angle"])
            torch.testing.assert_close(pixels, turned, atol=1e-5, rtol=0)
    few = mnist_customers(tasks=2, seed=3, **SIZES | {"train_size": 10})
    assert [task.settings for task in few] == [task.settings for task in stream[:2]]
    assert torch.equal(few[1].test.inputs, stream[1].test.inputs)
    other = mnist_customers(tasks=1, seed=4, **SIZES)[0]
    assert other.settings["angle"] != stream[0].settings["angle"]


@pytest.mark.usefixtures("toy_mnist")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tasks": 0}, "tasks must be an integer of at least 1"),
        ({"basis": 3}, "basis must be an integer from 0 to 2, got 3"),
        ({"classes_per_task": 1}, "classes_per_task must be an integer from 2 to 10, got 1"),
        ({"train_size": 4}, "train_size must be an integer of at least 5, got 4"),
        ({"test_size": 301}, "test_size must be an integer from 5 to 300, got 301"),
    ],
)
def test_unusable_settings_are_refused(settings, message):
    refused(message, mnist_customers, **{"tasks": 2} | SIZES | settings)


def test_customers_of_mnist(mnist_root):
    stream = mnist_customers(tasks=13, root=mnist_root)
    assert [len(stream[place].train) for place in (0, 11, 12)] == [2000, 2000, 100]
    assert stream[12].test.inputs.shape == (500, 1, 28, 28)
    assert abs(stream[0].train.inputs.mean()) < 0.1
