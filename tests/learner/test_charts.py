"""The chart of masks draws what tasks use, and it becomes a picture."""

import pytest

import impresslearn as il
from toys import blobs, lenet, quick_learner


def test_shares_of_masks_add_up(tmp_path):
    learner = quick_learner(lenet(4), granularity="unit")
    for seed, name in enumerate("ab"):
        learner.learn_basis(name, blobs(seed)).learn_task(name + "!", blobs(5 + seed), seed=7)
    chart = il.charts.mask_usage(learner)
    chart.save(tmp_path / "usage.svg")
    assert (tmp_path / "usage.svg").read_text().startswith("<svg")
    (rows,) = chart.to_dict()["datasets"].values()
    shares = {(row["x"], row["y"]): row["value"] for row in rows}
    numbers = sum(alpha.abs().mean(dim=1) for alpha in learner.coefficients_["b!"].alpha)
    expected = (numbers / numbers.sum()).tolist()
    assert {task for _, task in shares} == {"a!", "b!"}
    assert [shares[mask, "b!"] for mask in "ab"] == pytest.approx(expected)
