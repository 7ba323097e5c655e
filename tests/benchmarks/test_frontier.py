"""The frontier: how the best of ours is compared at a budget of bytes."""

import pytest
from benchmarks.targets.entries import with_budgets

WHERE = {"benchmark": "b", "role": "evaluation"}


def rows(method, setting, size, accuracies):
    return [
        {**WHERE, "method": method, "setting": setting, "seed": seed, "task": "t"}
        | {"accuracy": accuracy, "prediction_bytes": size + seed}
        for seed, accuracy in enumerate(accuracies)
    ]


def compared(measured, budget):
    found = with_budgets(measured)
    assert found[: len(measured)] == measured
    return next(row for row in found if row["role"] == "budget" and row["budget"] == budget)


def test_the_best_that_fits_of_either_side_is_compared_on_the_same_tasks():
    ours = rows("ImpressLearn, a layer", "few", 90, [0.6, 0.7, 0.8])
    ours += rows("ImpressLearn, a weight", "many", 290, [0.8, 0.9, 0.9])
    other = rows("SupSup", "sparse", 298, [0.7, 0.9, 0.8]) + rows("LoRA", "rank 1", 301, [1.0] * 3)
    tuned = [{**row, "role": "development", "accuracy": 1.0} for row in other]
    found = compared([*ours, *other, *tuned], 300)
    assert found["ours"] == "ImpressLearn, a weight: many"
    assert found["other"] == "SupSup: sparse"  # of mean size 299; LoRA's is 302
    assert found["accuracy"] == pytest.approx(2.6 / 3)
    assert found["difference"] == pytest.approx(20 / 3)
