"""Rotated and permuted tasks of the small digits and of MNIST."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from impresslearn.streams import permuted_digits, permuted_mnist, rotated_digits, rotated_mnist
from impresslearn.streams.mnist import DIGITS_MEAN, DIGITS_STD
from toys import refused


@pytest.mark.parametrize("data", ["digits", "mnist"])
def test_tasks_show_the_same_images_rotated_or_permuted(data, request):
    rotated, permuted, settings = rotated_digits, permuted_digits, {"seed": 5}
    if data == "mnist":
        rotated, permuted = rotated_mnist, permuted_mnist
        settings |= {"root": request.getfixturevalue("mnist_root"), "train_size": 100}
    turned = rotated(angles=[0, 90, 45], **settings)
    upright, quarter, slanted = (task.train.inputs for task in turned)
    assert (turned.name, turned.names[1]) == (f"rotated_{data}", "rotated-90")
    assert (turned[1].settings, turned[0].classes) == ({"angle": 90}, tuple(range(10)))
    torch.testing.assert_close(quarter, torch.rot90(upright, 1, (-2, -1)), atol=1e-4, rtol=0)
    assert slanted[:, 0, 0, 0].unique() == upright.min()  # black before it is normalised
    assert np.array_equal(turned[0].train.labels, turned[1].train.labels)
    few, many = permuted(tasks=2, **settings), permuted(**settings)
    assert len(many) == {"digits": 15, "mnist": 110}[data]
    assert many.names[:2] == few.names == ("permuted-0", "permuted-1")
    first, second = (task.train.inputs for task in few)
    assert torch.equal(second, many[1].train.inputs)
    assert not torch.equal(first, second)
    other = permuted(tasks=1, **settings | {"seed": 6})[0].train.inputs
    assert not torch.equal(other.sum(0), first.sum(0))
    for moved in (first, second):
        assert (moved != upright).any()
        pixels = (each.flatten(1).sort().values for each in (moved, upright))
        torch.testing.assert_close(*pixels, atol=1e-4, rtol=0)


def test_splits_partition_the_set_and_are_stratified():
    task = rotated_digits(angles=[0], validation=0.2, test=0.25)[0]
    parts = [task.train, task.validation, task.test]
    assert [len(part) for part in parts] == [1078, 270, 449]
    scaled = torch.cat([part.inputs for part in parts]).flatten(1) * DIGITS_STD[0] + DIGITS_MEAN[0]
    pixels = scaled.mul(16).round().int()
    everything = load_digits().data.astype(int)
    assert sorted(map(tuple, pixels.tolist())) == sorted(map(tuple, everything.tolist()))
    assert np.bincount(task.test.labels).min() >= 43


def test_asking_for_validation_changes_neither_test_nor_angles():
    plain, split = rotated_digits(tasks=3), rotated_digits(tasks=3, validation=0.3)
    assert plain.names == ("rotated-204", "rotated-24", "rotated-114")  # spread over the circle
    other = rotated_digits(tasks=3, seed=1)
    assert plain.names == split.names != other.names
    assert torch.equal(plain[2].test.inputs, split[2].test.inputs)
    assert not torch.equal(other[0].test.inputs, plain[0].test.inputs)
    assert plain[0].validation is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tasks": 0}, "tasks"),
        ({"validation": 1.5}, r"validation must be a fraction in \[0, 1\), got 1.5"),
        ({"test": 0.0}, r"test must be a fraction in \(0, 1\), got 0.0"),
        ({"test": "a"}, "test must be a number"),
        ({"seed": 2**32}, "seed must be an integer"),
    ],
)
def test_unusable_settings_are_refused(settings, message, tmp_path):
    makers = [rotated_digits, permuted_digits]
    if not {"test", "seed"} & settings.keys():  # of MNIST before any file is read
        settings = {"root": tmp_path, **settings}
        makers = [rotated_mnist, permuted_mnist]
    for make in makers:
        refused(message, make, **settings)


def test_upright_mnist_is_mnist(mnist_root):
    task = rotated_mnist(root=mnist_root, angles=[0])[0]
    train = task.train
    assert (train.inputs.shape, train.inputs.dtype) == ((60_000, 1, 28, 28), torch.float32)
    assert abs(train.inputs.mean()) < 1e-3
    assert abs(train.inputs.std() - 1) < 1e-3
    assert train.labels[:8].tolist() == [5, 0, 4, 1, 9, 2, 1, 3]
    assert task.test.labels[:8].tolist() == [7, 2, 1, 0, 4, 1, 4, 9]
    assert len(task.test) == 10_000
    drawn = rotated_mnist(root=mnist_root, validation=0.1, train_size=1000)
    assert (len(drawn), drawn.names[:2]) == (20, ("rotated-204", "rotated-6"))
    task = drawn[0]
    assert (len(task.train), len(task.validation)) == (1000, 6000)
    shares = np.bincount(task.train.labels) / 1000 - np.bincount(task.validation.labels) / 6000
    assert np.abs(shares).max() < 2e-3
    seen = {image.numpy().tobytes() for image in task.validation.inputs}
    assert not any(image.numpy().tobytes() in seen for image in task.train.inputs)
    for size, validation, most in ((9, 0, 60_000), (54_001, 0.1, 54_000)):
        message = f"train_size must be an integer from 10 to {most}, got {size}"
        settings = {"train_size": size, "validation": validation}
        refused(message, permuted_mnist, root=mnist_root, **settings)
