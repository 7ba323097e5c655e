from pathlib import Path

import numpy as np
import pytest
import torch

from impresslearn.data import Examples
from impresslearn.errors import InputError
from impresslearn.streams import permuted_mnist, rotated_mnist
from impresslearn.streams.base import LabelledData

BLACK = (0 - 0.1307) / 0.3081


def tensors(data: LabelledData | None) -> torch.Tensor:
    assert isinstance(data, Examples)
    return data.inputs


def test_upright_mnist_is_mnist(mnist_root: Path) -> None:
    task = rotated_mnist(root=mnist_root, angles=[0])[0]
    train = task.train
    assert tensors(train).shape == (60_000, 1, 28, 28)
    assert tensors(train).dtype == torch.float32
    assert abs(tensors(train).mean()) < 1e-3
    assert abs(tensors(train).std() - 1) < 1e-3
    assert train.labels[:8].tolist() == [5, 0, 4, 1, 9, 2, 1, 3]
    assert task.test.labels[:8].tolist() == [7, 2, 1, 0, 4, 1, 4, 9]
    assert len(task.test) == 10_000


def test_rotation_comes_before_normalisation(mnist_root: Path) -> None:
    stream = rotated_mnist(root=mnist_root, angles=[0, 45, 90], train_size=200)
    upright, slanted, turned = (tensors(task.train) for task in stream)
    torch.testing.assert_close(slanted[:, 0, 0, 0], torch.full((200,), BLACK))
    torch.testing.assert_close(turned, torch.rot90(upright, 1, (-2, -1)), atol=1e-4, rtol=0)


def test_drawn_angles_name_the_tasks(mnist_root: Path) -> None:
    stream = rotated_mnist(root=mnist_root, train_size=10)
    assert len(stream) == 20
    assert stream.names[:2] == ("rotated-204", "rotated-6")
    assert stream["rotated-6"].settings == {"angle": 6}


def test_permuted_tasks_share_pixels_but_not_their_places(mnist_root: Path) -> None:
    stream = permuted_mnist(root=mnist_root, train_size=100)
    assert len(stream) == 110
    upright = tensors(rotated_mnist(root=mnist_root, angles=[0], train_size=100)[0].train)
    first, second = (tensors(task.train) for task in stream[:2])
    assert not torch.equal(first, second)
    for permuted in (first, second):
        assert (permuted != upright).any()
        torch.testing.assert_close(
            permuted.flatten(1).sort().values, upright.flatten(1).sort().values, atol=1e-4, rtol=0
        )
    other = permuted_mnist(tasks=2, root=mnist_root, train_size=100)
    assert torch.equal(tensors(other[1].train), second)


def test_validation_and_train_size_are_stratified_and_disjoint(mnist_root: Path) -> None:
    task = rotated_mnist(root=mnist_root, angles=[0], validation=0.1, train_size=1000)[0]
    assert task.validation is not None
    assert (len(task.train), len(task.validation)) == (1000, 6000)
    shares = np.bincount(task.train.labels) / 1000 - np.bincount(task.validation.labels) / 6000
    assert np.abs(shares).max() < 2e-3
    seen = {image.numpy().tobytes() for image in tensors(task.validation)}
    assert not any(image.numpy().tobytes() in seen for image in tensors(task.train))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train_size": 9}, "train_size must be an integer from 10 to 60000, got 9"),
        ({"train_size": 54_001, "validation": 0.1}, "from 10 to 54000, got 54001"),
    ],
)
def test_unusable_train_sizes_are_refused(mnist_root: Path, settings: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        permuted_mnist(root=mnist_root, **settings)


def test_unusable_settings_are_refused_before_any_file_is_read(tmp_path: Path) -> None:
    for settings in ({"tasks": 0}, {"validation": 1.5}, {"train_size": 0}):
        for make in (rotated_mnist, permuted_mnist):
            with pytest.raises(InputError, match=next(iter(settings))):
                make(root=tmp_path, **settings)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="got 400"):
        rotated_mnist(root=tmp_path, angles=[400])
