import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from impresslearn.data import Examples
from impresslearn.errors import InputError
from impresslearn.streams import permuted_digits, rotated_digits
from impresslearn.streams.base import LabelledData
from impresslearn.streams.rotated_permuted import DIGITS_MEAN, DIGITS_STD


def tensors(data: LabelledData | None) -> torch.Tensor:
    assert isinstance(data, Examples)
    return data.inputs


def test_rotated_digits_are_the_digits_rotated() -> None:
    stream = rotated_digits(angles=[0, 90])
    upright, turned = (task.train for task in stream)
    assert stream.names == ("rotated-0", "rotated-90")
    assert stream.name == "rotated_digits"
    assert stream[1].settings == {"angle": 90}
    assert stream[0].classes == tuple(range(10))
    torch.testing.assert_close(
        tensors(turned), torch.rot90(tensors(upright), 1, (-2, -1)), atol=1e-5, rtol=0
    )
    assert np.array_equal(upright.labels, turned.labels)


def test_tasks_are_different_angles() -> None:
    """A task a degree from another one is the same task: nobody can say which inputs it has."""
    angles = sorted(task.settings["angle"] for task in rotated_digits(tasks=15))
    assert np.diff([*angles, angles[0] + 360]).min() >= 22


def test_splits_partition_the_set_and_are_stratified() -> None:
    task = rotated_digits(angles=[0], validation=0.2, test=0.25)[0]
    parts = [task.train, task.validation, task.test]
    assert [len(part) for part in parts if part is not None] == [1078, 270, 449]
    scaled = (
        torch.cat([tensors(part) for part in parts]).flatten(1) * DIGITS_STD[0] + DIGITS_MEAN[0]
    )
    pixels = scaled.mul(16).round().int()
    everything = load_digits().data.astype(int)
    assert sorted(map(tuple, pixels.tolist())) == sorted(map(tuple, everything.tolist()))
    assert np.bincount(task.test.labels).min() >= 43
    assert tensors(task.train).dtype == torch.float32
    assert tensors(task.train).shape[1:] == (1, 8, 8)


def test_permuted_digits_are_the_same_task_whatever_the_number_of_tasks() -> None:
    few, many = permuted_digits(tasks=2, seed=5), permuted_digits(tasks=15, seed=5)
    upright = rotated_digits(angles=[0], seed=5)[0].train
    assert many.names[:2] == few.names == ("permuted-0", "permuted-1")
    assert torch.equal(tensors(few[1].train), tensors(many[1].train))
    assert not torch.equal(tensors(few[0].train), tensors(few[1].train))
    first = tensors(few[0].train)
    assert (first != tensors(upright)).any()
    torch.testing.assert_close(
        first.flatten(1).sort().values, tensors(upright).flatten(1).sort().values, atol=1e-5, rtol=0
    )


def test_asking_for_validation_changes_neither_test_nor_angles() -> None:
    plain, split = rotated_digits(tasks=3), rotated_digits(tasks=3, validation=0.3)
    assert plain.names == split.names
    assert torch.equal(tensors(plain[2].test), tensors(split[2].test))
    assert plain[0].validation is None


def test_seeds_give_different_streams() -> None:
    one, two = rotated_digits(seed=1), rotated_digits(seed=2)
    assert one.names != two.names
    assert not torch.equal(tensors(one[0].test), tensors(two[0].test))


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
def test_unusable_settings_are_refused(settings: dict, message: str) -> None:
    for make in (rotated_digits, permuted_digits):
        with pytest.raises(InputError, match=message) as caught:
            make(**settings)
        assert "\n" not in str(caught.value)
