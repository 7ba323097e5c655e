"""The chart of masks draws what tasks use, and it becomes a picture."""

import pytest

import impresslearn as il
from toys import blobs, lenet, quick_learner


@pytest.fixture(scope="module")
def learner():
    made = quick_learner(lenet(4), granularity="unit")
    for seed, name in enumerate("ab"):
        made.learn_basis(name, blobs(seed))
    for seed, name in enumerate(("c", "d", "c again")):
        made.learn_task(name, blobs(5 if "c" in name else seed), seed=7)
    return made


def cells(chart):
    """The values of a heat map by (x, y)."""
    (rows,) = chart.to_dict()["datasets"].values()
    return {(row["x"], row["y"]): row["value"] for row in rows}


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
