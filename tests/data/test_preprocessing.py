"""Shapes, scales and normalisation of raw inputs, from files and in memory."""

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from impresslearn import Preprocessing
from impresslearn.data import as_examples
from impresslearn.streams import rotated_digits
from toys import refused

PIXELS = torch.arange(2 * 4 * 5 * 3, dtype=torch.float32).reshape(2, 4, 5, 3)  # (n, h, w, c)
UINT8 = np.random.default_rng(0).integers(0, 256, (30, 16)).astype(np.uint8)


def prepared(inputs, **settings):
    return Preprocessing(**settings).apply(inputs)


@pytest.mark.parametrize(
    ("inputs", "shape", "expected"),
    [
        (PIXELS.flatten(1), (3, 4, 5), PIXELS.reshape(2, 3, 4, 5)),
        (PIXELS, (60,), PIXELS.flatten(1)),
        (PIXELS, (3, 4, 5), PIXELS.permute(0, 3, 1, 2)),
        (PIXELS, (4, 5, 3), PIXELS),
        (PIXELS[..., 0], (1, 4, 5), PIXELS[..., 0].unsqueeze(1)),
        (PIXELS[..., :1], (4, 5), PIXELS[..., 0]),
        (PIXELS[:, 0, 0, 0], (1, 1, 1), PIXELS[:, :1, :1, :1]),
    ],
)
def test_shapes(inputs, shape, expected):
    arranged = prepared(inputs.contiguous(), shape=shape)
    assert torch.equal(arranged, expected)
    assert arranged.is_contiguous()


def test_normalisation_comes_last():
    settings = {"shape": (3, 4, 5), "mean": (0.1, 0.2, 0.3), "std": [0.5, 1, 2]}
    mean, std = (torch.tensor(settings[key]).view(3, 1, 1) for key in ("mean", "std"))
    expected = ((PIXELS / 255).permute(0, 3, 1, 2) - mean) / std
    torch.testing.assert_close(prepared(PIXELS.to(torch.uint8), **settings), expected)
    columns = prepared(PIXELS.flatten(1)[:, :2], mean=[1, 2])
    assert torch.equal(columns, PIXELS.flatten(1)[:, :2] - torch.tensor([1.0, 2]))
    assert prepared(PIXELS.half(), shape=(3, 4, 5)).dtype == torch.float16
    assert torch.equal(prepared(PIXELS.half(), mean=1, std=2), (PIXELS - 1) / 2)


def test_integers_are_pixels_in_every_container():
    for raw in (UINT8, UINT8.astype(np.int64), UINT8 / 255):
        values = Preprocessing.standardising(raw, pixels=True).apply(raw)
        assert float(values.mean()) == pytest.approx(0, abs=1e-4)
        assert float(values.std(correction=0)) == pytest.approx(1, abs=1e-4)
    made, dark = Preprocessing(pixels=True), (UINT8 > 128).astype(np.int64)
    data = TensorDataset(torch.tensor(dark), torch.arange(30) % 3)
    assert made.apply(dark).max() == np.float32(1 / 255)
    assert torch.equal(made.apply(UINT8 / 255), made.apply(UINT8))  # floats are in [0, 1] already
    refused("inputs are pixels .* got floats from 0 to 2", made.apply, UINT8.clip(0, 2) / 1)
    for form in (data.tensors, data):
        assert made.apply_to(as_examples(form)).inputs.max() == np.float32(1 / 255)


def test_channels_that_differ_in_scale_are_measured_one_by_one():
    inputs = torch.randn(64, 3, 20) * torch.tensor([1.0, 300.0, 1e-3])[:, None] + 5
    made = Preprocessing.standardising(inputs)
    assert len(made.std) == 3
    assert made.apply(inputs).std(dim=(0, 2)) == pytest.approx(torch.ones(3), rel=0.01)
    images = torch.rand(64, 28, 28)
    images[:, :9] = 0  # rows that are dark in all images are no channels
    assert isinstance(Preprocessing.standardising(images).std, float)


@pytest.mark.parametrize("convert", [np.float64, np.int64])
def test_a_column_that_float32_cannot_hold_is_refused(convert):
    draws = np.random.default_rng(0)
    stamps = 1.7e9 + 20 * draws.normal(size=80)
    table = np.stack([30 * draws.normal(size=80), stamps], axis=1).astype(convert)
    refused("column 2 varies by .* about 1.7.*, which float32 cannot hold; subtract",
            Preprocessing.standardising, table)  # fmt: skip
    values = Preprocessing.standardising(table - table[0]).apply(table - table[0])
    assert float(values.std(correction=0)) == pytest.approx(1, abs=1e-3)


def test_columns_of_other_scales_are_measured_one_by_one_and_pixels_together():
    draws = np.random.default_rng(0)
    table = draws.normal(size=(80, 3)) * (10, 30_000, 1e-6) + (40, 50_000, 0)
    made = Preprocessing.standardising(table)
    assert made.apply(table).mean(dim=0).numpy() == pytest.approx(0, abs=1e-3)
    assert made.apply(table).std(dim=0).numpy() == pytest.approx(1, abs=0.01)
    assert Preprocessing(**made.settings()) == made
    two = Preprocessing.standardising(table[:, :2])  # such as an age and an income
    assert two.apply(table[:, :2]).std(dim=0).numpy() == pytest.approx(1, abs=0.01)
    table[:, 2] = -5  # does not vary here; elsewhere it may
    fixed = Preprocessing.standardising(table)
    assert (fixed.mean[2], fixed.std[2]) == (-5, 5)
    for constant, scale in ((0, 1), (0.1, 0.1)):  # sums of the second are rounded
        table[:, 2] = constant
        assert Preprocessing.standardising(table).std[2] == pytest.approx(scale)
    steady = np.stack([table[:, 0], 101_325.37 + 0.5 * draws.normal(size=80)], axis=1)
    values = Preprocessing.standardising(steady).apply(steady)
    assert abs(float(values[:, 1].mean())) < 0.05
    pixels = rotated_digits(tasks=1)[0].train.inputs.flatten(1)
    assert isinstance(Preprocessing.standardising(pixels).mean, float)
