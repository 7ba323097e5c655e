"""Charts draw what the learner holds, and they become pictures and a page."""

import numpy as np
import pytest

import impresslearn as il
from toys import blobs, lenet, quick_learner, resnet


@pytest.fixture(scope="module")
def learner():
    made = quick_learner(lenet(4), granularity="unit")
    for seed, name in enumerate("ab"):
        made.learn_basis(name, blobs(seed))
    for seed, name in enumerate(("c", "d", "c again")):
        made.learn_task(name, blobs(5 if "c" in name else seed), seed=7)
    return made


def values(chart):
    """The rows that a chart draws."""
    (rows,) = chart.to_dict()["datasets"].values()
    return rows


def cells(chart):
    """The values of a heat map by (x, y)."""
    return {(row["x"], row["y"]): row["value"] for row in values(chart)}


def test_shares_of_masks_add_up(learner, tmp_path):
    chart = il.charts.mask_usage(learner)
    chart.save(tmp_path / "usage.svg")
    assert (tmp_path / "usage.svg").read_text().startswith("<svg")
    shares = cells(chart)
    assert {task for _, task in shares} == {"c", "d", "c again"}
    for task in ("c", "d"):
        numbers = sum(alpha.abs().mean(dim=1) for alpha in learner.coefficients_[task].alpha)
        expected = (numbers / numbers.sum()).tolist()
        assert [shares[mask, task] for mask in "ab"] == pytest.approx(expected)


def test_pictures_show_the_masks(learner):
    mask = learner.bank_.mask("a")
    for layer in learner.backbone.layers:
        picture = np.zeros(tuple(mask[layer.name].shape), dtype=bool)
        for row in values(il.charts.mask_picture(learner.bank_, "a", layer.name)):
            picture[row["unit"], row["input"]] = row["kept"]
        assert np.array_equal(picture, mask[layer.name].numpy())


def test_a_picture_of_the_inputs_counts_the_weights_kept(learner):
    bank = learner.bank_
    ones = bank.mask("a")[bank.layers[0].name].sum(dim=0)
    rows = values(il.charts.input_picture(learner, "a", shape=(2, len(ones) // 2)))
    assert [row["kept"] for row in rows] == ones.tolist()
    bank = il.random_bank(resnet("batch").layers, 1, sparsity=0.5, seed=0)
    assert len(values(il.charts.input_picture(bank, bank.names[0]))) == 9
