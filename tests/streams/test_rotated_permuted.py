"""Rotated and permuted tasks of the small digits and of MNIST."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from impresslearn.errors import InputError
from impresslearn.streams import permuted_digits, permuted_mnist, rotated_digits, rotated_mnist
from impresslearn.streams.rotated_permuted import DIGITS_MEAN, DIGITS_STD

BLACK = (0 - 0.1307) / 0.3081


def sorted_pixels(inputs):
    return inputs.flatten(1).sort().values


def test_rotated_digits_are_the_digits_rotated():
    stream = rotated_digits(angles=[0, 90])
    upright, turned = (task.train for task in stream)
    assert stream.names == ("rotated-0", "rotated-90")
    assert (stream.name, stream[1].settings) == ("rotated_digits", {"angle": 90})
    assert stream[0].classes == tuple(range(10))
    expected = torch.rot90(upright.inputs, 1, (-2, -1))
    torch.testing.assert_close(turned.inputs, expected, atol=1e-5, rtol=0)
    assert np.array_equal(upright.labels, turned.labels)


def test_tasks_are_different_angles():
    """A task a degree from another one is the same task: nobody can say which inputs it has."""
    angles = sorted(task.settings["angle"] for task in rotated_digits(tasks=15))
    assert np.diff([*angles, angles[0] + 360]).min() >= 22


def test_splits_partition_the_set_and_are_stratified():
    task = rotated_digits(angles=[0], validation=0.2, test=0.25)[0]
    parts = [task.train, task.validation, task.test]
    assert [len(part) for part in parts] == [1078, 270, 449]
    scaled = torch.cat([part.inputs for part in parts]).flatten(1) * DIGITS_STD[0] + DIGITS_MEAN[0]
    pixels = scaled.mul(16).round().int()
    everything = load_digits().data.astype(int)
    assert sorted(map(tuple, pixels.tolist())) == sorted(map(tuple, everything.tolist()))
    assert np.bincount(task.test.labels).min() >= 43
    assert (task.train.inputs.dtype, task.train.inputs.shape[1:]) == (torch.float32, (1, 8, 8))


def test_asking_for_validation_changes_neither_test_nor_angles():
    plain, split = rotated_digits(tasks=3), rotated_digits(tasks=3, validation=0.3)
    assert plain.names == split.names
    assert torch.equal(plain[2].test.inputs, split[2].test.inputs)
    assert plain[0].validation is None
    other = rotated_digits(tasks=3, seed=1)
    assert other.names != plain.names
    assert not torch.equal(other[0].test.inputs, plain[0].test.inputs)


@pytest.mark.parametrize("data", ["digits", "mnist"])
def test_permuted_tasks_share_pixels_whatever_their_number(data, request):
    if data == "digits":
        few, many = permuted_digits(tasks=2, seed=5), permuted_digits(tasks=15, seed=5)
        upright = rotated_digits(angles=[0], seed=5)[0].train.inputs
    else:
        settings = {"root": request.getfixturevalue("mnist_root"), "train_size": 100}
        few, many = permuted_mnist(tasks=2, **settings), permuted_mnist(**settings)
        assert len(many) == 110
        upright = rotated_mnist(angles=[0], **settings)[0].train.inputs
    first, second = (task.train.inputs for task in few)
    assert many.names[:2] == few.names == ("permuted-0", "permuted-1")
    assert torch.equal(second, many[1].train.inputs)
    assert not torch.equal(first, second)
    for permuted in (first, second):
        assert (permuted != upright).any()
        pixels = sorted_pixels(permuted)
        torch.testing.assert_close(pixels, sorted_pixels(upright), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tasks": 0}, "tasks"),
        ({"validation": 1.5}, r"validation must be a fraction in \[0, 1\), got 1.5"),
        ({"validation": float("nan")}, "validation"),
        ({"test": 0.0}, r"test must be a fraction in \(0, 1\), got 0.0"),
        ({"test": "a"}, "test must be a fraction"),
        ({"seed": -1}, "seed"),
    ],
)
def test_unusable_settings_are_refused(settings, message, tmp_path):
    makers = [rotated_digits, permuted_digits]
    if not {"test", "seed"} & settings.keys():  # of MNIST before any file is read
        settings = {"root": tmp_path, **settings}
        makers = [rotated_mnist, permuted_mnist]
    for make in makers:
        with pytest.raises(InputError, match=message) as caught:
            make(**settings)
        assert "\n" not in str(caught.value)


def test_upright_mnist_is_mnist(mnist_root):
    task = rotated_mnist(root=mnist_root, angles=[0])[0]
    train = task.train
    assert (train.inputs.shape, train.inputs.dtype) == ((60_000, 1, 28, 28), torch.float32)
    assert abs(train.inputs.mean()) < 1e-3
    assert abs(train.inputs.std() - 1) < 1e-3
    assert train.labels[:8].tolist() == [5, 0, 4, 1, 9, 2, 1, 3]
    assert task.test.labels[:8].tolist() == [7, 2, 1, 0, 4, 1, 4, 9]
    assert len(task.test) == 10_000


def test_rotation_comes_before_normalisation(mnist_root):
    stream = rotated_mnist(root=mnist_root, angles=[0, 45, 90], train_size=200)
    upright, slanted, turned = (task.train.inputs for task in stream)
    torch.testing.assert_close(slanted[:, 0, 0, 0], torch.full((200,), BLACK))
    torch.testing.assert_close(turned, torch.rot90(upright, 1, (-2, -1)), atol=1e-4, rtol=0)
    drawn = rotated_mnist(root=mnist_root, train_size=10)
    assert (len(drawn), drawn.names[:2]) == (20, ("rotated-204", "rotated-6"))


def test_validation_and_train_size_are_stratified_and_disjoint(mnist_root):
    task = rotated_mnist(root=mnist_root, angles=[0], validation=0.1, train_size=1000)[0]
    assert (len(task.train), len(task.validation)) == (1000, 6000)
    shares = np.bincount(task.train.labels) / 1000 - np.bincount(task.validation.labels) / 6000
    assert np.abs(shares).max() < 2e-3
    seen = {image.numpy().tobytes() for image in task.validation.inputs}
    assert not any(image.numpy().tobytes() in seen for image in task.train.inputs)
    for settings, bounds in (
        ({"train_size": 9}, "from 10 to 60000, got 9"),
        ({"train_size": 54_001, "validation": 0.1}, "from 10 to 54000, got 54001"),
    ):
        with pytest.raises(InputError, match=f"train_size must be an integer {bounds}"):
            permuted_mnist(root=mnist_root, **settings)
