import numpy as np
import pytest
import torch

from impresslearn.errors import InputError
from toys import read_examples, read_inputs

PIXELS = torch.arange(2 * 4 * 5 * 3, dtype=torch.float32).reshape(2, 4, 5, 3)  # (n, h, w, c)


def saved(tmp_path, inputs):
    path = tmp_path / "a.npy"
    np.save(path, np.asarray(inputs))
    return path


@pytest.mark.parametrize(
    ("inputs", "shape", "expected"),
    [
        (PIXELS.flatten(1), (3, 4, 5), PIXELS.reshape(2, 3, 4, 5)),
        (PIXELS, (60,), PIXELS.flatten(1)),
        (PIXELS, (3, 4, 5), PIXELS.permute(0, 3, 1, 2)),
        (PIXELS, (4, 5, 3), PIXELS),
        (PIXELS[..., 0], (1, 4, 5), PIXELS[..., 0].unsqueeze(1)),
        (PIXELS[..., :1], (1, 4, 5), PIXELS[..., 0].unsqueeze(1)),
        (PIXELS[..., :1], (4, 5), PIXELS[..., 0]),
        (PIXELS[:, 0, 0, 0], (1,), PIXELS[:, 0, 0, :1]),
        (PIXELS[:, 0, 0, 0], (1, 1, 1), PIXELS[:, :1, :1, :1]),
    ],
)
def test_shapes(tmp_path, inputs, shape, expected):
    arranged = read_inputs(saved(tmp_path, inputs), shape=shape).inputs
    assert torch.equal(arranged, expected)
    assert arranged.is_contiguous()


@pytest.mark.parametrize("shape", [(5, 4, 3), (3, 5, 4), (61,), (2, 30), (6, 10)])
def test_changes_of_shape_that_would_shuffle_pixels(tmp_path, shape):
    with pytest.raises(InputError, match=r"a.npy: inputs of shape \(4, 5, 3\) cannot be given"):
        read_inputs(saved(tmp_path, PIXELS), shape=shape)


@pytest.mark.parametrize("shape", [(), 3, (0, 3), (-1,), (2.0,), (True,), "28", ("a",)])
def test_shapes_that_are_none(tmp_path, shape):
    with pytest.raises(InputError, match=r"^shape must be whole numbers from 1"):
        read_inputs(saved(tmp_path, PIXELS), shape=shape)


def test_normalisation_comes_last(tmp_path):
    path = saved(tmp_path, PIXELS.to(torch.uint8))
    scaled = (PIXELS / 255).permute(0, 3, 1, 2)
    arranged = read_inputs(path, shape=(3, 4, 5), mean=(0.1, 0.2, 0.3), std=0.5).inputs
    mean = torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)
    torch.testing.assert_close(arranged, (scaled - mean) / 0.5)
    np.save(tmp_path / "l.npy", np.arange(2))
    examples = read_examples(path, tmp_path / "l.npy", shape=(3, 4, 5), mean=[1], std=[1, 2, 4])
    std = torch.tensor([1.0, 2, 4]).view(3, 1, 1)
    torch.testing.assert_close(examples.inputs, (scaled - 1) / std)
    assert examples.labels.tolist() == [0, 1]


def test_a_mean_for_each_column(tmp_path):
    rows = PIXELS.flatten(1)[:, :2]
    arranged = read_inputs(saved(tmp_path, rows), mean=[1, 2]).inputs
    assert torch.equal(arranged, rows - torch.tensor([1.0, 2]))


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"mean": "a"}, "mean must be a number, or one a channel, got 'a'"),
        ({"mean": [0, None]}, "mean must be a number"),
        ({"mean": []}, "mean must be a number"),
        ({"mean": float("nan")}, "mean must be a number"),
        ({"mean": True}, "mean must be a number"),
        ({"mean": 10**400}, "mean must be a number"),
        ({"std": 0}, "std must be a number above 0"),
        ({"std": [1, -1]}, "std must be a number above 0"),
        ({"mean": [1, 2]}, r"a.npy: mean needs one number, .* shape \(4, 5, 3\), got 2"),
        ({"std": [1, 2]}, "a.npy: std needs one number, or one for each of the channels"),
        ({"std": 1e-40}, "a.npy: inputs hold .* NaN or infinite"),
    ],
)
def test_numbers_that_cannot_be_used(tmp_path, settings, match):
    with pytest.raises(InputError, match=match) as caught:
        read_inputs(saved(tmp_path, PIXELS), **settings)
    assert "\n" not in str(caught.value)


def test_half_precision_stays_unless_it_is_normalised(tmp_path):
    path = saved(tmp_path, PIXELS.half())
    assert read_inputs(path, shape=(3, 4, 5)).inputs.dtype == torch.float16
    assert torch.equal(read_inputs(path, mean=1, std=2).inputs, (PIXELS - 1) / 2)
