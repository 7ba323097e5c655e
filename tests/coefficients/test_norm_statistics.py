"""How exactly norm statistics are coded, in how many bytes, and what is kept as it is."""

import math

import pytest
import torch

from impresslearn.coefficients.norm_statistics import (
    DEVIATION_STEP,
    MEAN_STEP,
    StoredStatistics,
    coded_statistics,
    restore_statistics,
)
from toys import resnet, same


def gathered(backbone, seed=0):
    """Statistics as unlike one another as those of real layers."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for name, like in backbone.initial_statistics().items():
        drawn = torch.randn(like.shape, generator=generator)
        found[name] = (0.7 * drawn + 1).exp() if name.endswith("var") else 2 * drawn
    return found


def layers(statistics):
    values = [value.double() for value in statistics.values()]
    return zip(values[::2], values[1::2], strict=True)


def test_what_is_normalised_moves_by_half_a_step_at_most():
    backbone = resnet("per_task")
    exact = gathered(backbone)
    stored = coded_statistics(backbone, exact, exact)
    for (mean, variance), (kept, spread) in zip(layers(exact), layers(stored.values), strict=True):
        assert ((variance / spread).log().abs() / 2 <= 1.01 * DEVIATION_STEP / 2).all()
        assert ((mean - kept).abs() <= 1.01 * MEAN_STEP / 2 * (spread + 1e-5).sqrt()).all()
    raw = StoredStatistics(exact)
    assert len(stored.content) < len(raw.content) / 5
    for each in (stored, raw):
        restored = restore_statistics(backbone, each.content, each.code is not None)
        assert same(restored.values, each.values)
        assert restored.content == each.content
    assert same(raw.values, exact)
    assert coded_statistics(backbone, stored.values, {}).content == stored.content


@pytest.mark.parametrize(
    ("mean", "variance", "coded"),
    [(0.0, 0.0, True), (0.01, 0.0, True), (-5e2, 1e3, True), (3.0, 0.0, False), (0.0, 1e30, False)],
)
def test_channels_that_hardly_vary_or_far_too_much(mean, variance, coded):
    """Constant ones are normalised as they were; what no whole number reaches stays a float."""
    backbone = resnet("per_task")
    exact = gathered(backbone)
    exact["stem.1.running_mean"][1], exact["stem.1.running_var"][1] = mean, variance
    stored = coded_statistics(backbone, exact, exact)
    assert (stored.code is not None) == coded
    kept = [stored.values[f"stem.1.running_{each}"][1].item() for each in ("mean", "var")]
    shift, deviation = abs(kept[0] - mean), math.sqrt(variance + 1e-5)
    assert shift <= 1.11 * MEAN_STEP / 2 * deviation
    assert abs(math.log((kept[1] + 1e-5) / deviation**2)) <= 1.01 * DEVIATION_STEP
    assert coded or same(stored.values, exact)
