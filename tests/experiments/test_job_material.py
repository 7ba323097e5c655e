"""The banks that jobs learn over, from the settings that targets write."""

import pytest
import torch

from impresslearn.experiments.jobs import Place, run_job
from impresslearn.experiments.targets.benchmarks import (
    disjoint_masks,
    permuted_mnist,
)
from impresslearn.experiments.work.material import backbone_of, bank_of

BENCHMARK = permuted_mnist("smoke")


@pytest.fixture(scope="module")
def backbone():
    return backbone_of(BENCHMARK.network(0), Place())


def test_independent_masks_are_different_draws(backbone):
    bank = bank_of(backbone, (), BENCHMARK.independent(6, 0.9, 0))
    overlap = bank.overlap()
    others = ~torch.eye(6, dtype=torch.bool)
    assert len(bank) == 6
    assert float(overlap.measured[others].max()) < 0.15
    assert torch.allclose(overlap.measured[others], overlap.expected[others], atol=0.03)


def test_disjoint_masks_share_the_weights_out(backbone):
    bank = bank_of(backbone, (), disjoint_masks(6))
    masks = [bank.mask(info.name) for info in bank.infos]
    for layer in backbone.layers:
        assert torch.equal(sum(mask[layer.name].int() for mask in masks), torch.ones(layer.shape))


def test_more_random_masks_solve_a_task_better():
    """Copies of one mask would do no better than one."""
    task = BENCHMARK.basis
    jobs = [
        BENCHMARK.task_job(0, task, (), random=BENCHMARK.independent(count, 0.9, 0))
        for count in (2, 40)
    ]
    few, many = (run_job(job, (), Place()).values["accuracy"] for job in jobs)
    assert many > few + 0.2
    assert many > 0.6
